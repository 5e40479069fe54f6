"""Idle policies and what they decided; the clusters' own idle timeouts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply it."""
    op.add_column("cluster", sa.Column("idle_timeout", sa.Float()))
    op.create_table(
        "policy",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("after", sa.Float(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("users", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("begins", sa.String()),
        sa.Column("ends", sa.String()),
        sa.Column("time_zone", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id"),
        sa.UniqueConstraint("workspace", "name"),
    )
    op.create_table(
        "decision",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("policy_name", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("command", sa.String()),
        sa.PrimaryKeyConstraint("workspace", "id"),
    )
    op.create_index("decision_by_cluster", "decision", ["workspace", "cluster", "at"])
