"""Time series from the service's own tables ``series`` and ``point``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Select,
    and_,
    case,
    func,
    literal,
    select,
    true,
)

from daskscope_service.db import points
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import series
from daskscope_service.telemetry.store import MOST_AVERAGED, MOST_LINES, SeriesLine, widened

#: Up to this step, in milliseconds, reading all points is faster than looking for some.
_LONG_STEP = 120_000


class EmbeddedSeries:
    """A :class:`~daskscope_service.telemetry.store.SeriesStore` of the service's own tables."""

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
    ) -> dict[str, list[SeriesLine]]:
        """Return the lines of each metric; see :meth:`SeriesStore.query`."""
        order = (series.c.attributes, series.c.field)
        place = func.row_number().over(partition_by=series.c.metric, order_by=order)
        numbered = (
            select_in(workspace, series, series, place.label("place"))
            .where(series.c.cluster == cluster, series.c.metric.in_(sorted(metrics)))
            .subquery()
        )
        which = select(numbered).where(numbered.c.place <= MOST_LINES).order_by(numbered.c.place)
        by_metric: dict[str, list[SeriesLine]] = {metric: [] for metric in metrics}
        times = range(int(since * 1000), int(until * 1000), widened(since, until, step))
        with self._engine.connect() as connection:
            lines: dict[int, SeriesLine] = {}
            for row in connection.execute(which):
                line = lines[row.id] = SeriesLine(
                    json.loads(row.attributes),
                    row.field,
                    row.kind,
                    row.unit,
                    times=[],
                    values=[],
                    sampled=times.step > _LONG_STEP and row.kind != "counter",
                )
                by_metric[row.metric].append(line)
            for query in _queries(connection, lines, times):
                for key, time, number in connection.execute(query).all():
                    if number is not None:
                        lines[key].times.append(time)
                        lines[key].values.append(number)
        return {metric: [line for line in some if line.times] for metric, some in by_metric.items()}


def _queries(
    connection: Connection, lines: dict[int, SeriesLine], times: range
) -> Iterator[Select[Any]]:
    """Yield queries of a series' id, the begin of a step, and its value."""
    if not lines:
        return
    counters = [key for key, line in lines.items() if line.kind == "counter"]
    gauges = [key for key, line in lines.items() if line.kind != "counter"]
    if times.step <= _LONG_STEP:
        yield _grouped(list(lines), counters, times)
        return
    # Looking in one table for each step is faster than in both.
    resting = points.resting_since(connection, list(lines), times.start, times.stop)
    between = times.stop if resting is None else max(times.start, resting - resting % times.step)
    parts = (range(times.start, between, times.step), range(between, times.stop, times.step))
    for part, of in zip(parts, (points.moved_where, points.where), strict=True):
        if part and counters:
            yield _sampled(counters, part, 1, of)  # its last total
        if part and gauges:
            yield _sampled(gauges, part, MOST_AVERAGED, of)


def _grouped(ids: Sequence[int], counters: Sequence[int], times: range) -> Select[Any]:
    rows = points.where(
        lambda table: and_(
            table.c.series.in_(ids), table.c.time >= times.start, table.c.time < times.stop
        )
    ).subquery()
    step = rows.c.time - rows.c.time % times.step
    # A total only grows, so its greatest value in a step is its last.
    value = case(
        (rows.c.series.in_(counters), func.max(rows.c.value)), else_=func.avg(rows.c.value)
    )
    return (
        select(rows.c.series, step, value)
        .group_by(rows.c.series, step)
        .order_by(rows.c.series, step)
    )


def _sampled(ids: Sequence[int], times: range, most: int, of: points.Source) -> Select[Any]:
    """Return a query of the mean of the last ``most`` points in each step, so that few are read."""
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
    rows = of(
        lambda table: and_(
            table.c.series == series.c.id,
            table.c.time >= steps.c.begin,
            table.c.time < steps.c.end,
        ),
        series,
        steps,
    ).subquery()
    last = (
        select(rows.c.value)
        .order_by(rows.c.time.desc())
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
