"""Bars that are split into parts: a computation's tasks by state, and its time by activity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskscope_service.insight.progress import AT_WORK
from daskscope_service.insight.time import time_parts
from daskscope_service.insight.wording import duration, number

#: Dask's task states in the order of the bar, each with the words for it and its colour's name.
#: ``released`` and ``forgotten`` are distinguished by whether the tasks ran: see :func:`state_bar`.
_STATES: tuple[tuple[str, str, str], ...] = (
    ("memory", "in memory", "memory"),
    ("processing", "processing", "active"),
    ("queued", "queued", "queued"),
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


def state_bar(
    states: Mapping[str, int], done: int, erred: int, *, finished: bool = False
) -> list[Segment]:
    """Return the parts of the bar that shows a computation's tasks by state.

    If the computation has ``finished``, tasks that wait or run again do so because their results
    were lost afterwards. They are shown as done.

    Dask releases, and then forgets, tasks that ran, tasks that erred and tasks that were cancelled.
    Of these tasks, ``done`` tells how many ran and ``erred`` how many erred; the others did
    not end.
    """
    gone = states.get("released", 0) + states.get("forgotten", 0)
    done = min(gone, max(done - states.get("memory", 0), 0))
    failed = min(gone - done, max(erred - states.get("erred", 0), 0))
    held = {**states, "erred": states.get("erred", 0) + failed}
    parts = [("done", "done", done)]
    if finished:
        lost = sum(count for state, count in held.items() if state in AT_WORK)
        held = {state: count for state, count in held.items() if state not in AT_WORK}
        parts.append(("done, result gone", "done", lost))
    parts += [(label, colour, held.get(name, 0)) for name, label, colour in _STATES]
    known = {"released", "forgotten", *(name for name, _, _ in _STATES)}
    parts += [(name, "other", states[name]) for name in sorted(states.keys() - known)]
    parts.append(("not done", "released", gone - done - failed))
    whole = sum(count for _, _, count in parts if count > 0)
    segments: list[Segment] = []
    start = 0.0
    for label, colour, count in parts:
        if count > 0:
            share = 100 * count / whole
            segments.append(Segment(label, number(count), colour, start, share))
            start += share
    return segments


def time_bar(seconds: Mapping[str, float]) -> list[Segment]:
    """Return the parts of the bar that shows ``seconds`` by activity."""
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
