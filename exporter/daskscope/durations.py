"""How long something took: as text, and of intervals that overlap."""

from __future__ import annotations

from collections.abc import Iterable


def say_seconds(seconds: float) -> str:
    """Return seconds as text for messages."""
    return f"{seconds:,.1f} s" if seconds >= 10 else f"{seconds:.3g} s"


def seconds_together(intervals: Iterable[tuple[float, float]]) -> float:
    """Return for how long at least one of the ``intervals`` lasted."""
    seconds, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        seconds += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return seconds
