"""Shutdowns that people and policies ask for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "command",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("requested_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("grace", sa.Float()),
        sa.Column("even_if_busy", sa.Boolean(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("delivered_at", sa.Float()),
        sa.Column("called_off_by", sa.String()),
        sa.Column("called_off_at", sa.Float()),
        sa.Column("called_off_reason", sa.Text()),
        sa.PrimaryKeyConstraint("workspace", "id"),
    )
    op.create_index("command_by_time", "command", ["workspace", "requested_at", "id"])
    op.create_index("command_by_cluster", "command", ["workspace", "cluster", "requested_at"])
    op.create_index("command_by_expiry", "command", ["workspace", "expires_at"])
