"""What single workers did for computations, first runs on workers, and largest results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known.
    for table in ("computation", "task_group"):
        op.add_column(table, sa.Column("largest_output", sa.BigInteger()))
        op.add_column(table, sa.Column("first_runs", sa.BigInteger()))
        op.add_column(table, sa.Column("first_seconds", sa.Float()))
    op.add_column("computation", sa.Column("began_at", sa.Float()))
    op.add_column("computation", sa.Column("mostly_done_at", sa.Float()))
    op.add_column("computation", sa.Column("workers", sa.BigInteger()))
    op.add_column(
        "computation", sa.Column("worker_shares", sa.JSON(), nullable=False, server_default="[]")
    )
