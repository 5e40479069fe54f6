"""Keep when a finding that was reported last occurred, and how severe it was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    """Apply it."""
    op.add_column("notice", sa.Column("severity", sa.String(), nullable=True))
    op.add_column("notice", sa.Column("seen_at", sa.Float(), nullable=True))
