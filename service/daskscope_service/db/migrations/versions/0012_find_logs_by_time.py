"""An index of log records by time alone: for lists over all clusters."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Apply it."""
    op.create_index("log_by_workspace", "log_record", ["workspace", "at", "id"])
