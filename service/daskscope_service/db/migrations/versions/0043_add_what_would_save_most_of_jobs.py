"""What would save most of each job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    """Apply it."""
    op.add_column("job", sa.Column("saves_most", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("job", sa.Column("saves_most_seconds", sa.Float(), nullable=True))
    # Jobs are summarised again in the background, some in each round.
    op.execute(sa.text("UPDATE job SET due_at = 0"))
