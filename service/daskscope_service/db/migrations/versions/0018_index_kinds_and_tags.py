"""An index that has clusters' kinds and tags: to look for a rare one took reading all rows."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Apply it."""
    if op.get_bind().dialect.name == "sqlite":
        columns = ["workspace", "started_at", "id", "kind", "tags"]
        op.create_index("cluster_by_label", "cluster", columns)
