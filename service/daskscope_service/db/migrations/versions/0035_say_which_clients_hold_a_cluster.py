"""Clients that are connected to a cluster, and what it was kept for before it stopped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known.
    for name, default in (("connected", "[]"), ("last_held_by", "{}")):
        column = sa.Column(name, sa.JSON(), nullable=False, server_default=default)
        op.add_column("cluster", column)
