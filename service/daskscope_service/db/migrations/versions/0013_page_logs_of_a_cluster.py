"""The index of a cluster's log records in the order of their list: else SQLite takes the other."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Apply it."""
    op.drop_index("log_by_time", "log_record")
    op.create_index("log_by_cluster", "log_record", ["workspace", "cluster", "at", "id"])
