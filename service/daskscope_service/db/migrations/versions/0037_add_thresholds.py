"""Add thresholds of findings that a workspace has set for itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "threshold",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("own", sa.JSON(), nullable=False),
        sa.Column("findings_due", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", name="pk_threshold"),
    )
