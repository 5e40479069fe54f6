"""An index that has clusters' kinds and tags: to look for a rare one took reading all rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Apply it."""
    if op.get_bind().dialect.name != "sqlite":
        return
    columns = ["workspace", "started_at", "id"]
    op.create_index("cluster_by_label", "cluster", [*columns, "kind", "tags"])
    # Of two that will do, SQLite takes the one that was made last: for the few that are open, this.
    op.drop_index("cluster_open", "cluster")
    is_open = sa.text("stopped_at IS NULL")
    op.create_index("cluster_open", "cluster", columns, sqlite_where=is_open)
