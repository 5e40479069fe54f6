"""Bars of parts: the tasks of a computation by state, its time by activity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskscope_service.insight.time import time_parts
from daskscope_service.insight.wording import duration, number

#: Dask's task states in the order of the bar, each with the words for it and its colour's name.
_STATES: tuple[tuple[str, str, str], ...] = (
    ("forgotten", "done, forgotten", "done"),
    ("released", "done, released", "done"),
    ("memory", "in memory", "memory"),
    ("processing", "processing", "active"),
    ("queued", "queued", "waiting"),
    ("waiting", "waiting", "waiting"),
    ("no-worker", "without a worker", "warn"),
    ("erred", "erred", "bad"),
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a bar. ``start`` and ``share`` are per cent of the whole."""

    label: str
    amount: str
    colour: str
    start: float
    share: float


def state_bar(states: Mapping[str, int], tasks: int, completed: int) -> list[Segment]:
    """Return the tasks by state. What never ran and is gone is not shown as done."""
    counts = {name: count for name, count in states.items() if count > 0}
    whole = sum(counts.values())
    words = {name: (label, colour) for name, label, colour in _STATES}
    order = [name for name, _, _ in _STATES if name in counts]
    order += sorted(counts.keys() - words.keys())
    segments: list[Segment] = []
    start = 0.0
    for name in order:
        label, colour = words.get(name, (name, "other"))
        if colour == "done" and completed < tasks:
            # Dask releases what is done and what was given up alike.
            label, colour = name, "released"
        share = 100 * counts[name] / whole
        segments.append(Segment(label, number(counts[name]), colour, start, share))
        start += share
    return segments


def time_bar(seconds: Mapping[str, float]) -> list[Segment]:
    """Return the seconds by activity."""
    return [
        Segment(
            part.label,
            duration(part.seconds),
            f"time-{part.activity}",
            100 * part.start,
            100 * part.share,
        )
        for part in time_parts(seconds)
    ]
