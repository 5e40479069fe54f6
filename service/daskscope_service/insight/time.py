"""Where the time went: seconds by activity, as parts that add up to the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daskscope_service.db.readable import Readable

#: The wire's activities in the order of the bar. Those that are not here come last, by name.
#: ``compute`` is of task groups, whose time is not split into parts; it holds what follows it here.
ACTIVITIES: Mapping[str, str] = {
    "compute": "computing",
    "thread-cpu": "computing on a CPU",
    "thread-noncpu": "in tasks that use no CPU",
    "running": "in tasks that still run",
    "failed": "in tasks that failed",
    "cancelled": "in tasks that were cancelled",
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
    "unattributed": "waiting for anything else",
    "paused": "paused for lack of memory",
    "idle": "idle",
}


@dataclass(frozen=True, slots=True)
class ActivityShare:
    """One activity. ``start`` and ``share`` are fractions of the whole, 0 to 1."""

    activity: str
    label: str
    seconds: float
    start: float
    share: float


def time_parts(seconds: Mapping[str, float]) -> list[ActivityShare]:
    """Return the activities with any time, in the bar's order. Empty where none was measured."""
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
    """Return the seconds of a cluster's threads by activity, over the prefixes in ``rows``."""
    whole: Counter[str] = Counter()
    for row in rows:
        whole.update(row["seconds"])
    return dict(whole)


def seconds_of(seconds: Mapping[str, float], *activities: str) -> float | None:
    """Return the seconds of ``activities`` together, or None where none of them was measured."""
    measured = [seconds[name] for name in activities if name in seconds]
    return sum(measured) if measured else None
