"""Reads from time series what a cluster did in a period, for the rules of ``insight/findings``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from daskscope import names
from daskscope.protocol import MAX_COUNT
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.evidence import GATHERED, PARTS, Meanwhile, Run
from daskscope_service.telemetry.store import MOST_LINES, SeriesLine, SeriesStore, Unavailable

#: Activities are all of the threads' time only if the beats around the computation are at most this
#: many times as far apart as it took.
_LONGER = 1.25
#: Beats before and after a period within which its numbers arrive.
_BEATS = 3
#: Seconds that count as lately, and the least points of a mean.
_LATELY, _LEAST_POINTS = 60.0, 2
#: Seconds for which a line has one point. They are as few as possible: with a longer step, a point
#: just after the start of a computation could count as before it, depending on the time of day.
_STEP = 0.001

_GAUGES = (
    names.WORKER_THREADS,
    names.WORKER_COUNT,
    names.WORKER_CPU,
    names.TASK_COUNT,
    names.MEMORY_LIMIT,
    names.GPU_UTILIZATION,
    names.GPU_MEMORY_USED,
    names.GPU_MEMORY_LIMIT,
    names.SCHEDULER_CPU,
)
_COUNTERS = (names.SPILL_IO, names.TRANSFER_IO, names.TASK_TIME)
OF_CLUSTER = (names.CLUSTER_IDLE, names.CLIENT_COUNT, names.MEMORY_USED, *_GAUGES)

#: Activities that belong to no task, and so to a period rather than to a computation.
_OF_NO_TASK = ("idle", "paused", "unattributed")


class Series(defaultdict[str, list[SeriesLine]]):
    """Lines by the name of their metric; [] if a metric has none."""

    def __init__(self) -> None:
        super().__init__(list)


@dataclass(frozen=True, slots=True)
class Profiled:
    """What profiles saw: thread-seconds, the line that took most, and the share in waiting lines.

    ``waiting`` is None if lines of which that is unknown took most of the time.
    """

    seconds: float | None = None
    line: str | None = None
    waiting: float | None = None


def series_around(
    store: SeriesStore, scope: Scope, cluster_id: str, since: float, until: float, interval: float
) -> Series:
    """Return the series of a period: gauges over all of it, counters at its start and its end."""
    margin = _BEATS * interval
    series = read(store, scope, cluster_id, _GAUGES, since - margin, until + margin)
    series.update(read(store, scope, cluster_id, _COUNTERS, since - margin, since + margin))
    at_end = read(store, scope, cluster_id, _COUNTERS, until - margin, until + margin)
    for name, lines in at_end.items():
        series[name] = _joined(series[name], lines)
    return series


def read(
    store: SeriesStore,
    scope: Scope,
    cluster_id: str,
    metrics: Iterable[names.Metric],
    since: float,
    until: float,
) -> Series:
    """Return the lines of ``metrics``; none if the store does not answer."""
    wanted = [metric.name for metric in metrics]
    series = Series()
    with suppress(Unavailable):  # for the rules, nothing was measured then
        for name, lines in store.query(
            scope.workspace, cluster_id, wanted, since, until, _STEP
        ).items():
            series[name] = [_within(line) for line in lines]
    return series


def _within(line: SeriesLine) -> SeriesLine:
    """Return ``line`` without values that no cluster can measure: OTLP allows any number."""
    if all(0 <= value <= MAX_COUNT for value in line.values):
        return line
    points = zip(line.times, line.values, strict=True)
    kept = [(time, value) for time, value in points if 0 <= value <= MAX_COUNT]
    return replace(line, times=[time for time, _ in kept], values=[value for _, value in kept])


def _joined(first: Iterable[SeriesLine], then: Iterable[SeriesLine]) -> list[SeriesLine]:
    """Return the lines of two periods, with the points of both in one line each."""
    joined: dict[tuple[Any, ...], SeriesLine] = {}
    for line in (*first, *then):
        key = (*sorted(line.attributes.items()), line.field)
        before = joined.get(key)
        points = {} if before is None else dict(zip(before.times, before.values, strict=True))
        points |= dict(zip(line.times, line.values, strict=True))
        times = sorted(points)
        joined[key] = replace(line, times=times, values=[points[time] for time in times])
    return list(joined.values())


def values(lines: Iterable[SeriesLine]) -> list[float]:
    """Return the values of all ``lines``."""
    return [value for line in lines for value in line.values]


def _between(line: SeriesLine, since: float, until: float) -> list[float]:
    return [
        value
        for time, value in zip(line.times, line.values, strict=True)
        if since <= time / 1000 <= until
    ]


def _most(lines: Iterable[SeriesLine], since: float, until: float, **state: str) -> float | None:
    """Return the highest sum of ``lines`` at one time; see :func:`_together`."""
    return max(_together(lines, since, until, **state).values(), default=None)


def _together(
    lines: Iterable[SeriesLine], since: float, until: float, **state: str
) -> dict[float, float]:
    """Return the sum of ``lines`` by time, in seconds since the epoch.

    ``state`` selects lines: for example, ``worker="paused"``.
    """
    at: defaultdict[float, float] = defaultdict(float)
    for line in lines:
        if all(line.attributes.get(_ATTRIBUTES[key]) == value for key, value in state.items()):
            for time, value in zip(line.times, line.values, strict=True):
                if since <= time / 1000 <= until:
                    at[time / 1000] += value
    return dict(at)


#: The states of tasks that have not ended.
_NOT_DONE = ("waiting", "no-worker", "queued", "processing")

_ATTRIBUTES = {
    "task": names.TASK_STATE,
    "worker": names.WORKER_STATE,
    "memory": names.MEMORY_KIND,
}


def meanwhile_of_run(
    run: Run,
    series: Series,
    cluster: Item,
    interval: float,
    alone: bool,
    profiled: Profiled,
) -> Meanwhile:
    """Return what the cluster did while ``run`` ran.

    ``series`` is the result of :func:`series_around`.
    """
    since, until = run.started_at, run.ended_at
    late = until + 2 * interval
    counts = series[names.TASK_COUNT.name]
    threads = _most(series[names.WORKER_THREADS.name], since, late)
    workers = _most(series[names.WORKER_COUNT.name], since, late)
    cores = _most(series[names.WORKER_CPU.name], since, late)
    use, memory_share, points = gpus(series, since, until)
    # A counter that appears for the first time was 0 before, but only if something was measured
    # before.
    born = since - float(cluster["started_at"]) <= _BEATS * interval
    seen = [time / 1000 for line in series[names.WORKER_COUNT.name] for time in line.times]
    measured = (born or any(time <= since for time in seen)) and any(
        time >= until - interval for time in seen
    )
    spilled, transferred = (
        _grown(series[metric.name], since, late) for metric in (names.SPILL_IO, names.TRANSFER_IO)
    )
    activities, whole = _activities(run, series, interval, measured, alone)
    counts_of_workers = _together(series[names.WORKER_COUNT.name], since - interval, until)
    first, gathered = _gathering(counts_of_workers, since)
    most_waiting, not_done_then = _waiting(counts, since, until)
    lately = _most(series[names.WORKER_CPU.name], max(since, until - _LATELY), late)
    return Meanwhile(
        alone=alone,
        threads=threads or _never_changed(cluster, "threads"),
        workers=workers or _never_changed(cluster, "workers"),
        activities=activities,
        whole=whole,
        # Dask reports no counter before the first byte: no line means 0 bytes.
        spilled=_of(spilled, names.SPILL_DIRECTION, "write", measured),
        unspilled=_of(spilled, names.SPILL_DIRECTION, "read", measured),
        transferred=sum(transferred.values()) if measured and transferred else None,
        most_waiting=most_waiting,
        not_done_then=not_done_then,
        most_unrunnable=_most(counts, since, until, task="no-worker"),
        worker_cpu=None if cores is None or not workers else cores / workers,
        profiled=profiled.seconds,
        line=profiled.line,
        waiting_lines=profiled.waiting,
        gpu_utilization=use,
        gpu_memory_share=memory_share,
        gpu_points=points,
        busy_seconds=run.compute,
        scheduler_cpu=_mean(
            series[names.SCHEDULER_CPU.name], since + interval / 2, until + interval
        ),
        first_workers=first,
        gathered=gathered,
        worker_cpu_now=None if lately is None or not workers else lately / workers,
    )


def _mean(lines: Iterable[SeriesLine], since: float, until: float) -> float | None:
    """Return the mean of the points of ``lines``; None if there are too few."""
    points = [value for line in lines for value in _between(line, since, until)]
    return sum(points) / len(points) if len(points) >= _LEAST_POINTS else None


def _waiting(
    counts: Sequence[SeriesLine], since: float, until: float
) -> tuple[float | None, float | None]:
    """Return the most tasks that waited for others at once, and how many were not done then."""
    waiting = _together(counts, since, until, task="waiting")
    if not waiting:
        return None, None
    at = max(waiting, key=lambda time: waiting[time])
    not_done = (_together(counts, at, at, task=state) for state in _NOT_DONE)
    return waiting[at], sum(sum(points.values()) for points in not_done)


def _gathering(workers: Mapping[float, float], since: float) -> tuple[float | None, float | None]:
    """Return the first number of workers, and the seconds until :data:`GATHERED` of them had come.

    Both are None if nothing was measured.
    """
    if not workers:
        return None, None
    before = [time for time in workers if time <= since]
    first = workers[max(before) if before else min(workers)]
    enough = GATHERED * max(workers.values())
    return first, max(min(time for time, count in workers.items() if count >= enough) - since, 0.0)


def unmanaged(series: Series, since: float, until: float) -> list[float]:
    """Return the least unmanaged memory per worker, in bytes, in each of :data:`PARTS` equal parts.

    Return [] if one of the parts of the period has no point.
    """
    length = (until - since) / PARTS
    workers = _together(series[names.WORKER_COUNT.name], since, until)
    memory = _together(series[names.MEMORY_USED.name], since, until, memory="unmanaged")
    least: list[float | None] = [None] * PARTS
    for time, value in memory.items():
        if count := workers.get(time):
            part = min(int((time - since) / length), PARTS - 1) if length > 0 else 0
            before = least[part]
            least[part] = value / count if before is None else min(before, value / count)
    known = [value for value in least if value is not None]
    return known if len(known) == PARTS else []


def _never_changed(cluster: Item, what: str) -> float | None:
    """Return the peak of ``what``, if the cluster had as many all the time as far as is known."""
    most: int = cluster[f"peak_{what}"]
    return float(most) or None if cluster[what] in (most, 0) else None


def gpus(series: Series, since: float, until: float) -> tuple[float | None, float | None, int]:
    """Return the GPUs' highest utilisation, how full their memory was, and the number of points.

    The number matters because nobody knows what the GPUs did between points.
    """
    used = [v for line in series[names.GPU_UTILIZATION.name] for v in _between(line, since, until)]
    memory = _most(series[names.GPU_MEMORY_USED.name], since, until)
    limit = _most(series[names.GPU_MEMORY_LIMIT.name], since, until)
    share = memory / limit if memory is not None and limit else None
    return max(used, default=None), share, len(used)


def _of(
    grown: Mapping[tuple[str, ...], float], attribute: str, value: str, measured: bool
) -> float | None:
    if not measured:
        return None
    return sum(amount for key, amount in grown.items() if f"{attribute}={value}" in key)


def _grown(lines: Iterable[SeriesLine], since: float, until: float) -> dict[tuple[str, ...], float]:
    """Return by how much each counter grew from the last point before ``since`` to ``until``."""
    grown: dict[tuple[str, ...], float] = {}
    for line in lines:
        before, after = _ends(line, since, until)
        if after is not None:
            key = tuple(f"{name}={value}" for name, value in sorted(line.attributes.items()))
            grown[key] = max(after - (before or 0.0), 0.0)
    return grown


def _ends(line: SeriesLine, since: float, until: float) -> tuple[float | None, float | None]:
    before = after = None
    for time, value in zip(line.times, line.values, strict=True):
        if time / 1000 <= since:
            before = value
        if time / 1000 <= until:
            after = value
    return before, after


def _activities(
    run: Run, series: Series, interval: float, measured: bool, alone: bool
) -> tuple[dict[str, float], bool]:
    """Return thread-seconds by activity while a computation ran, and whether they are complete.

    Counters are known only at beats. If these are far from the computation's start and end,
    activities that belong to no task are left out; and all are if another computation ran, too.
    """
    lines = series[names.TASK_TIME.name]
    if not measured or not lines or len(lines) >= MOST_LINES:
        return {}, False
    times = sorted({time / 1000 for line in lines for time in line.times})
    if not times:
        return {}, False
    begin = max((time for time in times if time <= run.started_at), default=run.started_at)
    end = min((time for time in times if time >= run.ended_at), default=times[-1])
    whole = end - begin <= _LONGER * run.duration and end >= run.ended_at - interval / 2
    if not whole and not alone:
        return {}, False
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        before, after = _ends(line, run.started_at, end)
        grown = (after or 0.0) - (before or 0.0)
        prefix = line.attributes.get(names.TASK_PREFIX, "")
        activity = line.attributes.get(names.TASK_ACTIVITY, "other")
        if grown > 0 and (whole or prefix or activity not in _OF_NO_TASK):
            seconds[activity] += grown
    return dict(seconds), whole
