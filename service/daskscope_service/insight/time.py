"""Where the time went: seconds by activity, as parts that add up to the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daskscope_service.db.readable import Readable

#: Labels of the activities that clusters report, in the order of the bar. Others follow, by name.
#: ``compute`` is reported for task groups: it is not split, and includes the two that follow it.
ACTIVITIES: Mapping[str, str] = {
    "compute": "computing",
    "thread-cpu": "computing on a CPU",
    "thread-noncpu": "in tasks that use no CPU",
    "unsplit": "computing, not split further",
    "running": "in tasks that still run",
    "failed": "in tasks that failed",
    # Dask's workers report both together. Each shuffle reschedules some of its tasks.
    "cancelled": "in runs that were cancelled or that Dask rescheduled",
    "lost": "in tasks whose worker left",
    "transfer": "communicating",
    "disk-read": "reading from disk",
    "disk-write": "writing to disk",
    "busy": "running tasks",
    "serialise": "serialising and compressing",
    "serialize": "serialising",
    "deserialize": "deserialising",
    "compress": "compressing",
    "decompress": "decompressing",
    "executor": "handing tasks to threads",
    "other": "other steps of tasks",
    "unattributed": "not accounted for",
    "paused": "paused for lack of memory",
    "idle": "idle",
}


@dataclass(frozen=True, slots=True)
class ActivityShare:
    """A part of the bar. ``start`` and ``share`` are fractions of all seconds, 0 to 1."""

    activity: str
    label: str
    seconds: float
    start: float
    share: float


def time_parts(seconds: Mapping[str, float]) -> list[ActivityShare]:
    """Return the activities that took any time, in the order of the bar; [] if none did."""
    whole = sum(value for value in seconds.values() if value > 0)
    order = [name for name in ACTIVITIES if name in seconds]
    order += sorted(seconds.keys() - ACTIVITIES.keys())
    parts: list[ActivityShare] = []
    start = 0.0
    for name in order:
        if seconds[name] <= 0:
            continue
        share = seconds[name] / whole
        parts.append(ActivityShare(name, ACTIVITIES.get(name, name), seconds[name], start, share))
        start += share
    return parts


def all_together(rows: Iterable[Readable]) -> dict[str, float]:
    """Return the thread-seconds by activity, summed over the task prefixes in ``rows``."""
    whole: Counter[str] = Counter()
    for row in rows:
        whole.update(row["seconds"])
    return dict(whole)


def seconds_of(seconds: Mapping[str, float], *activities: str) -> float | None:
    """Return the sum of the seconds of ``activities``, or None if none of them was measured."""
    measured = [seconds[name] for name in activities if name in seconds]
    return sum(measured) if measured else None
