"""Histograms of task durations, all on one scale, so that task groups can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskscope.names import DURATION_BOUNDS
from daskscope_service.db.scope import Item
from daskscope_service.insight.wording import duration, plural

#: The width of a column and the greatest height, in units of the drawing.
STEP, HEIGHT = 10, 28
_LEAST = 1.5  # the least height of a column, so that one run among many can be seen


@dataclass(frozen=True, slots=True)
class Column:
    """The column of one bucket: the task runs that took about the same time."""

    x: int
    y: float
    height: float
    words: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram. ``words`` sums it up; ``mean`` is in seconds, None if it is not known."""

    columns: list[Column]
    width: int
    height: int
    words: str
    mean: float | None


def histograms(groups: Sequence[Item], rows: Sequence[Item]) -> dict[str, Histogram]:
    """Return the histograms of the task groups ``rows`` by name, on the scale of all ``groups``.

    A group in which no task was measured has no histogram.
    """
    used = [place for each in groups for place, count in enumerate(_counts(each)) if count]
    return {
        row["name"]: _histogram(row, counts, min(used), max(used))
        for row in rows
        if any(counts := _counts(row))
    }


def _counts(group: Item) -> list[int]:
    # An earlier version of the service also stored negative numbers.
    return [max(count, 0) for count in group["durations"]]


def _histogram(group: Item, counts: Sequence[int], first: int, last: int) -> Histogram:
    most, whole = max(counts), sum(counts)
    columns = [
        Column(
            x=STEP * (place - first),
            y=round(HEIGHT - (height := max(HEIGHT * count / most, _LEAST)), 2),
            height=round(height, 2),
            words=f"{plural(count, 'task run')} {bucket(place)}",
        )
        for place, count in enumerate(counts)
        if first <= place <= last and count
    ]
    seen = half = 0
    for place, count in enumerate(counts):
        seen += count
        if 2 * seen >= whole:
            half = place
            break
    compute = group["seconds"].get("compute")
    return Histogram(
        columns=columns,
        width=STEP * (last - first + 1),
        height=HEIGHT,
        words=f"{plural(whole, 'task run')}; half of them took {bucket(half)} or less",
        # The seconds are of all runs, and the histogram is of those that finished.
        mean=compute / whole if compute and not (group["erred"] or group["retried"]) else None,
    )


def bucket(place: int) -> str:
    """Return the range of a bucket in words."""
    if place == 0:
        return f"up to {duration(DURATION_BOUNDS[0])}"
    if place >= len(DURATION_BOUNDS):
        return f"more than {duration(DURATION_BOUNDS[-1])}"
    return f"{duration(DURATION_BOUNDS[place - 1])} to {duration(DURATION_BOUNDS[place])}"
