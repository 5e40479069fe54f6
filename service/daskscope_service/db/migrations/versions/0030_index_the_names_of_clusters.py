"""Lists are chosen by the name of a cluster, too."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Apply it."""
    op.create_index("cluster_by_name", "cluster", ["name", "workspace", "started_at", "id"])
