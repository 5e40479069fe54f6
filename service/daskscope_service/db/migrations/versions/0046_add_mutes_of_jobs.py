"""Mutes of all runs of a job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    """Apply it."""
    # An older service that still runs knows mutes of clusters and computations alone.
    nobody = sa.text("''")
    op.add_column("mute", sa.Column("job", sa.String(), nullable=False, server_default=nobody))
    op.create_index("mute_by_job", "mute", ["workspace", "job"])
