"""The time of tasks that no sample of a profile was of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there it is not known.
    op.add_column("profile", sa.Column("unsampled", sa.Float(), nullable=True))
