"""Findings, and when computations are to be judged next."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "finding",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("computation", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("found_at", sa.Float(), nullable=False),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("actions", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float()),
        sa.Column("share", sa.Float()),
        sa.Column("cost", sa.Float()),
        sa.Column("currency", sa.String()),
        sa.Column("saving", sa.JSON()),
        sa.Column("confidence", sa.String(), nullable=False),
        sa.Column("suppressed_by", sa.String()),
        sa.PrimaryKeyConstraint("workspace", "cluster", "id"),
    )
    op.create_index("finding_by_time", "finding", ["workspace", "at", "id", "cluster"])
    op.create_index("finding_by_user", "finding", ["workspace", "user", "at", "id", "cluster"])
    op.create_index("finding_by_computation", "finding", ["workspace", "cluster", "computation"])
    op.add_column("computation", sa.Column("judge_at", sa.Float()))
    is_due = sa.text("judge_at IS NOT NULL")
    op.create_index(
        "computation_due",
        "computation",
        ["workspace", "judge_at"],
        sqlite_where=is_due,
        postgresql_where=is_due,
    )
    op.create_index("computation_by_id", "computation", ["workspace", "id"])
