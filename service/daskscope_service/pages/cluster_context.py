"""What the cluster's threads and memory did while a computation ran on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from daskscope import names
from daskscope_service.insight.wording import size
from daskscope_service.telemetry.store import MOST_LINES, SeriesLine, SeriesStore

#: For how many seconds at either end of a computation a counter's total is searched.
_LOOK = 120.0
#: The totals found must span at least and at most this multiple of the computation's time.
#: Otherwise they miss too much of it, or include too much from before and after.
_LEAST, _MOST = 0.5, 1.25
#: The totals split a computation's own time by activity only if their ends are off by at most the
#: first share of its time, and their time with a task by at most the second share of its own.
#: Workers report the last tasks after its end, when its own threads have no task any more.
_OFF, _SAME = 0.25, 0.1
#: Seconds after the end until workers have reported what the last tasks did.
_REPORTED = 1.0

WIDTH, HEIGHT = 600, 110
_STEPS = 100

#: Dask's activities that are shown together, as one.
_TOGETHER = {
    "serialize": "serialise",
    "deserialize": "serialise",
    "compress": "serialise",
    "decompress": "serialise",
}

#: The states of threads that have no task.
_WITHOUT_A_TASK = ("idle", "paused")

#: Totals of counters by their attributes. The last part of each key is the activity.
Totals = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Threads:
    """Thread-seconds of all workers by activity, measured over ``length`` seconds.

    The period began and ended up to ``off`` seconds before or after the one that was asked for.
    """

    seconds: dict[str, float]
    length: float
    off: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """A drawing of the workers' memory: SVG paths of its parts, and amounts in bytes.

    ``highest`` is the peak of managed and unmanaged memory together, ``spilled`` the peak on disk.
    ``limit`` is the last known limit of all workers, None if it was not measured. ``top`` is the
    amount at the top of the drawing.
    """

    managed: str
    unmanaged: str
    highest: float
    highest_at: float
    spilled: float
    limit: float | None
    top: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def in_words(self) -> str:
        """The peak and, if it was measured, the limit: ``2 GiB of 8 GiB``."""
        of = "" if self.limit is None else f" of {size(self.limit)}"
        return f"{size(self.highest)}{of}"

    @property
    def limit_y(self) -> float | None:
        """The y of the limit; None if it was not measured or lies above the drawing."""
        if self.limit is None or self.limit > self.top:
            return None
        return self.height * (1 - self.limit / self.top)


def threads(
    store: SeriesStore,
    workspace: str,
    cluster: str,
    since: float,
    until: float,
    *,
    beyond: bool = False,
) -> Threads | None:
    """Return what the threads did from ``since`` to ``until``; None if that is not known.

    With ``beyond``, measure up to the first totals after ``until``: workers report a task's time
    only after the task has ended.

    Raises
    ------
    Unavailable
        The series are stored in another database, which does not answer.
    """
    look = min(until - since, _LOOK)

    def read(metric: names.Metric, begin: float) -> list[SeriesLine]:
        by_metric = store.query(
            workspace, cluster, [metric.name], begin, begin + look, max(1.0, look / 12)
        )
        return by_metric[metric.name]

    # A query returns at most MOST_LINES lines. If there may be more prefixes than that, use the
    # workers' busy and idle time, which has no prefixes.
    of_tasks = read(names.TASK_TIME, until - look)
    metrics = [names.WORKER_TIME]
    if of_tasks and len(of_tasks) < MOST_LINES:
        metrics = [names.TASK_TIME, names.TASK_RUNNING]
    before: dict[tuple[str, ...], float] = {}
    after: dict[tuple[str, ...], float] = {}
    times: list[int] = []
    for metric in metrics:
        for line in read(metric, since):
            before[_key(metric, line)] = line.values[0]
            times.append(line.times[0])
        for line in read(metric, until - look):
            after[_key(metric, line)] = line.values[-1]
            times.append(line.times[-1])
        if beyond:
            for line in read(metric, until + _REPORTED):
                after[_key(metric, line)] = line.values[0]
                times.append(line.times[0])
    length = (max(times) - min(times)) / 1000 if before else 0.0
    seconds = counter_growth(before, after)
    if not seconds or not _LEAST <= length / (until - since) <= _MOST:
        return None
    off = max(abs(min(times) / 1000 - since), abs(max(times) / 1000 - until))
    return Threads(seconds, length, off)


def of_computation(
    measured: Mapping[str, float], about: Threads | None, length: float
) -> Threads | None:
    """Return what the threads did in the ``length`` seconds of a computation.

    ``measured`` are thread-seconds of exactly that time by state, empty if not known. ``about``
    has the activities of about that time: those with a task only split the measured busy time, and
    only where both are of the same period.
    """
    if sum(measured.values()) <= 0:
        return about
    states = Threads(dict(measured), length)
    busy = measured.get("busy", 0.0)
    if about is None or busy <= 0 or about.off > _OFF * length:
        return states
    parts = {name: value for name, value in about.seconds.items() if name not in _WITHOUT_A_TASK}
    whole = sum(parts.values())
    if abs(whole - busy) > _SAME * busy:
        return states
    seconds = {name: measured[name] for name in _WITHOUT_A_TASK if name in measured}
    seconds |= {name: value * busy / whole for name, value in parts.items()}
    return replace(states, seconds=seconds)


def memory(
    store: SeriesStore, workspace: str, cluster: str, since: float, until: float
) -> Memory | None:
    """Return the workers' memory from ``since`` to ``until``; None if none was measured.

    Raises
    ------
    Unavailable
        The series are stored in another database, which does not answer.
    """

    both = (names.MEMORY_USED.name, names.MEMORY_LIMIT.name)
    by_metric = store.query(
        workspace, cluster, both, since, until, max(1.0, (until - since) / _STEPS)
    )
    used, limits = (
        {
            line.attributes.get(names.MEMORY_KIND, ""): dict(
                zip(line.times, line.values, strict=True)
            )
            for line in by_metric[metric]
        }
        for metric in both
    )
    managed, unmanaged = used.get("managed", {}), used.get("unmanaged", {})
    total = {time: value + unmanaged.get(time, 0.0) for time, value in managed.items()}
    if not total:
        return None
    of_all = limits.get("", {})
    limit = of_all[max(of_all)] if of_all else None
    highest_at = max(total, key=lambda time: total[time])
    # If the drawing reached up to a limit that is far above the peak, the curves would be flat.
    top = max(total[highest_at], 1.0)
    if limit is not None and limit < 3 * top:
        top = max(top, limit)
    times = sorted(total)

    def area(values: Sequence[float]) -> str:
        points = [
            f"{min(max(time / 1000 - since, 0) / (until - since), 1) * WIDTH:.1f} "
            f"{HEIGHT * (1 - value / top):.1f}"
            for time, value in zip(times, values, strict=True)
        ]
        left, right = points[0].split(" ")[0], points[-1].split(" ")[0]
        return f"M{left} {HEIGHT}L{'L'.join(points)}L{right} {HEIGHT}Z"

    return Memory(
        managed=area([managed[time] for time in times]),
        unmanaged=area([total[time] for time in times]),
        highest=total[highest_at],
        highest_at=highest_at / 1000,
        spilled=max(used.get("spilled", {}).values(), default=0.0),
        limit=limit,
        top=top,
    )


def _key(metric: names.Metric, line: SeriesLine) -> tuple[str, ...]:
    if metric is names.TASK_RUNNING:
        return (*sorted(line.attributes.values()), "running")
    activity = names.TASK_ACTIVITY if metric is names.TASK_TIME else names.WORKER_STATE
    return (line.attributes.get(names.TASK_PREFIX, ""), line.attributes.get(activity, "other"))


def counter_growth(before: Totals, after: Totals) -> dict[str, float]:
    """Return by how many seconds the totals of each activity grew.

    A total that is missing in ``before`` counts from 0. So does one that fell: it was reset.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for key, value in after.items():
        grown = value - before.get(key, 0.0)
        seconds[_TOGETHER.get(key[-1], key[-1])] += grown if grown >= 0 else value
    return {activity: value for activity, value in seconds.items() if value > 0}
