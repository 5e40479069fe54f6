"""The audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "audit_entry",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("workspace", sa.String()),
        sa.Column("address", sa.String()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_entry_by_time", "audit_entry", ["at"])
