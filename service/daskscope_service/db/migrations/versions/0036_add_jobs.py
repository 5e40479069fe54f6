"""Add jobs: runs of the same work over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "job",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("last_cluster", sa.String(), nullable=False),
        sa.Column("last_computation", sa.String(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("duration", sa.Float()),
        sa.Column("spread", sa.Float()),
        sa.Column("task_seconds", sa.Float()),
        sa.Column("cost", sa.Float()),
        sa.Column("currency", sa.String()),
        sa.Column("price_source", sa.String()),
        sa.Column("change", sa.JSON()),
        sa.Column("change_at", sa.Float()),
        sa.Column("due_at", sa.Float()),
        sa.PrimaryKeyConstraint("workspace", "id", name="pk_job"),
    )
    op.create_index("job_by_last_run", "job", ["workspace", "last_at", "id"])
    is_due = sa.text("due_at IS NOT NULL")
    op.create_index(
        "job_due", "job", ["workspace", "due_at"], sqlite_where=is_due, postgresql_where=is_due
    )
    op.add_column("computation", sa.Column("job", sa.String()))
    # Those that are there are due: the service goes through them in the background.
    op.add_column("computation", sa.Column("job_due_at", sa.Float(), server_default="0"))
    has_job, is_due = sa.text("job IS NOT NULL"), sa.text("job_due_at IS NOT NULL")
    op.create_index(
        "computation_by_job",
        "computation",
        ["workspace", "job", "started_at", "id"],
        sqlite_where=has_job,
        postgresql_where=has_job,
    )
    op.create_index(
        "computation_job_due",
        "computation",
        ["workspace", "job_due_at"],
        sqlite_where=is_due,
        postgresql_where=is_due,
    )
