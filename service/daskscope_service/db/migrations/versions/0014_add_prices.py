"""Prices of a workspace."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "price",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("per_hour", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace"),
    )
