"""Where the time went: seconds by activity, as parts that add up to the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The wire's actions in the order of the bar. Actions that are not here come last, by name.
ACTIVITIES: Mapping[str, str] = {
    "compute": "computing",
    "transfer": "communicating",
    "disk-read": "reading from disk",
    "disk-write": "writing to disk",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One activity. ``start`` and ``share`` are fractions of the whole, 0 to 1."""

    activity: str
    label: str
    seconds: float
    start: float
    share: float


def time_parts(seconds: Mapping[str, float]) -> list[Part]:
    """Return the activities with any time, in the bar's order. Empty where none was measured."""
    whole = sum(seconds.values())
    order = [name for name in ACTIVITIES if name in seconds]
    order += sorted(seconds.keys() - ACTIVITIES.keys())
    parts: list[Part] = []
    start = 0.0
    for name in order:
        if seconds[name] <= 0:
            continue
        share = seconds[name] / whole
        parts.append(Part(name, ACTIVITIES.get(name, name), seconds[name], start, share))
        start += share
    return parts


def seconds_of(seconds: Mapping[str, float], *activities: str) -> float | None:
    """Return the seconds of ``activities`` together, or None where none of them was measured."""
    measured = [seconds[name] for name in activities if name in seconds]
    return sum(measured) if measured else None
