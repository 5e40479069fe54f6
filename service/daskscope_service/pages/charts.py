"""The charts of a cluster: which metrics each shows, and its lines as values at common times.

:mod:`.chart_svg` draws them for readers without JavaScript; the page's script draws the same.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from daskscope import names
from daskscope_service.insight.wording import percent, size
from daskscope_service.pages.period import Period
from daskscope_service.telemetry.store import SeriesLine, SeriesStore, rate

#: About how many points a line has at most: as the server draws it, and as the script does.
PAGE_STEPS, SCRIPT_STEPS = 90, 160

#: How many numbered colours ``app.css`` has, for lines whose name has no colour of its own.
_COLOURS = 6


@dataclass(frozen=True, slots=True)
class ChartSource:
    """The lines of one metric: one per value of the attribute ``split``, or a single one.

    ``stacked`` lines stand on each other, except those for the values ``beside``, which are not
    part of the sum. Lines that are not stacked are drawn over them. ``words`` are labels for
    attribute values that do not explain themselves. A counter is shown as its growth per second.
    """

    metric: names.Metric
    split: str | None = None
    label: str = ""
    stacked: bool = True
    beside: tuple[str, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. ``unit`` is ``count``, ``bytes``, ``bytes/s`` or ``share``.

    An ``optional`` chart is shown only if the cluster ever reported its first metric. ``absent``
    explains to readers why any other chart may have no data.
    """

    id: str
    title: str
    unit: str
    sources: tuple[ChartSource, ...]
    optional: bool = False
    absent: str = ""


