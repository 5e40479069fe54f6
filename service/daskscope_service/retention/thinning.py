"""Makes time series coarser: one point per bucket of time instead of many.

For a counter, the last total in a bucket stays. If the counter was restarted, the points before and
after that stay too, so that its growth does not change. So does its very first point. For a gauge,
the mean replaces the last point of a bucket. Doing it twice changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, delete, func, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import point, series
from daskscope_service.retention.throttle import Removed, Throttle

#: Series that are queried together.
_SERIES_AT_ONCE = 500

Point = tuple[int, float]

_DROP = delete(point).where(
    point.c.series == bindparam("id"),
    point.c.time > bindparam("after"),
    point.c.time < bindparam("before"),
)
_CHANGE = (
    update(point)
    .where(point.c.series == bindparam("id"), point.c.time == bindparam("at"))
    .values(value=bindparam("mean"))
)


def thin(
    engine: Engine, workspace: str, width: int, since: int, until: int, pace: Throttle
) -> Iterator[Removed]:
    """Leave one point per ``width`` in the series of ``workspace``, from ``since`` to ``until``.

    All are milliseconds; ``since`` and ``until`` are multiples of ``width``.
    """
    last = -1
    while True:
        first = (
            select(func.min(point.c.time))
            .where(point.c.series == series.c.id, point.c.time >= since, point.c.time < until)
            .scalar_subquery()
        )
        query = (
            select_in(workspace, series, series.c.id, series.c.kind, first)
            .where(series.c.id > last)
            .order_by(series.c.id)
            .limit(_SERIES_AT_ONCE)
        )
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return
        last = rows[-1].id
        yield Removed(point.name, 0)  # lets the throttle pause: the query takes time, too
        waiting = deque((id, kind, at) for id, kind, at in rows if at is not None)
        while waiting:
            looked_at = gone = 0
            with writing(engine) as connection:
                while waiting and looked_at < pace.rows:
                    id, kind, at = waiting.popleft()
                    counter = kind == "counter"
                    seen, kept, following = _thin_some(
                        connection, id, width, (at, until), counter=counter, most=pace.rows
                    )
                    looked_at += 1 + seen
                    gone += seen - kept
                    if following is not None:
                        waiting.appendleft((id, kind, following))
            yield Removed(point.name, gone)


def _thin_some(
    connection: Connection,
    id: int,
    width: int,
    span: tuple[int, int],
    *,
    counter: bool,
    most: int,
) -> tuple[int, int, int | None]:
    # Returns how many points there were, how many stay, and where to go on.
    since, until = span
    query = select(point.c.time, point.c.value).where(point.c.series == id)
    rows = connection.execute(
        query.where(point.c.time >= since, point.c.time < until).order_by(point.c.time).limit(most)
    ).all()
    points: list[Point] = [(time, value) for time, value in rows]
    following: int | None = None
    if len(points) == most:
        # The last bucket may be incomplete: it is left for the next call, unless it is the only
        # one.
        start = points[-1][0] // width * width
        whole = [one for one in points if one[0] < start]
        if whole:
            points, following = whole, start
        else:
            rest = query.where(point.c.time >= start, point.c.time < start + width)
            points = [(t, v) for t, v in connection.execute(rest.order_by(point.c.time))]
            following = start + width
    earlier = select(point.c.value).where(point.c.series == id, point.c.time < since)
    before = connection.execute(earlier.order_by(point.c.time.desc()).limit(1)).scalar()
    kept = coarser(points, width, before if counter else None, counter=counter)
    _write(connection, id, points, kept)
    return len(points), len(kept), following


def coarser(
    points: Sequence[Point], width: int, before: float | None = None, *, counter: bool
) -> list[Point]:
    """Return which of ``points``, in their order, stay. ``before``: the value before them."""
    kept: list[Point] = []
    total, count = 0.0, 0
    for index, (time, value) in enumerate(points):
        following = points[index + 1] if index + 1 < len(points) else None
        total, count = total + value, count + 1
        if following is None or following[0] // width != time // width:
            kept.append((time, value if counter else total / count))
            total, count = 0.0, 0
        elif counter and (before is None or value < before or following[1] < value):
            kept.append((time, value))
        before = value
    return kept


def _write(connection: Connection, id: int, points: Sequence[Point], kept: Sequence[Point]) -> None:
    if not points:
        return
    values = dict(points)
    drops: list[dict[str, Any]] = []
    after = points[0][0] - 1
    for time, _ in kept:
        drops.append({"id": id, "after": after, "before": time})
        after = time
    if len(kept) < len(points):
        connection.execute(_DROP, drops)
    changes = [
        {"id": id, "at": time, "mean": value} for time, value in kept if values[time] != value
    ]
    if changes:
        connection.execute(_CHANGE, changes)
