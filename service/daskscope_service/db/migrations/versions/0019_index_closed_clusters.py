"""An index of the clusters that have stopped: to sort them took reading all rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Apply it."""
    sorted_by = ["stopped_at", "status_at", "peak_workers", "peak_memory_used", "cost"]
    sorted_by += ["thread_seconds", "thread_idle_seconds"]
    is_closed = sa.text("stopped_at IS NOT NULL")
    op.create_index(
        "cluster_closed",
        "cluster",
        ["workspace", "started_at", "id", *sorted_by],
        sqlite_where=is_closed,
        postgresql_where=is_closed,
    )
