"""Sums of usage of what is over; worker losses by cluster and time; the newest points."""

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
    op.create_table(
        "recent_point",
        sa.Column("series", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("series", "time"),
        sqlite_with_rowid=False,
    )
    op.create_index("worker_loss_by_cluster", "worker_loss", ["workspace", "cluster", "at"])
