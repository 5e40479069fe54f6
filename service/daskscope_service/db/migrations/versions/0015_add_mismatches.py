"""Versions that differ within a cluster, its settings in force; the audit log by workspace."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Apply it."""
    # Of clusters that are there already, no one said: an empty text is what older plugins send.
    for name, nothing in (("settings", "{}"), ("mismatches", "[]")):
        op.add_column("cluster", sa.Column(name, sa.JSON(), nullable=False, server_default=nothing))
    op.create_index("audit_entry_by_workspace", "audit_entry", ["workspace", "at", "id"])
