"""Whose a token is, programs that ask for one, invitations, and sign-in by OpenID Connect."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "device_login",
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_code", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("scopes", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("interval", sa.Float(), nullable=False),
        sa.Column("polled_at", sa.Float()),
        sa.Column("answer", sa.String()),
        sa.Column("answered_by", sa.String()),
        sa.Column("workspace", sa.String()),
        sa.Column("user", sa.String()),
        sa.PrimaryKeyConstraint("code_hash"),
        sa.UniqueConstraint("user_code"),
    )
    op.create_index("device_login_by_address", "device_login", ["address", "expires_at"])
    op.create_index("device_login_by_expiry", "device_login", ["expires_at"])
    op.add_column("token", sa.Column("made_by", sa.String()))
    op.add_column("token", sa.Column("user", sa.String()))
    op.create_index("token_by_workspace", "token", ["workspace", "created_at"])
    op.create_index("token_by_user", "token", ["user"])

    op.create_table(
        "identity",
        sa.Column("issuer", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject"),
    )
    op.create_index("identity_by_user", "identity", ["user"])
    op.create_table(
        "openid_attempt",
        sa.Column("state_hash", sa.LargeBinary(), nullable=False),
        sa.Column("ticket_hash", sa.LargeBinary(), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("verifier", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("user", sa.String()),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("state_hash"),
    )
    op.create_index("openid_attempt_by_address", "openid_attempt", ["address", "expires_at"])
    op.create_index("openid_attempt_by_expiry", "openid_attempt", ["expires_at"])

    op.create_table(
        "invitation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=False),
        sa.Column("user", sa.String()),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("code_hash"),
    )
    op.create_index("invitation_by_workspace", "invitation", ["workspace", "created_at"])
    op.create_index("invitation_by_expiry", "invitation", ["expires_at"])