CHARTS = (
    Chart("workers", "Workers", "count", (ChartSource(names.WORKER_COUNT, names.WORKER_STATE),)),
    Chart("tasks", "Tasks by state", "count", (ChartSource(names.TASK_COUNT, names.TASK_STATE),)),
    Chart(
        "memory",
        "Memory of the workers",
        "bytes",
        (
            # Spilled results are on disk, so they are not part of the sum.
            ChartSource(names.MEMORY_USED, names.MEMORY_KIND, beside=("spilled",)),
            ChartSource(names.MEMORY_LIMIT, label="limit", stacked=False),
        ),
    ),
    Chart(
        "cpu",
        "CPU of the workers, in cores",
        "count",
        (
            ChartSource(names.WORKER_CPU, label="used"),
            ChartSource(names.WORKER_THREADS, label="threads", stacked=False),
        ),
    ),
    Chart(
        "threads",
        "Threads of the workers",
        "count",
        (ChartSource(names.WORKER_TIME, names.WORKER_STATE),),
    ),
    Chart(
        "disk",
        "Disk: results spilled and read back",
        "bytes/s",
        (
            ChartSource(
                names.SPILL_IO,
                names.SPILL_DIRECTION,
                words={"write": "written", "read": "read back"},
            ),
        ),
        absent="Workers that may not spill do not report it.",
    ),
    Chart(
        "transfer",
        "Transfer: results sent between workers",
        "bytes/s",
        (
            ChartSource(
                names.TRANSFER_IO,
                names.TRANSFER_DIRECTION,
                words={"transmit": "sent", "receive": "received"},
            ),
        ),
        absent="Workers that may not spill do not report it.",
    ),
    Chart(
        "gpu",
        "GPU utilization, mean",
        "share",
        (ChartSource(names.GPU_UTILIZATION, label="utilization"),),
        optional=True,
    ),
    Chart(
        "gpu-memory",
        "Memory of the GPUs",
        "bytes",
        (
            ChartSource(names.GPU_MEMORY_USED, label="used"),
            ChartSource(names.GPU_MEMORY_LIMIT, label="limit", stacked=False),
        ),
        optional=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One line of a chart. ``colour`` is CSS; a value is None if nothing was measured.

    ``last`` is a counter's growth per second over the last interval alone, None if it is not known:
    the last of ``values`` may cover a longer time.
    """

    label: str
    colour: str
    stacked: bool
    values: list[float | None]
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart's lines, each with a value per entry of ``times`` (seconds since the Unix epoch).

    A long gap without measurements holds a time at which all lines are None. ``sampled`` is as in
    :class:`~daskscope_service.telemetry.store.SeriesLine`.
    """

    chart: Chart
    times: list[float]
    lines: list[Drawn]
    sampled: bool


#: So many intervals before the end, the totals are read by which counters grew in the last one; and
#: the parts of an interval by which their times are known.
_LAST, _PARTS = 4, 20

#: Intervals of a period from which on its measurements are taken to come at those intervals.
FEW_INTERVALS = 5


def read_plots(
    store: SeriesStore, workspace: str, cluster: str, period: Period, steps: int, interval: float
) -> list[Plot]:
    """Return the charts of a cluster, each line with about ``steps`` points at most.

    ``interval`` is how often the cluster measures, in seconds. Raises
    :class:`~daskscope_service.telemetry.store.Unavailable`.
    """

    def lines(metrics: Iterable[str], since: float, step: float) -> dict[str, list[SeriesLine]]:
        return store.query(workspace, cluster, set(metrics), since, period.until, step)

    perhaps = {chart.sources[0].metric.name for chart in CHARTS if chart.optional}
    ever = lines(perhaps, period.began, period.until - period.began)
    shown = [chart for chart in CHARTS if ever.get(chart.sources[0].metric.name) != []]
    # Each step holds the same number of measurements, or rates would vary with that number.
    step = math.ceil(period.seconds / steps / interval) * interval
    if period.seconds < FEW_INTERVALS * interval:
        # Of a short life, the first and the last measurement may be all: both count.
        step = period.seconds / steps
    # The rate of the first steps needs totals from before the period.
    by_metric = lines(
        {source.metric.name for chart in shown for source in chart.sources},
        period.since - 4 * step,
        step,
    )
    counters = {name for name, some in by_metric.items() if any(map(_is_counter, some))}
    totals = lines(counters, period.until - _LAST * interval, interval / _PARTS)
    last = {
        (name, *sorted(line.attributes.items())): _last_rate(line, interval)
        for name, some in totals.items()
        for line in some
    }
    return [
        _plot(
            chart,
            [
                (
                    source,
                    _growth(line, step, interval),
                    last.get((source.metric.name, *sorted(line.attributes.items()))),
                )
                for source in chart.sources
                for line in by_metric[source.metric.name]
            ],
            period.since - step,
        )
        for chart in shown
    ]


def words(unit: str, value: float | None) -> str:
    """Return a chart's value with its unit, for people."""
    if value is None:
        return "–"
    if unit == "share":
        return percent(value)
    if unit == "count":
        return f"{value:,.1f}".removesuffix(".0")
    return size(value) + unit.removeprefix("bytes")


def _is_counter(line: SeriesLine) -> bool:
    return line.kind == "counter"


def _last_rate(line: SeriesLine, interval: float) -> float | None:
    """Return how fast a counter grew in the last interval; None without totals of two times.

    The last two totals may be a moment apart, as when a cluster stops: too short for a rate.
    """
    for first in range(len(line.times) - 2, -1, -1):
        if line.times[-1] - line.times[first] >= 500 * interval:
            ends = [first, len(line.times) - 1]
            [value] = rate(
                replace(
                    line,
                    times=[line.times[end] for end in ends],
                    values=[line.values[end] for end in ends],
                )
            ).values
            return value
    return None


def _growth(line: SeriesLine, step: float, interval: float) -> SeriesLine:
    """Return a counter as its growth per second; return other lines unchanged.

    The last total before a gap or the end covers only part of its step, so it is left out. A
    measurement that comes a little early or late may fall into a neighbouring step. With fewer
    than ten measurements per step this would show, so the growth is averaged over three steps.
    """
    if line.kind != "counter" or not line.times:
        return line
    if step > interval:
        usual = _usual_distance(line.times)
        whole = [after - at <= 1.5 * usual for at, after in itertools.pairwise(line.times)]
        line = replace(
            line,
            times=list(itertools.compress(line.times, whole)),
            values=list(itertools.compress(line.values, whole)),
        )
    grown = rate(line)
    if step >= 10 * interval:
        return grown
    seconds = [(at - before) / 1000 for before, at in itertools.pairwise(line.times)]
    values = []
    for last in range(1, len(seconds) + 1):
        some = slice(max(0, last - 3), last)
        sums = zip(grown.values[some], seconds[some], strict=True)
        values.append(sum(v * s for v, s in sums) / sum(seconds[some]))
    return replace(grown, values=values)


def _plot(
    chart: Chart, drawn: Iterable[tuple[ChartSource, SeriesLine, float | None]], since: float
) -> Plot:
    by_label: dict[tuple[str, bool, str], dict[int, float]] = {}
    last: dict[tuple[str, bool, str], float] = {}
    sampled = False
    for source, line, last_rate in drawn:
        name = line.attributes.get(source.split, "") if source.split else source.label
        stacked = source.stacked and name not in source.beside
        key = (source.words.get(name, name), stacked, name)
        points = by_label.setdefault(key, {})
        if last_rate is not None:
            last[key] = last.get(key, 0.0) + last_rate
        sampled = sampled or line.sampled
        for at, value in zip(line.times, line.values, strict=True):
            if at >= since * 1000:
                points[at] = points.get(at, 0.0) + value
    # A line that is 0 throughout, such as a state that no task was in, would only fill the legend.
    shown = {key: points for key, points in by_label.items() if any(points.values())}
    shown = shown or {key: points for key, points in by_label.items() if points}
    times = _with_gaps(sorted({at for points in shown.values() for at in points}))
    lines = [
        Drawn(
            label,
            f"var(--series-{name}, var(--series-{number % _COLOURS + 1}))",
            stacked,
            [points.get(at) for at in times],
            last.get((label, stacked, name)),
        )
        for number, ((label, stacked, name), points) in enumerate(shown.items())
    ]
    return Plot(chart, [at / 1000 for at in times], lines, sampled)


def _with_gaps(times: list[int]) -> list[int]:
    """Return ``times`` with one more in each long gap, so that no line is drawn across the gap."""
    usual = _usual_distance(times)
    rows = times[:1]
    for after in times[1:]:
        if after - rows[-1] > 4 * usual:
            rows.append(rows[-1] + usual)
        rows.append(after)
    return rows


def _usual_distance(times: list[int]) -> int:
    distances = [after - before for before, after in itertools.pairwise(times)]
    return round(statistics.median(distances)) if distances else 0
