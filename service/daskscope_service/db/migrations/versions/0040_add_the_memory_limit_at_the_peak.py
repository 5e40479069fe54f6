"""The memory limit of the workers that a cluster had when it used the most memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    """Apply it."""
    op.add_column("cluster", sa.Column("peak_memory_limit", sa.BigInteger()))
