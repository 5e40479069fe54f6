"""What people correct about jobs: merged, split, named."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    """Apply it."""
    op.add_column("job", sa.Column("assign_before", sa.Float()))
    some = sa.text("assign_before IS NOT NULL")
    op.create_index("job_to_assign", "job", ["workspace"], sqlite_where=some, postgresql_where=some)
    op.create_table(
        "job_correction",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id"),
        sa.UniqueConstraint("workspace", "job", "kind"),
    )
    op.create_index("job_correction_by_value", "job_correction", ["workspace", "value"])
