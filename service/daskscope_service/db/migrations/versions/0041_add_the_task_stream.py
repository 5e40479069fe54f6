"""Add the task stream."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "task_stream",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("stopped_at", sa.Float(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("merged", sa.BigInteger(), nullable=False),
        sa.Column("workers", sa.JSON(), nullable=False),
        sa.Column("prefixes", sa.JSON(), nullable=False),
        sa.Column("columns", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id", name="pk_task_stream"),
    )
    op.create_index(
        "task_stream_by_cluster", "task_stream", ["workspace", "cluster", "started_at", "id"]
    )
