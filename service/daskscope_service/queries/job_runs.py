"""Runs of a job: computations with their durations, their costs, and their clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from sqlalchemy import Connection, func, select, tuple_, update

from daskscope_service.costs.pricing import OPERATOR_COST, price_clusters
from daskscope_service.db.row_values import columns_in
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, computation
from daskscope_service.db.schema import job as job_table
from daskscope_service.db.scope import MOST_BYTES, Item, Scope, read_in_parts, weight
from daskscope_service.insight.verdict import (
    OF_VERDICT,
    cluster_verdict,
    computation_seconds,
    computation_status,
)
from daskscope_service.insight.views import JobRun
from daskscope_service.queries.among import among

#: The most runs, the newest, by which a job is summarised and that its page shows.
MOST_RUNS = 200
#: Later than each run: all of them get their jobs anew.
ALL_RUNS = 1e12
#: The highest number of runs that is counted.
MOST_COUNTED = 10_000
#: Jobs that one statement marks.
_UPDATED_TOGETHER = 1_000
#: The fields of a run in answers about single runs.
OF_RUN = (
    *("cluster", "cluster_name", "user", "status", "started_at", "duration", "task_seconds"),
    *("thread_seconds", "cost", "currency", "price_source", "tasks", "workers", "job"),
)

_COMPARED = columns_in(computation, JobRun)
_OF_RUN = [column for column in _COMPARED if column is not computation.c.frames]
_OF_CLUSTER = [
    cluster.c[name]
    for name in {
        *("id", "name", "prices", "cost", "idle_cost", "worker_seconds", "gib_seconds"),
        *("gpu_seconds", *OF_VERDICT),
    }
] + OPERATOR_COST
#: The columns of clusters about their size, and those that only comparisons read.
_SIZES = [
    cluster.c[name]
    for name in (
        *("memory_limit", "peak_worker_memory", "peak_memory_used", "peak_workers", "workers"),
    )
]
_TO_COMPARE = [
    *_SIZES,
    *(cluster.c[name] for name in ("environment", "settings", "host", "kind", "deployment")),
]


def newest_runs(
    scope: Scope,
    job: str,
    *,
    compared: bool = False,
    sized: bool = False,
    before: tuple[float, str] | None = None,
    up_to: tuple[float, str] | None = None,
    most: int = MOST_RUNS,
) -> list[JobRun]:
    """Return the newest runs of a job, oldest first, at most ``most``.

    They are fewer if they, or their clusters, take more than :data:`MOST_BYTES`. ``compared`` adds
    what only comparisons need, and ``sized`` the sizes of their clusters. ``before`` is the start
    and id of a run: only runs that began before it are returned; ``up_to`` includes it.
    """
    query = scope.select(computation, *(_COMPARED if compared else _OF_RUN)).where(
        computation.c.job == job
    )
    if before is not None:
        query = query.where(tuple_(computation.c.started_at, computation.c.id) < tuple_(*before))
    if up_to is not None:
        query = query.where(tuple_(computation.c.started_at, computation.c.id) <= tuple_(*up_to))
    query = query.order_by(computation.c.started_at.desc(), computation.c.id.desc())
    runs, _ = scope.first_items(query, most)
    return _all_completed(scope, runs, compared=compared, sized=sized)[::-1]


def some_runs(
    scope: Scope, keys: Sequence[tuple[str, str]], *, compared: bool = True
) -> list[JobRun]:
    """Return the runs with these keys (cluster, id). ``compared``: as for :func:`newest_runs`."""
    key = (computation.c.cluster, computation.c.id)
    query = among(scope.select(computation, *(_COMPARED if compared else _OF_RUN)), key, keys)
    return _all_completed(scope, scope.items(query), compared=compared)


def count_runs(scope: Scope, job: str, since: float | None = None) -> int:
    """Return how many runs of a job began since ``since``, at most :data:`MOST_COUNTED`."""
    query = scope.select(computation, computation.c.id).where(computation.c.job == job)
    if since is not None:
        query = query.where(computation.c.started_at >= since)
    some = query.limit(MOST_COUNTED).subquery()
    return scope.connection.execute(select(func.count()).select_from(some)).scalar() or 0


def first_run_at(scope: Scope, job: str) -> float | None:
    """Return when the first run of a job began, None if it has no run."""
    query = scope.select(computation, computation.c.started_at).where(computation.c.job == job)
    return scope.connection.execute(query.order_by(computation.c.started_at).limit(1)).scalar()


def sum_up_jobs_of(
    connection: Connection, workspace: str, runs: Sequence[tuple[str, str]], due_at: float
) -> None:
    """Have the jobs of these runs summarised again: their findings are part of the summary."""
    key = (computation.c.cluster, computation.c.id)
    jobs = set()
    for first in range(0, len(runs), _UPDATED_TOGETHER):
        some = runs[first : first + _UPDATED_TOGETHER]
        ids = among(select_in(workspace, computation, computation.c.job), key, some)
        jobs |= {id for id in connection.execute(ids).scalars() if id is not None}
    sum_up_jobs(connection, workspace, jobs, due_at)


def sum_up_jobs(connection: Connection, workspace: str, ids: Iterable[str], due_at: float) -> None:
    """Have the jobs with these ids summarised again.

    ``due_at`` must be another time than they are due at: one that is summed up at this moment is
    then summed up again.
    """
    _mark(connection, workspace, ids, {"due_at": due_at})


def assign_runs_anew(connection: Connection, workspace: str, ids: Iterable[str]) -> None:
    """Have the namer find the jobs of all runs of these jobs anew: a correction has changed."""
    _mark(connection, workspace, ids, {"assign_before": ALL_RUNS})


def _mark(
    connection: Connection, workspace: str, ids: Iterable[str], values: dict[str, float]
) -> None:
    ordered = sorted(ids)
    for first in range(0, len(ordered), _UPDATED_TOGETHER):
        some = ordered[first : first + _UPDATED_TOGETHER]
        lock_jobs(connection, workspace, some)
        this = (job_table.c.workspace == workspace, job_table.c.id.in_(some))
        connection.execute(update(job_table).where(*this).values(values))


def lock_jobs(connection: Connection, workspace: str, ids: Sequence[str]) -> None:
    """Lock these jobs until the transaction ends, in one order: no two wait for each other."""
    these = select_in(workspace, job_table, job_table.c.id).where(job_table.c.id.in_(ids))
    connection.execute(these.order_by(job_table.c.id).with_for_update()).all()


def _all_completed(
    scope: Scope, runs: Sequence[Item], *, compared: bool, sized: bool = False
) -> list[JobRun]:
    """Return ``runs`` with status, duration and cost, which depend on their clusters.

    Leave out the rest from the first run whose cluster was not read: clusters may take too many
    bytes.
    """
    more = _TO_COMPARE if compared else _SIZES if sized else ()
    query = scope.select(cluster, *_OF_CLUSTER, *more)
    clusters: dict[str, Item | None] = {}
    size = 0
    for ids, rows in read_in_parts(
        list(dict.fromkeys(run["cluster"] for run in runs)),
        lambda some: scope.items(query.where(cluster.c.id.in_(some))),
    ):
        size += sum(map(weight, rows))
        clusters |= dict.fromkeys(ids)
        clusters |= {row["id"]: row for row in price_clusters(scope, rows)}
        if size > MOST_BYTES:
            break
    completed = []
    for run in takewhile(lambda run: run["cluster"] in clusters, runs):
        on = clusters[run["cluster"]]
        if on is not None:  # it was removed a moment ago
            completed.append(
                _completed(scope, run, on, compared=compared, with_on=compared or sized)
            )
    return completed


def _completed(scope: Scope, run: Item, on: Item, *, compared: bool, with_on: bool) -> JobRun:
    seconds = computation_seconds(run, on)
    verdict = cluster_verdict(on, scope.now, scope.silent_after)
    whole, all_threads = sum(run["worker_seconds"].values()), sum(on["worker_seconds"].values())
    # A sender may report less time for the cluster than for the run, or almost none.
    priced = on["cost"] is not None and all_threads > 0 and whole > 0
    made = {
        "status": computation_status(run, verdict),
        "duration": seconds,
        "cluster_name": on["name"],
        "thread_seconds": whole or None,
        "task_seconds": sum(run["seconds"].values()),
        "cost": on["cost"] * min(whole / all_threads, 1.0) if priced else None,
        "currency": on["prices"]["currency"] if priced else None,
        "price_source": on["price_source"] if priced else None,
        "frames": run["frames"] if compared else None,
        "on": on if with_on else None,
    }
    return JobRun.of(run | made)
