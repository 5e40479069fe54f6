"""Events, profiles and failures by user and by cluster, without looking at all of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply it."""
    cluster = sa.table(
        "cluster", sa.column("workspace"), sa.column("id"), sa.column("user", sa.String)
    )
    for name in ("event", "failure", "profile"):
        column = sa.Column("user", sa.String(), nullable=False, server_default="")
        op.add_column(name, column)
        table = sa.table(
            name, sa.column("workspace"), sa.column("cluster"), sa.column("user", sa.String)
        )
        its_user = (
            sa.select(cluster.c.user)
            .where(cluster.c.workspace == table.c.workspace, cluster.c.id == table.c.cluster)
            .scalar_subquery()
        )
        op.execute(table.update().values(user=sa.func.coalesce(its_user, "")))
    op.create_index("event_by_cluster", "event", ["workspace", "cluster", "at", "id"])
    op.create_index("event_by_user", "event", ["workspace", "user", "at", "id"])
    op.create_index("profile_by_user", "profile", ["workspace", "user", "started_at", "id"])
    op.drop_index("failure_by_fingerprint", "failure")
    op.create_index(
        "failure_by_fingerprint",
        "failure",
        ["workspace", "fingerprint", "last_at", "user", "cluster", "count", "first_at"],
    )
