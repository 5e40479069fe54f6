"""In which batch job or pod a lost worker ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known.
    op.add_column(
        "worker_loss", sa.Column("deployment", sa.JSON(), nullable=False, server_default="{}")
    )
