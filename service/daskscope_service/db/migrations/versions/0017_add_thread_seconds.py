"""Thread-seconds of clusters in columns of their own: to sort by them took reading JSON."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Apply it."""
    names = ("thread_seconds", "thread_idle_seconds")
    for name in names:
        column = sa.Column(name, sa.Float(), nullable=False, server_default="0")
        op.add_column("cluster", column)
    cluster = sa.table(
        "cluster",
        sa.column("worker_seconds", sa.JSON),
        *(sa.column(name, sa.Float) for name in names),
    )
    idle, busy, paused = (
        sa.func.coalesce(cluster.c.worker_seconds[state].as_float(), 0.0)
        for state in ("idle", "busy", "paused")
    )
    op.execute(
        cluster.update().values(thread_seconds=idle + busy + paused, thread_idle_seconds=idle)
    )
