"""What the cluster did while a computation ran, and what tasks asked for that could not run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known.
    for name, default in (("worker_seconds", "{}"), ("asks", "{}")):
        column = sa.Column(name, sa.JSON(), nullable=False, server_default=default)
        op.add_column("computation", column)
    for name in ("spilled_bytes", "unspilled_bytes", "transferred_bytes"):
        op.add_column("computation", sa.Column(name, sa.BigInteger()))
    for name in ("loop_interval", "heartbeat_age", "host_load", "unrunnable_seconds"):
        op.add_column("computation", sa.Column(name, sa.Float()))
