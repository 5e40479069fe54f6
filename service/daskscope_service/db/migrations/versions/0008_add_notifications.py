"""Notifications: what happened, whom to tell, and the month's budget."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "notice",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("found_at", sa.Float(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id"),
    )
    op.create_index("notice_by_time", "notice", ["workspace", "found_at"])
    op.create_table(
        "notification_target",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.LargeBinary(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("told_until", sa.Float(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=False),
        sa.Column("sent_at", sa.Float()),
        sa.Column("failed_at", sa.Float()),
        sa.Column("failure", sa.Text()),
        sa.PrimaryKeyConstraint("workspace", "id"),
        sa.UniqueConstraint("workspace", "name"),
    )
    op.create_table(
        "budget",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("amount", sa.Float(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace"),
    )
