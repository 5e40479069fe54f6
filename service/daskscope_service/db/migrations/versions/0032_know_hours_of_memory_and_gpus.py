"""Hours of memory and GPUs are known, and whose prices costs are by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Apply it."""
    for table in ("cluster", "usage"):
        for name in ("gib_seconds", "gpu_seconds"):
            op.add_column(table, sa.Column(name, sa.Float()))
    stopped = sa.text("stopped_at IS NOT NULL")
    op.drop_index("cluster_closed", "cluster")
    op.create_index(
        "cluster_closed",
        "cluster",
        [
            *("workspace", "started_at", "id", "stopped_at", "status_at", "peak_workers"),
            *("peak_memory_used", "cost", "thread_seconds", "thread_idle_seconds"),
            *("gib_seconds", "gpu_seconds"),
        ],
        sqlite_where=stopped,
        postgresql_where=stopped,
    )
    op.add_column("finding", sa.Column("price_source", sa.String()))
    op.execute(
        "UPDATE finding SET price_source = (SELECT CASE WHEN CAST(cluster.prices AS TEXT) = 'null' "
        "THEN 'workspace' ELSE 'cluster' END FROM cluster WHERE cluster.workspace = "
        "finding.workspace AND cluster.id = finding.cluster) WHERE currency IS NOT NULL"
    )
    costs = sa.text("severity != 'notice' AND suppressed_by IS NULL")
    op.drop_index("finding_that_costs", "finding")
    op.create_index(
        "finding_that_costs",
        "finding",
        ["workspace", "at", "rule", "seconds", "cost", "currency", "price_source"],
        sqlite_where=costs,
        postgresql_where=costs,
    )
    # What is there was set by the workspace, and findings are by it.
    with op.batch_alter_table("price") as batch:
        batch.add_column(
            sa.Column("source", sa.String(), nullable=False, server_default="workspace")
        )
        batch.add_column(
            sa.Column("findings_due", sa.Boolean(), nullable=False, server_default=sa.false())
        )
