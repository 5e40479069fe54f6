"""Reads the evidence for the rules of ``insight/findings``: rows, time series and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Column, Table, func, or_

from daskscope import names
from daskscope_service.costs.pricing import price_clusters
from daskscope_service.db import schema
from daskscope_service.db.scope import Item, Scope, Selection
from daskscope_service.insight.findings.evidence import (
    ClusterState,
    Evidence,
    FailureGroup,
    Group,
    Holder,
    Loss,
    Meanwhile,
    Run,
    Share,
    Slower,
)
from daskscope_service.insight.flame import lines_of, merge, waits
from daskscope_service.insight.jobs.differences import changes_in_words
from daskscope_service.insight.jobs.sizing import Sizing, sizing_of
from daskscope_service.insight.jobs.summary import has_passed
from daskscope_service.insight.progress import done_of
from daskscope_service.insight.stuck import waiting_for_worker
from daskscope_service.insight.verdict import (
    cluster_seconds,
    cluster_verdict,
    computation_seconds,
    computation_verdict,
)
from daskscope_service.insight.wording import file_name
from daskscope_service.queries import meanwhile, sequences
from daskscope_service.queries.computations import MOST_FAILURES, MOST_GROUPS
from daskscope_service.queries.job_runs import newest_runs, some_runs
from daskscope_service.queries.logs import LEVELS
from daskscope_service.queries.profiles import newest_profiles
from daskscope_service.queries.thresholds import thresholds_of
from daskscope_service.telemetry.store import SeriesStore

#: The most worker losses of a subject, and the most profiles, that are read.
_MOST_LOSSES, _MOST_PROFILES = 200, 9
#: The most unfinished computations of a cluster that are read because their tasks waited.
_MOST_WAITED = 20
#: The most runs of a job that are read for the size of its workers; some may not have passed.
_MOST_RUNS = 40
#: The most other computations that are checked for whether they ran at the same time.
_MOST_OTHERS = 200
#: A computation ran alone if others ran for at most this share of its time.
_ALONE = 0.1
#: Seconds after the end of a computation in which the scheduler may notice its worker losses.
_NOTED_LATE = 5.0
#: Seconds after the end of a computation in which the scheduler may note its last exception. Later
#: ones are of lost results that were computed again.
_RAISED_LATE = 1.0
#: The kind of clusters whose scheduler has a process of its own.
_ALONE_IN_PROCESS = "dask scheduler"
#: Seconds before and after the start of a computation in which a warning is about its graph, the
#: beginning of that warning, and the most log records that are read.
_LOGGED_AROUND, _COLLISION, _MOST_RECORDS = 2.0, "Detected different `run_spec`", 50


def of_computation(scope: Scope, store: SeriesStore, cluster_id: str, id: str) -> Evidence | None:
    """Return the evidence about one computation, or None if the workspace has no such."""
    table = schema.computation
    rows = scope.items(scope.select(table).where(table.c.cluster == cluster_id, table.c.id == id))
    cluster = _cluster(scope, cluster_id)
    if not rows or cluster is None:
        return None
    run = _run(scope, rows[0], cluster)
    interval = float(cluster["interval"])
    since, until = run.started_at, run.ended_at
    alone = _alone(scope, run, cluster_id)
    series = meanwhile.series_around(store, scope, cluster_id, since, until, interval)
    profiled = _profiled(scope, run, cluster_id)
    then = meanwhile.meanwhile_of_run(run, series, cluster, interval, alone, profiled)
    thresholds = thresholds_of(scope.connection, scope.workspace)
    return Evidence(
        cluster=_state(cluster, scope, series),
        meanwhile=replace(then, collisions=_collisions(scope, run, cluster_id)),
        run=run,
        losses=_losses(scope, cluster_id, since, until + _NOTED_LATE),
        causes=_causes(scope, run, cluster_id),
        interval=interval,
        slower=_slower(scope, rows[0]),
        sizing=_sizing(scope, rows[0], run, thresholds),
        thresholds=thresholds,
    )


def of_cluster(
    scope: Scope, store: SeriesStore, cluster_id: str, *, briefly: bool = False
) -> Evidence | None:
    """Return the evidence about one cluster, or None if the workspace has no such.

    With ``briefly``, what only a few rules need is not read while the cluster is up: time series,
    loops, and workers that came and went.
    """
    cluster = _cluster(scope, cluster_id)
    if cluster is None:
        return None
    since = float(cluster["started_at"])
    until = since + cluster_seconds(cluster)
    interval = float(cluster["interval"])
    prices = (cluster["prices"] or {}).get("per_hour", {})
    priced = prices.get("gib") and cluster["price_source"] != "list"
    brief = briefly and cluster["stopped_at"] is None
    if brief and not cluster["gpu"] and not priced:
        series = meanwhile.Series()
    else:
        of_all = meanwhile.OF_CLUSTER
        series = meanwhile.read(
            store, scope, cluster_id, of_all, since - interval, until + interval
        )
    idle = meanwhile.values(series[names.CLUSTER_IDLE.name])
    if cluster["idle_seconds"] is not None:
        idle.append(cluster["idle_seconds"])
    clients = meanwhile.values(series[names.CLIENT_COUNT.name])
    use, share, points = meanwhile.gpus(series, since, until)
    return Evidence(
        cluster=_state(cluster, scope, series),
        meanwhile=Meanwhile(
            gpu_utilization=use,
            gpu_memory_share=share,
            gpu_points=points,
            busy_seconds=cluster["worker_seconds"].get("busy"),
            idle_longest=max(idle, default=None),
            most_clients=max(clients, default=None),
            unmanaged=meanwhile.unmanaged(series, since, until),
        ),
        losses=_losses(scope, cluster_id, None, None),
        interval=interval,
        loops=None if brief else sequences.loops(scope, cluster_id),
        coming=None if brief else sequences.worker_churn(scope, cluster_id),
        waited=_waited(scope, cluster),
        thresholds=thresholds_of(scope.connection, scope.workspace),
    )


# --- rows -----------------------------------------------------------------------------------------


def _cluster(scope: Scope, id: str) -> Item | None:
    table = schema.cluster
    rows = scope.items(scope.select(table).where(table.c.id == id))
    return next(iter(price_clusters(scope, rows)), None)


def _state(cluster: Item, scope: Scope, series: meanwhile.Series) -> ClusterState:
    prices = cluster["prices"] or {}
    limits = meanwhile.values(series[names.MEMORY_LIMIT.name])
    limit = max([*limits, cluster["memory_limit"] or 0.0])
    if cluster["workers"]:
        # Some may have left since: where limits were not measured, those had as much as the others.
        most_workers = max(cluster["workers"], cluster["peak_workers"])
        limit = max(limit, cluster["memory_limit"] / cluster["workers"] * most_workers)
    gpu = cluster["gpu"] or {}
    measured = bool(meanwhile.values(series[names.GPU_UTILIZATION.name]))
    made = {
        "status": cluster_verdict(cluster, scope.now, scope.silent_after).status,
        "peak_memory": cluster["peak_memory_used"],
        "memory_limit": round(limit) or None,
        "held_by": cluster["held_by"] or {},
        "mismatches": [one["package"] for one in cluster["mismatches"]],
        # Workers have left: if any GPU was measured, they are taken to have had one each.
        "gpu_workers": gpu.get("workers") or (cluster["peak_workers"] if measured else 0),
        "prices": prices.get("per_hour", {}),
        "currency": prices.get("currency"),
        "connected": [Holder(**holder) for holder in cluster["connected"]],
        "in_client": False if cluster["kind"] == _ALONE_IN_PROCESS else None,
    }
    return ClusterState(**_same(ClusterState, cluster) | made)


def _run(scope: Scope, row: Item, cluster: Item) -> Run:
    seconds = computation_seconds(row, cluster)
    verdict = computation_verdict(
        row, cluster_verdict(cluster, scope.now, scope.silent_after), seconds
    )
    of_it = {"cluster": row["cluster"], "computation": row["id"]}
    ended = row["stopped_at"] is not None or row["ended_at"] is not None
    until = row["started_at"] + seconds + _RAISED_LATE if ended else None
    made = {
        "status": verdict.status,
        "duration": seconds,
        "done": done_of(row),
        "groups": _groups(scope, **of_it),
        "failures": _failures(scope, **of_it, until=until),
        "shares": [Share(**share) for share in row["worker_shares"]],
    }
    return Run(**_same(Run, row) | made)


def _same(kind: type, row: Item) -> Item:
    """Return the items of ``row`` that are fields of ``kind``."""
    return {field.name: row[field.name] for field in fields(kind) if field.name in row}


def _columns(table: Table, kind: type) -> list[Column[Any]]:
    return [table.c[field.name] for field in fields(kind)]


def _waited(scope: Scope, cluster: Item) -> list[Run]:
    """Return the unfinished computations of a cluster whose tasks waited, the longest first.

    They waited because no worker could run them. While the cluster is up, these are computations
    that run, and may have waited for 0 seconds so far: of these the longest alone is read. Of
    others, it is at most :data:`_MOST_WAITED`.
    """
    table = schema.computation
    query = scope.select(table).where(table.c.cluster == cluster["id"])
    is_up = cluster_verdict(cluster, scope.now, scope.silent_after).status == "running"
    if is_up:
        held = cluster["held_by"] or {}
        if not waiting_for_worker(held, cluster["workers"], unrunnable="unrunnable"):
            return []
        query = query.where(table.c.status == "running", table.c.unrunnable_seconds.is_not(None))
    else:
        query = query.where(
            table.c.status.in_(("running", "cancelled")), table.c.unrunnable_seconds > 0
        )
    query = query.order_by(table.c.unrunnable_seconds.desc(), table.c.id)
    rows = scope.items(query.limit(1 if is_up else _MOST_WAITED))
    return [_run(scope, row, cluster) for row in rows]


def _groups(scope: Scope, *, cluster: str, computation: str) -> list[Group]:
    table = schema.task_group
    query = scope.select(table, *_columns(table, Group)).where(
        table.c.cluster == cluster, table.c.computation == computation
    )
    rows, _ = scope.first_items(query.order_by(table.c.name), MOST_GROUPS)
    return [Group(**row) for row in rows]


def _slower(scope: Scope, row: Item) -> Slower | None:
    """Return the last change of the job before a computation, if it made runs slower."""
    if row["job"] is None:
        return None
    table = schema.job
    query = scope.select(table, table.c.change, table.c.level).where(table.c.id == row["job"])
    last, level = scope.connection.execute(query).one_or_none() or (None, None)
    changes = [] if last is None else [*last.get("earlier", ()), last]
    came = [one for one in changes if one.get("at", 0.0) <= row["started_at"]]
    if not came or came[-1]["after"] <= came[-1]["before"]:
        return None
    change = came[-1]
    of = schema.computation
    first = (change["cluster"], change["computation"])
    before = scope.connection.execute(
        scope.select(of, of.c.cluster).where(
            of.c.id == change["run_before"], of.c.job == row["job"]
        )
    ).scalar()
    candidates: list[str] = []
    tasks_before: int | None = None
    tasks_since: int | None = None
    if before is not None:
        some = {(one.cluster, one.id): one for one in some_runs(
            scope, [first, (before, change["run_before"])]
        )}  # fmt: skip
        if len(some) == 2:
            last_before = some[before, change["run_before"]]
            tasks_before, tasks_since = last_before.tasks, some[first].tasks
            candidates = changes_in_words(last_before, some[first])
    return Slower(
        before=change["before"],
        after=change["after"],
        runs_before=change["runs_before"],
        runs_after=change["runs_after"],
        chance=change["chance"],
        run_before=change["run_before"],
        candidates=candidates,
        tasks_before=tasks_before,
        tasks_since=tasks_since,
        by_shape=level == "shape",
    )


def _sizing(scope: Scope, row: Item, run: Run, limits: Mapping[str, float]) -> Sizing | None:
    """Return the size that the runs of a job up to this one propose, if this one passed."""
    if row["job"] is None or run.status != "finished":
        return None
    up_to = (run.started_at, run.id)
    runs = newest_runs(scope, row["job"], sized=True, up_to=up_to, most=_MOST_RUNS)
    return sizing_of(runs, limits) if runs and has_passed(runs[-1]) else None


def _failures(
    scope: Scope, *, cluster: str, computation: str, until: float | None
) -> list[FailureGroup]:
    """Return the exceptions of a computation, without those that first occurred after ``until``."""
    table = schema.failure
    query = scope.select(table, *_columns(table, FailureGroup)).where(
        table.c.cluster == cluster, table.c.computation == computation
    )
    if until is not None:
        query = query.where(table.c.first_at <= until)
    rows, _ = scope.first_items(query.order_by(table.c.fingerprint), MOST_FAILURES)
    return list(map(_failed, rows))


def _failed(row: Item) -> FailureGroup:
    return FailureGroup(**_same(FailureGroup, row))  # a message that cannot be decrypted is None


def _collisions(scope: Scope, run: Run, cluster_id: str) -> int | None:
    """Count Dask's warnings, around the start of ``run``, that two graphs use the same key.

    Return None if the service has no log records of the cluster: these may be stored elsewhere.
    """
    table = schema.log_record
    of_it = scope.select(table, table.c.body).where(table.c.cluster == cluster_id)
    if scope.connection.execute(of_it.limit(1)).first() is None:
        return None
    query = of_it.where(
        table.c.at >= run.started_at - _LOGGED_AROUND,
        table.c.at <= run.started_at + _LOGGED_AROUND,
        table.c.severity >= LEVELS["warning"],
    )
    rows = scope.items(query.order_by(table.c.at).limit(_MOST_RECORDS))
    return sum(_COLLISION in (row["body"] or "") for row in rows)


def _causes(scope: Scope, run: Run, cluster_id: str) -> tuple[FailureGroup, ...]:
    """Return the failures in other computations because of which tasks of ``run`` never ran."""
    blamed = [id for id in run.blames if id != run.id]
    if not blamed:
        return ()
    table = schema.failure
    query = (
        scope.select(table, *_columns(table, FailureGroup))
        .where(table.c.cluster == cluster_id, table.c.computation.in_(blamed))
        .order_by(table.c.last_at.desc(), table.c.fingerprint)
    )
    rows, _ = scope.first_items(query, MOST_FAILURES)
    failures = tuple(map(_failed, rows))
    # Prefer failures of the tasks that were needed: the computation may have others.
    needed = tuple(one for one in failures if run.blames.get(one.computation) == one.function)
    return needed or failures


def _losses(scope: Scope, cluster_id: str, since: float | None, until: float | None) -> list[Loss]:
    table = schema.worker_loss
    query = scope.select(table, *_columns(table, Loss)).where(
        table.c.cluster == cluster_id, table.c.expected.is_(False)
    )
    if since is not None:
        query = query.where(table.c.at >= since)
    if until is not None:
        query = query.where(table.c.at <= until)
    rows = scope.items(query.order_by(table.c.at.desc()).limit(_MOST_LOSSES))
    return [Loss(**row) for row in rows]


def _alone(scope: Scope, run: Run, cluster_id: str) -> bool:
    """Return whether others ran on the cluster for at most :data:`_ALONE` of this one's time."""
    table = schema.computation
    until = func.coalesce(table.c.stopped_at, run.ended_at)
    rows = scope.connection.execute(
        scope.select(table, table.c.started_at, until)
        .where(table.c.cluster == cluster_id, table.c.id != run.id)
        .where(table.c.started_at < run.ended_at)
        .where(or_(table.c.stopped_at.is_(None), table.c.stopped_at > run.started_at))
        .order_by(table.c.started_at.desc())
        .limit(_MOST_OTHERS)
    ).all()
    together: float = sum(
        max(0.0, min(ended, run.ended_at) - max(started, run.started_at)) for started, ended in rows
    )
    return together <= _ALONE * run.duration


# --- profiles -------------------------------------------------------------------------------------


def _profiled(scope: Scope, run: Run, cluster_id: str) -> meanwhile.Profiled:
    which = Selection(cluster=cluster_id, since=run.started_at, until=run.ended_at)
    profiles = newest_profiles(scope, which, _MOST_PROFILES)
    if not profiles.items or profiles.more:
        return meanwhile.Profiled()
    merged = merge(profiles.items)
    lines = [line for line in lines_of(merged, merged.top) if line.self_seconds > 0]
    if not lines:
        return meanwhile.Profiled(merged.top.seconds)
    top = max(lines, key=lambda line: line.self_seconds)
    seconds: dict[bool | None, float] = {True: 0.0, False: 0.0, None: 0.0}
    for line in lines:
        seconds[waits(line)] += line.self_seconds
    known = seconds[None] <= max(seconds[True], seconds[False])
    waiting = seconds[True] / sum(seconds.values()) if known else None
    return meanwhile.Profiled(merged.top.seconds, f"{file_name(top.file)}:{top.line}", waiting)
