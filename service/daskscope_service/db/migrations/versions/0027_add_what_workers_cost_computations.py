"""Runs that ended with their workers, tasks that never ran, and the most memory of a worker."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known; those of older plugins have these, too.
    op.add_column("cluster", sa.Column("peak_worker_memory", sa.BigInteger()))
    op.add_column("computation", sa.Column("ended_at", sa.Float()))
    for name in ("lost_runs", "blamed"):
        op.add_column(
            "computation", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        )
    op.add_column(
        "computation", sa.Column("blames", sa.JSON(), nullable=False, server_default="{}")
    )
    op.add_column("worker_loss", sa.Column("peak_memory", sa.BigInteger()))
    op.add_column(
        "worker_loss", sa.Column("computations", sa.JSON(), nullable=False, server_default="{}")
    )
