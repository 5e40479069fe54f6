"""An index of the computations that did not finish, by their status."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    """Apply it."""
    # Most have finished: those are found by when they started.
    others = sa.text("status != 'finished'")
    op.create_index(
        "computation_by_status",
        "computation",
        ["workspace", "status", "started_at", "id"],
        sqlite_where=others,
        postgresql_where=others,
    )
