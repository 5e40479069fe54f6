"""What clusters come to day by day, and the clusters that never said that they stopped."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "usage",
        sa.Column("workspace", sa.String(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("up_seconds", sa.Float(), nullable=False),
        sa.Column("thread_seconds", sa.Float(), nullable=False),
        sa.Column("idle_seconds", sa.Float(), nullable=False),
        sa.Column("cost", sa.Float()),
        sa.Column("idle_cost", sa.Float()),
        sa.Column("prices", sa.Text()),
        sa.PrimaryKeyConstraint("workspace", "day", "cluster"),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_by_cluster", "usage", ["workspace", "cluster", "day"])
    still_open = sa.text("stopped_at IS NULL")
    op.create_index(
        "cluster_open",
        "cluster",
        ["workspace", "started_at", "id"],
        sqlite_where=still_open,
        postgresql_where=still_open,
    )
    _fill()


def _fill() -> None:
    # Of the clusters that there are, only the last day is known: all of it is told of that day.
    texts = ("workspace", "id", "user")
    floats = ("started_at", "stopped_at", "status_at", "last_seen_at", "cost", "idle_cost")
    cluster = sa.table(
        "cluster",
        *(sa.column(name, sa.String) for name in texts),
        *(sa.column(name, sa.Float) for name in floats),
        sa.column("seq", sa.BigInteger),
        *(sa.column(name, sa.JSON) for name in ("worker_seconds", "prices")),
    )
    usage = sa.table(
        "usage",
        *(sa.column(name) for name in ("workspace", "day", "cluster", "seq", "user")),
        *(sa.column(name) for name in ("started_at", "up_seconds", "thread_seconds")),
        *(sa.column(name) for name in ("idle_seconds", "cost", "idle_cost", "prices")),
    )
    connection = op.get_bind()
    rows = connection.execute(sa.select(cluster)).mappings().all()
    for row in rows:
        at = row["status_at"] if row["stopped_at"] is None else row["stopped_at"]
        prices = row["prices"]
        connection.execute(
            usage.insert().values(
                workspace=row["workspace"],
                day=int(min(at, row["last_seen_at"]) // 86400),
                cluster=row["id"],
                seq=row["seq"],
                user=row["user"],
                started_at=row["started_at"],
                up_seconds=max(0.0, at - row["started_at"]),
                thread_seconds=float(sum(row["worker_seconds"].values())),
                idle_seconds=float(row["worker_seconds"].get("idle", 0.0)),
                cost=row["cost"],
                idle_cost=row["idle_cost"],
                prices=None if prices is None else json.dumps(prices, separators=(",", ":")),
            )
        )
