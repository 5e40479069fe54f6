"""The interface by which time series are read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

#: No line that a store returns has many more points than this: a chart has no more pixels.
MOST_POINTS = 500

#: Lines of one metric that a query returns at most; labels are bounded where they are made.
MOST_LINES = 300

#: Points of a step that its mean is of, at most: the last ones. A week takes no longer than a day.
MOST_AVERAGED = 12


@dataclass(frozen=True, slots=True)
class Line:
    """One series. ``times`` are milliseconds since the Unix epoch, rising; ``values`` go with them.

    ``kind`` is ``gauge``, ``counter`` (a running total) or ``rate`` (per second). ``field`` is
    ``value``, or for histograms ``count``, ``sum``, or a bucket's upper bound. A step in which
    nothing was measured has no point. ``sampled``: each value is the mean of the last
    :data:`MOST_AVERAGED` points of its step, not of all.
    """

    attributes: dict[str, str]
    field: str
    kind: str
    unit: str
    times: list[int]
    values: list[float]
    sampled: bool = False


class Unavailable(Exception):
    """What keeps telemetry cannot be asked; the message says why, as what it does."""


class SeriesStore(Protocol):
    """Time-series reads."""

    def query(
        self,
        workspace: str,
        cluster: str,
        metrics: Collection[str],
        since: float,
        until: float,
        step: float,
    ) -> dict[str, list[Line]]:
        """Return the lines of each metric, one point per ``step`` seconds: mean, or last total.

        Of a long step with many points, the mean may be of its last :data:`MOST_AVERAGED` alone.
        ``since`` and ``until`` are seconds since the Unix epoch. A store may widen ``step`` so that
        a line stays within :data:`MOST_POINTS`.

        Raises
        ------
        Unavailable
            The store is elsewhere, and does not answer.
        """

    def close(self) -> None:
        """Close what is open."""


def widened(since: float, until: float, step: float) -> int:
    """Return ``step`` in milliseconds, made wide enough for :data:`MOST_POINTS`."""
    return max(1000, round(step * 1000), round((until - since) * 1000 / MOST_POINTS))


def rate(line: Line) -> Line:
    """Return a counter as its growth per second; other lines as they are.

    A total that fell was started anew, so all of it has grown since.
    """
    if line.kind != "counter":
        return line
    times: list[int] = []
    values: list[float] = []
    for i in range(1, len(line.times)):
        before, after = line.values[i - 1], line.values[i]
        grown = after - before if after >= before else after
        times.append(line.times[i])
        values.append(grown * 1000 / (line.times[i] - line.times[i - 1]))
    return replace(line, kind="rate", times=times, values=values)
