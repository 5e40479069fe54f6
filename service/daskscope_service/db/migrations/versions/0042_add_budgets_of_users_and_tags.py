"""Budgets of users and of tags, and an index for what causes cost by user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    """Apply it."""
    connection = op.get_bind()
    tables = sa.MetaData()
    tables.reflect(connection, only=["budget"])
    rows = [dict(row) for row in connection.execute(sa.select(tables.tables["budget"])).mappings()]
    # SQLite cannot change a primary key in place. There is at most one row of each workspace.
    op.drop_table("budget")
    # An older service that still runs knows the budget of the whole workspace alone.
    nobody = sa.text("''")
    budget = op.create_table(
        "budget",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False, server_default=nobody),
        sa.Column("tag", sa.String(), nullable=False, server_default=nobody),
        sa.Column("amount", sa.Float(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "user", "tag"),
    )
    if rows:
        connection.execute(sa.insert(budget), [row | {"user": "", "tag": ""} for row in rows])
    costs = sa.text("severity != 'notice' AND suppressed_by IS NULL")
    op.drop_index("finding_that_costs", "finding")
    op.create_index(
        "finding_that_costs",
        "finding",
        ["workspace", "at", "rule", "user", "seconds", "cost", "currency", "price_source"],
        sqlite_where=costs,
        postgresql_where=costs,
    )
