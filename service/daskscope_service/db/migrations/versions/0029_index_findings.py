"""Findings are looked for by their rule, and added up where they cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """Apply it."""
    op.create_index("finding_by_rule", "finding", ["workspace", "rule", "at", "id", "cluster"])
    costs = sa.text("severity != 'notice' AND suppressed_by IS NULL")
    op.create_index(
        "finding_that_costs",
        "finding",
        ["workspace", "at", "rule", "seconds", "cost", "currency"],
        sqlite_where=costs,
        postgresql_where=costs,
    )
