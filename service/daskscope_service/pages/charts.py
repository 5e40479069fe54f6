"""The charts of a cluster: what each shows, and its form without JavaScript.

The script draws the same charts out of :func:`for_script` and ``/api/v1/series``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from daskscope import names
from daskscope_service.insight.wording import number, size
from daskscope_service.series.store import Line, SeriesStore

_WIDTH, _HEIGHT = 300.0, 60.0
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of one metric: one per value of the attribute ``split``, or one in all.

    ``stacked`` lines stand on each other, except those of the values ``beside``, which are no part
    of the sum. The others are drawn over them.
    """

    metric: str
    split: str | None
    label: str
    stacked: bool = True
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. ``unit`` is ``count`` or ``bytes``."""

    id: str
    title: str
    unit: str
    sources: tuple[Source, ...]


CHARTS = (
    Chart(
        "workers", "Workers", "count", (Source(names.WORKER_COUNT.name, names.WORKER_STATE, ""),)
    ),
    Chart(
        "memory",
        "Memory of the workers",
        "bytes",
        (
            Source(names.MEMORY_USED.name, names.MEMORY_KIND, "", beside=("spilled",)),  # on disk
            Source(names.MEMORY_LIMIT.name, None, "limit", stacked=False),
        ),
    ),
    Chart(
        "tasks", "Tasks by state", "count", (Source(names.TASK_COUNT.name, names.TASK_STATE, ""),)
    ),
)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A chart's sum over time as an SVG path, with its last and highest value in words."""

    chart: Chart
    path: str
    last: str
    highest: str
    width: float = _WIDTH
    height: float = _HEIGHT


def for_script() -> list[dict[str, object]]:
    """Return the charts as plain data."""
    return [asdict(chart) for chart in CHARTS]


def sparklines(
    store: SeriesStore, workspace: str, cluster: str, since: float, until: float
) -> list[Sparkline | None]:
    """Return the charts' form without JavaScript; None for one that has no data in that time."""
    return [
        _sparkline(
            chart,
            store.query(
                workspace, cluster, chart.sources[0].metric, since, until, (until - since) / _STEPS
            ),
            since,
            until,
        )
        for chart in CHARTS
    ]


def _sparkline(chart: Chart, lines: list[Line], since: float, until: float) -> Sparkline | None:
    source = chart.sources[0]
    total: dict[int, float] = {}
    for line in lines:
        if line.attributes.get(source.split or "") in source.beside:
            continue
        for time, value in zip(line.times, line.values, strict=True):
            total[time] = total.get(time, 0.0) + value
    if not total:
        return None
    words: Callable[[float], str] = size if chart.unit == "bytes" else number
    highest = max(total.values())
    path, before = "", -math.inf
    for time, value in sorted(total.items()):
        x = min(max(time / 1000 - since, 0) / (until - since), 1) * _WIDTH
        y = _HEIGHT - (value / highest if highest else 0) * (_HEIGHT - 2) - 1
        # No line is drawn through a time in which nothing was measured.
        path += f"{'L' if x - before < 3 * _WIDTH / _STEPS else 'M'}{x:.1f} {y:.1f}"
        before = x
    return Sparkline(chart, path, words(total[max(total)]), words(highest))
