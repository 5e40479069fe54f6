"""Brings the usage of clusters that fell silent up to their last heartbeat.

While a cluster runs, its row of ``usage`` is behind by up to a minute, and the row of its last
heartbeat is written only if that says that it stopped. So of a cluster whose scheduler was killed,
the last minute would never count.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from sqlalchemy import Engine, RowMapping, Select, and_, func, select, tuple_

from daskscope.protocol import Prices
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, usage, workspace
from daskscope_service.ingest.cluster_rows import (
    OPERATOR_COST,
    UsageUpsert,
    day_of_usage,
    prices_of_usage,
)
from daskscope_service.periodic import in_each

#: The most clusters of a workspace that are brought up to date together.
_TOGETHER = 1000

#: Columns that a cluster and its usage share.
_SAME = ("seq", "user", "thread_seconds", "cost", "idle_cost", "gib_seconds", "gpu_seconds")
_OTHERS = ("id", "status_at", "last_seen_at", "thread_idle_seconds", "prices")


class LastUsage:
    """Brings the usage of silent clusters up to date in rounds, in all workspaces.

    ``keeps_costs``: as of :class:`~daskscope_service.ingest.heartbeat.BeatStore`. If several
    processes do it at once, they write the same rows.
    """

    def __init__(self, engine: Engine, silent_after: float, *, keeps_costs: bool = False) -> None:
        self._engine = engine
        self._silent_after = silent_after
        self._usage = UsageUpsert(engine, keep=OPERATOR_COST if keeps_costs else ())
        # Clusters that were last heard before then are up to date.
        self._since = 0.0

    def round(self) -> int:
        """Bring usage up to date; return for how many clusters."""
        until = time.time() - self._silent_after
        with self._engine.connect() as connection:
            names = connection.execute(select(workspace.c.id)).scalars().all()
        done = in_each(names, lambda name: self._workspace(name, until))
        # Not ``until``: heartbeats that came before it may be stored only now.
        self._since = until - self._silent_after
        return done

    def _workspace(self, name: str, until: float) -> int:
        done, reached = 0, (0.0, "")
        while True:
            query = self._behind(name, until, reached)
            with self._engine.connect() as connection:
                behind = connection.execute(query).mappings().all()
            if not behind:
                return done
            with writing(self._engine) as connection:
                self._usage.run(connection, [self._row(name, row) for row in behind])
            done += len(behind)
            reached = (behind[-1]["cluster_started_at"], behind[-1]["id"])

    def _behind(self, name: str, until: float, reached: tuple[float, str]) -> Select[Any]:
        """Return a SELECT of silent clusters whose usage is not that of their last heartbeat.

        They come after ``reached``, a start and an id.
        """
        # The order of the index of clusters that have not stopped: there may be a million others.
        place = tuple_(cluster.c.started_at, cluster.c.id)
        same = and_(usage.c.workspace == cluster.c.workspace, usage.c.cluster == cluster.c.id)
        last_day = select(func.max(usage.c.day)).where(same).correlate(cluster).scalar_subquery()
        columns = [cluster.c[key] for key in (*_SAME, *OPERATOR_COST, *_OTHERS)]
        return (
            select_in(name, cluster, *columns)
            .join(usage, and_(same, usage.c.day == last_day))
            # The cluster's own clock has set the first one.
            .add_columns(usage.c.started_at, cluster.c.started_at.label("cluster_started_at"))
            .where(
                cluster.c.stopped_at.is_(None),
                cluster.c.last_seen_at <= until,
                cluster.c.last_seen_at > self._since,
                usage.c.seq < cluster.c.seq,
                place > reached,
            )
            .order_by(cluster.c.started_at, cluster.c.id)
            .limit(_TOGETHER)
        )

    def _row(self, name: str, row: RowMapping) -> tuple[Any, ...]:
        prices = msgspec.convert(row["prices"], Prices | None)
        return self._usage.row(
            {key: row[key] for key in (*_SAME, *OPERATOR_COST, "started_at")}
            | {
                "workspace": name,
                "day": day_of_usage(row["status_at"], row["last_seen_at"]),
                "cluster": row["id"],
                "up_seconds": max(0.0, row["status_at"] - row["started_at"]),
                "idle_seconds": row["thread_idle_seconds"],
                "prices": prices_of_usage(prices),
            }
        )
