"""What a cluster is at, in words: why it is not closed as idle."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Apply it."""
    # None: nobody looked for all of it, as plugins did not until now.
    op.add_column("cluster", sa.Column("busy_by", sa.JSON(none_as_null=True)))
