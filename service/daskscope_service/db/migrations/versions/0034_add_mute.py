"""Add mutes of findings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "mute",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("computation", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id", name="pk_mute"),
    )
    op.create_index("mute_by_cluster", "mute", ["workspace", "cluster"])
