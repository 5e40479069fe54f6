"""Which sessions began with a proof of who it is: a provider may let in whoever sits there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Apply it."""
    proven: sa.Column[bool] = sa.Column(
        "proven", sa.Boolean(), nullable=False, server_default=sa.true()
    )
    op.add_column("session", proven)
    again: sa.Column[bool] = sa.Column(
        "again", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("openid_attempt", again)
