"""The interface by which time series are read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

#: No line has many more points than this: a chart has no more pixels.
MOST_POINTS = 500

#: How many lines of one metric a query returns; exporters limit the labels.
MOST_LINES = 300

#: The mean of a step covers at most so many points, the last ones. So reading a week takes no
#: longer than reading a day.
MOST_AVERAGED = 12


@dataclass(frozen=True, slots=True)
class SeriesLine:
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
    """The store of telemetry cannot be read. The message says why; its subject is "it"."""


class SeriesStore(Protocol):
    """Reads time series."""

    def query(
        self,
        workspace: str,
        cluster: str,
        metrics: Collection[str],
        since: float,
        until: float,
        step: float,
    ) -> dict[str, list[SeriesLine]]:
        """Return the lines of each metric, one point per ``step`` seconds: mean, or last total.

        If a long step has many points, the mean may cover only its last :data:`MOST_AVERAGED`.
        ``since`` and ``until`` are seconds since the Unix epoch. A store may widen ``step`` so that
        a line stays within :data:`MOST_POINTS`.

        Raises
        ------
        Unavailable
            The series are stored in another database, which does not answer.
        """

    def close(self) -> None:
        """Close the connections."""


def widened(since: float, until: float, step: float) -> int:
    """Return ``step`` in milliseconds, made wide enough for :data:`MOST_POINTS`."""
    return max(1, round(step * 1000), round((until - since) * 1000 / MOST_POINTS))


def rate(line: SeriesLine) -> SeriesLine:
    """Return a counter as its increase per second; other lines as they are.

    A total that fell was restarted from 0, so its new value is the increase.
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
