"""Which task groups stand for their inputs, and which of them ran more than once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    """Apply it."""
    op.add_column("task_group", sa.Column("tokenized", sa.Boolean()))
    op.create_table(
        "group_run",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("computation", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("tasks", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("cost", sa.Float()),
        sa.Column("currency", sa.String()),
        sa.Column("output_bytes", sa.BigInteger(), nullable=False),
        sa.Column("began", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "cluster", "computation", "name"),
    )
    op.create_index("group_run_by_name", "group_run", ["workspace", "name", "at"])
    op.create_table(
        "repeat",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("users", sa.JSON(), nullable=False),
        sa.Column("people", sa.BigInteger(), nullable=False),
        sa.Column("clusters", sa.BigInteger(), nullable=False),
        sa.Column("seconds_again", sa.Float(), nullable=False),
        sa.Column("cost_again", sa.Float()),
        sa.Column("currency", sa.String()),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("last_cluster", sa.String(), nullable=False),
        sa.Column("last_computation", sa.String(), nullable=False),
        sa.Column("output_bytes", sa.BigInteger(), nullable=False),
        sa.Column("instead", sa.String(), nullable=False),
        sa.Column("together", sa.String(), nullable=False),
        sa.Column("step", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name"),
    )
    op.create_index("repeat_by_seconds", "repeat", ["workspace", "seconds_again"])
