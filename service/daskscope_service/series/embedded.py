"""Time series out of the service's own tables ``series`` and ``point``."""

from __future__ import annotations

import json

from sqlalchemy import Engine, case, func, select

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import point, series
from daskscope_service.series.store import Line, widened

#: Lines of one metric that a query returns at most; labels are bounded where they are made.
MOST_LINES = 300


class EmbeddedSeries:
    """The :class:`~daskscope_service.series.store.SeriesStore` of the embedded default."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def query(
        self, workspace: str, cluster: str, metric: str, since: float, until: float, step: float
    ) -> list[Line]:
        """Return the lines of ``metric``; see :meth:`SeriesStore.query`."""
        bucket_ms = widened(since, until, step)
        which = (
            select_in(workspace, series)
            .where(series.c.cluster == cluster, series.c.metric == metric)
            .order_by(series.c.attributes, series.c.field)
            .limit(MOST_LINES)
        )
        with self._engine.connect() as connection:
            lines = {
                row.id: Line(
                    json.loads(row.attributes), row.field, row.kind, row.unit, times=[], values=[]
                )
                for row in connection.execute(which)
            }
            if not lines:
                return []
            counters = [key for key, line in lines.items() if line.kind == "counter"]
            bucket = point.c.time - point.c.time % bucket_ms
            # A total only grows, so its greatest value in a step is its last.
            value = case(
                (point.c.series.in_(counters), func.max(point.c.value)),
                else_=func.avg(point.c.value),
            )
            points = (
                select(point.c.series, bucket, value)
                .where(
                    point.c.series.in_(list(lines)),
                    point.c.time >= int(since * 1000),
                    point.c.time < int(until * 1000),
                )
                .group_by(point.c.series, bucket)
                .order_by(point.c.series, bucket)
            )
            for key, time, number in connection.execute(points):
                lines[key].times.append(time)
                lines[key].values.append(number)
        return [line for line in lines.values() if line.times]
