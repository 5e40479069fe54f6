"""The use of machines by their types is known, and costs by the operator's price list."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    """Apply it."""
    # Of rows that are there nothing of it is known.
    instances = sa.Column("instances", sa.JSON(), nullable=False, server_default="[]")
    op.add_column("cluster", instances)
    for table in ("cluster", "usage"):
        op.add_column(table, sa.Column("operator_cost", sa.Float()))
        op.add_column(table, sa.Column("operator_currency", sa.String()))
        op.add_column(table, sa.Column("operator_source", sa.String()))
    stopped = sa.text("stopped_at IS NOT NULL")
    op.drop_index("cluster_closed", "cluster")
    op.create_index(
        "cluster_closed",
        "cluster",
        [
            *("workspace", "started_at", "id", "stopped_at", "status_at", "peak_workers"),
            *("peak_memory_used", "cost", "thread_seconds", "thread_idle_seconds"),
            *("gib_seconds", "gpu_seconds", "operator_cost"),
        ],
        sqlite_where=stopped,
        postgresql_where=stopped,
    )
