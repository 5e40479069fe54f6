"""Metrics of the service that are read from the database whenever ``/metrics`` is."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, Text, cast, func, select
from sqlalchemy.exc import DBAPIError

from daskscope_service.db import schema
from daskscope_service.db.rows import select_in
from daskscope_service.service_metrics import NAMESPACE

#: Seconds after a cluster's last heartbeat until its drops are not reported any more.
_RECENT_SECONDS = 60 * 60

#: Clusters send the kinds of drops as text: only a few kinds, and only simple names, are reported.
_MOST_KINDS = 50
_KIND = re.compile(r"[a-z][a-z -]{0,39}")
_OTHER = "other"


class DatabaseCollector(Collector):
    """Metrics that are read from the database at each request. Add it to a registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; if the database does not answer, only ``database_up``."""
        began = time.perf_counter()
        try:
            with self._engine.connect() as connection:
                families = [
                    _size(connection),
                    *_last_removal(connection, time.time()),
                    *_of_clusters(connection, time.time()),
                ]
        except DBAPIError:
            yield _gauge("database_up", "Whether the database answers: 1 or 0.", 0)
            return
        yield _gauge("database_up", "Whether the database answers: 1 or 0.", 1)
        yield _gauge(
            "database_read_seconds",
            "Time that the database took to answer this scrape.",
            time.perf_counter() - began,
        )
        yield from families


def _of_clusters(connection: Connection, now: float) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        f"{NAMESPACE}_last_beat_age_seconds",
        "Time since the last stored heartbeat, for workspaces that have one.",
        labels=["workspace"],
    )
    drops: Counter[str] = Counter()
    cluster = schema.cluster
    for workspace in connection.execute(select(schema.workspace.c.id)).scalars().all():
        last = connection.execute(
            select_in(workspace, cluster, func.max(cluster.c.last_seen_at))
        ).scalar()
        if last is None:
            continue
        age.add_metric([workspace], max(0.0, now - last))
        if last < now - _RECENT_SECONDS:
            continue
        texts = select_in(workspace, cluster, cast(cluster.c.drops, Text)).where(
            cluster.c.last_seen_at >= now - _RECENT_SECONDS,
            cast(cluster.c.drops, Text) != "{}",
        )
        for text in connection.execute(texts).scalars():
            for what, count in json.loads(text).items():
                known = _KIND.fullmatch(what) and (what in drops or len(drops) < _MOST_KINDS)
                drops[what if known else _OTHER] += count
    yield age
    family = GaugeMetricFamily(
        f"{NAMESPACE}_cluster_drops",
        "Items that clusters heard from within the hour left out since they started.",
        labels=["what"],
    )
    for what, count in sorted(drops.items()):
        family.add_metric([what], count)
    yield family


def _last_removal(connection: Connection, now: float) -> Iterator[Metric]:
    lease = schema.lease
    done = connection.execute(select(lease.c.done_at).where(lease.c.name == "retention")).scalar()
    if done is not None:
        what = "Time since any process last finished removing old data."
        yield _gauge("removal_age_seconds", what, max(0.0, now - done))


def _size(connection: Connection) -> Metric:
    database = connection.engine.url.database
    if connection.dialect.name == "sqlite":
        files = [Path(f"{database}{suffix}") for suffix in ("", "-wal")] if database else []
        size: float = sum(file.stat().st_size for file in files if file.is_file())
    else:
        asked = select(func.pg_database_size(func.current_database()))
        size = connection.execute(asked).scalar_one()
    return _gauge("database_size_bytes", "Size of the database on its disk.", size)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{NAMESPACE}_{name}", help, value)
