"""Users, their roles, and sessions of theirs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "member",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "user"),
    )
    op.create_index("member_by_user", "member", ["user"])

    op.create_table(
        "sign_in_attempt",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sign_in_attempt_by_key", "sign_in_attempt", ["key_hash", "at"])
    op.create_index("sign_in_attempt_by_time", "sign_in_attempt", ["at"])

    op.create_table(
        "user",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("name_key", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("disabled_at", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name_key"),
    )
    op.add_column("session", sa.Column("user", sa.String()))
    op.add_column("session", sa.Column("token", sa.String()))
    op.add_column("session", sa.Column("role", sa.String()))
    op.add_column("session", sa.Column("last_seen_at", sa.Float()))
    op.add_column("session", sa.Column("browser", sa.String()))
    op.create_index("session_by_user", "session", ["user"])
    # How these began is not known, so they may do the least.
    session = sa.table("session", sa.column("role", sa.String))
    op.execute(session.update().values(role="viewer"))
