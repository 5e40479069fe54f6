"""Time series out of the service's own tables ``series`` and ``point``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import BigInteger, Engine, Select, case, func, literal, select, true

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import point, series
from daskscope_service.series.store import MOST_AVERAGED, MOST_LINES, Line, widened

#: Milliseconds of a step up to which it is quicker to read all points than to look for some.
_LONG_STEP = 120_000


class EmbeddedSeries:
    """The :class:`~daskscope_service.series.store.SeriesStore` of the embedded default."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Do nothing: the engine belongs to the application."""

    def query(
        self,
        workspace: str,
        cluster: str,
        metrics: Collection[str],
        since: float,
        until: float,
        step: float,
    ) -> dict[str, list[Line]]:
        """Return the lines of each metric; see :meth:`SeriesStore.query`."""
        order = (series.c.attributes, series.c.field)
        place = func.row_number().over(partition_by=series.c.metric, order_by=order)
        numbered = (
            select_in(workspace, series, series, place.label("place"))
            .where(series.c.cluster == cluster, series.c.metric.in_(sorted(metrics)))
            .subquery()
        )
        which = select(numbered).where(numbered.c.place <= MOST_LINES).order_by(numbered.c.place)
        found: dict[str, list[Line]] = {metric: [] for metric in metrics}
        times = range(int(since * 1000), int(until * 1000), widened(since, until, step))
        with self._engine.connect() as connection:
            lines: dict[int, Line] = {}
            for row in connection.execute(which):
                line = lines[row.id] = Line(
                    json.loads(row.attributes),
                    row.field,
                    row.kind,
                    row.unit,
                    times=[],
                    values=[],
                    sampled=times.step > _LONG_STEP and row.kind != "counter",
                )
                found[row.metric].append(line)
            for query in _queries(lines, times):
                for key, time, number in connection.execute(query):
                    if number is not None:
                        lines[key].times.append(time)
                        lines[key].values.append(number)
        return {metric: [line for line in some if line.times] for metric, some in found.items()}


def _queries(lines: dict[int, Line], times: range) -> Iterator[Select[Any]]:
    """Return queries of a series' id, a step's begin and its value."""
    if not lines:
        return
    counters = [key for key, line in lines.items() if line.kind == "counter"]
    gauges = [key for key, line in lines.items() if line.kind != "counter"]
    if times.step <= _LONG_STEP:
        yield _grouped(list(lines), counters, times)
        return
    if counters:
        yield _sampled(counters, times, 1)  # its last total
    if gauges:
        yield _sampled(gauges, times, MOST_AVERAGED)


def _grouped(ids: Sequence[int], counters: Sequence[int], times: range) -> Select[Any]:
    step = point.c.time - point.c.time % times.step
    # A total only grows, so its greatest value in a step is its last.
    value = case(
        (point.c.series.in_(counters), func.max(point.c.value)), else_=func.avg(point.c.value)
    )
    return (
        select(point.c.series, step, value)
        .where(point.c.series.in_(ids), point.c.time >= times.start, point.c.time < times.stop)
        .group_by(point.c.series, step)
        .order_by(point.c.series, step)
    )


def _sampled(ids: Sequence[int], times: range, most: int) -> Select[Any]:
    """Return the means of the last ``most`` points in each step: few, however many there are."""
    width, stop = times.step, times.stop
    aligned = times.start - times.start % width
    first = select(
        literal(aligned, BigInteger).label("time"),
        literal(times.start, BigInteger).label("begin"),
        literal(min(aligned + width, stop), BigInteger).label("end"),
    ).cte("step", recursive=True)
    later = select(
        first.c.time + width,
        first.c.time + width,
        case((first.c.time + 2 * width < stop, first.c.time + 2 * width), else_=stop),
    ).where(first.c.time + width < stop)
    steps = first.union_all(later)
    last = (
        select(point.c.value)
        .where(
            point.c.series == series.c.id,
            point.c.time >= steps.c.begin,
            point.c.time < steps.c.end,
        )
        .order_by(point.c.time.desc())
        .limit(most)
        .correlate(series, steps)
        .subquery()
    )
    mean = select(func.avg(last.c.value)).scalar_subquery()
    return (
        select(series.c.id, steps.c.time, mean)
        .select_from(series.join(steps, true()))
        .where(series.c.id.in_(ids))
        .order_by(series.c.id, steps.c.time)
    )
