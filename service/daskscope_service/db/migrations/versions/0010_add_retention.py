"""Retention: how long what is kept, and what keeps processes from doing the same work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "retention",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("days", sa.BigInteger()),
        sa.PrimaryKeyConstraint("workspace", "kind"),
    )
    op.create_table(
        "retention_mark",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "kind"),
    )
    op.create_table(
        "series_generation",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String()),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("done_at", sa.Float()),
        sa.PrimaryKeyConstraint("name"),
    )
    op.add_column("code", sa.Column("unused_since", sa.Float()))
