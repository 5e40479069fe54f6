"""Whether a cluster may end without a word, as it lives in a client's process and has no work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Apply it."""
    column: sa.Column[bool] = sa.Column(
        "may_end", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("cluster", column)
    cluster = sa.table(
        "cluster",
        sa.column("kind", sa.String),
        sa.column("idle_seconds", sa.Float),
        sa.column("may_end", sa.Boolean),
    )
    # As for plugins that do not say it.
    op.execute(
        cluster.update()
        .where(cluster.c.kind == "LocalCluster", cluster.c.idle_seconds.is_not(None))
        .values(may_end=True)
    )
