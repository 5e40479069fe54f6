"""What ran after a computation's end, apart from what it took itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    """Apply it."""
    op.add_column("computation", sa.Column("completed_later", sa.BigInteger()))
    op.add_column("computation", sa.Column("seconds_later", sa.Float()))
