"""The token that a cluster was first sent with: its commands are for that one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Apply it."""
    op.add_column("cluster", sa.Column("token", sa.String()))
