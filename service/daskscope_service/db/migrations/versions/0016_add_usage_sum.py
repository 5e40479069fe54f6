"""Sums of usage in days and weeks that are over; worker losses by cluster and time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "usage_sum",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("days", sa.BigInteger(), nullable=False),
        sa.Column("first_day", sa.BigInteger(), nullable=False),
        sa.Column("sums", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "days", "first_day"),
    )
    op.create_index("worker_loss_by_cluster", "worker_loss", ["workspace", "cluster", "at"])
