"""Runs of a job: computations with how long they took, what they cost, and where they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select, tuple_

from daskscope_service.costs.pricing import price_clusters
from daskscope_service.db.schema import cluster, computation
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.verdict import (
    OF_VERDICT,
    cluster_seconds,
    cluster_verdict,
    computation_seconds,
    computation_verdict,
)
from daskscope_service.queries.causes import among

#: The newest runs that a job is judged by, and that its page shows.
MOST_RUNS = 200
#: Runs that are counted at most.
MOST_COUNTED = 10_000
#: What an answer says of a run that is asked about by itself.
OF_RUN = (
    *("cluster", "cluster_name", "user", "status", "started_at", "duration", "task_seconds"),
    *("thread_seconds", "cost", "currency", "price_source", "tasks", "workers", "job"),
)

_OF_RUN = [
    computation.c[name]
    for name in (
        *("cluster", "id", "user", "status", "started_at", "stopped_at", "ended_at", "began_at"),
        *("tasks", "completed", "erred", "retried", "cancelled", "lost_runs", "blamed", "blames"),
        *("states", "asks", "seconds", "worker_seconds", "workers", "largest_output"),
        *("spilled_bytes", "unspilled_bytes", "transferred_bytes", "frames", "job"),
        "unrunnable_seconds",
    )
]
_OF_CLUSTER = [
    cluster.c[name]
    for name in {
        *("id", "name", "prices", "cost", "idle_cost", "worker_seconds", "gib_seconds"),
        *("gpu_seconds", *OF_VERDICT),
    }
]
#: What else is compared of clusters.
_TO_COMPARE = [
    cluster.c[name]
    for name in (
        *("environment", "settings", "host", "kind", "memory_limit", "deployment"),
        "peak_worker_memory",
    )
]


def newest_runs(
    scope: Scope, job: str, *, compared: bool = False, before: tuple[float, str] | None = None
) -> list[Item]:
    """Return the newest runs of a job, oldest first, at most :data:`MOST_RUNS`.

    Each has ``status``, ``duration``, ``thread_seconds`` of all workers meanwhile, ``task_seconds``
    that its tasks took, ``cost`` with ``currency`` and ``price_source``, and ``cluster_name``.
    ``compared``: the rows of clusters with it, as ``on``. ``before``: only those that began before
    the run of that start and id.
    """
    query = scope.select(computation, *_OF_RUN).where(computation.c.job == job)
    if before is not None:
        query = query.where(tuple_(computation.c.started_at, computation.c.id) < tuple_(*before))
    query = query.order_by(computation.c.started_at.desc(), computation.c.id.desc())
    return completed(scope, query.limit(MOST_RUNS), compared=compared)[::-1]


def some_runs(scope: Scope, keys: Sequence[tuple[str, str]]) -> list[Item]:
    """Return the runs of these clusters and ids, with all that is compared of them."""
    key = (computation.c.cluster, computation.c.id)
    return completed(scope, among(scope.select(computation, *_OF_RUN), key, keys), compared=True)


def count_runs(scope: Scope, job: str, since: float | None = None) -> int:
    """Return how many runs a job has that began since then, at most :data:`MOST_COUNTED`."""
    query = scope.select(computation, computation.c.id).where(computation.c.job == job)
    if since is not None:
        query = query.where(computation.c.started_at >= since)
    some = query.limit(MOST_COUNTED).subquery()
    return scope.connection.execute(select(func.count()).select_from(some)).scalar() or 0


def first_run_at(scope: Scope, job: str) -> float | None:
    """Return when the first run of a job began, None where it has none."""
    query = scope.select(computation, computation.c.started_at).where(computation.c.job == job)
    return scope.connection.execute(query.order_by(computation.c.started_at).limit(1)).scalar()


def completed(scope: Scope, query: Select[Any], *, compared: bool = False) -> list[Item]:
    """Return the computations of ``query`` as :func:`newest_runs` does, in its order."""
    runs = scope.items(query)
    columns = [*_OF_CLUSTER, *_TO_COMPARE] if compared else _OF_CLUSTER
    ids = sorted({run["cluster"] for run in runs})
    rows = scope.items(scope.select(cluster, *columns).where(cluster.c.id.in_(ids)))
    for row in rows:
        row["duration"] = cluster_seconds(row)
    clusters = {row["id"]: row for row in price_clusters(scope, rows)}
    found = []
    for run in runs:
        on = clusters.get(run["cluster"])
        if on is not None:  # it was removed a moment ago
            found.append(_completed(scope, run, on) | ({"on": on} if compared else {}))
    return found


def _completed(scope: Scope, run: Item, on: Item) -> Item:
    seconds = computation_seconds(run, on)
    verdict = cluster_verdict(on, scope.now, scope.silent_after)
    whole, all_threads = sum(run["worker_seconds"].values()), sum(on["worker_seconds"].values())
    priced = on["cost"] is not None and all_threads > 0 and whole > 0
    return run | {
        "status": computation_verdict(run, verdict, seconds).status,
        "duration": seconds,
        "cluster_name": on["name"],
        "thread_seconds": whole or None,
        "task_seconds": sum(run["seconds"].values()),
        "cost": on["cost"] / all_threads * whole if priced else None,
        "currency": on["prices"]["currency"] if priced else None,
        "price_source": on["price_source"] if priced else None,
    }
