"""Where points are written, and how the two tables that hold them are read as one.

SQLite stores rows in the order of their key. A point belongs at the end of its series: if thousands
of series report at once, each point would write a page of its own, 4 KiB for 24 bytes. So points
are collected in ``recent_point``, where many series share a page. When there are many, they move to
``point``, a few series at a time and several points of each.

PostgreSQL stores rows in the order in which they arrive: they are written to ``point`` directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    FromClause,
    Select,
    SelectBase,
    Table,
    exists,
    func,
    select,
    union_all,
)

from daskscope_service.db.schema import point, recent_point

#: A condition for points of the table that it is given.
Condition = Callable[[Table], ColumnElement[bool]]
#: :func:`where`, or :func:`moved_where`.
Source = Callable[..., SelectBase]

#: A point's series and time.
Place = tuple[int, int]

#: The place before all points.
BEFORE_ALL: Place = (-1, -1)

#: About how many points stay in ``recent_point``.
RESTING = 400_000

_LAST_OF_SOME = (
    "SELECT series, time FROM recent_point WHERE (series, time) > (?, ?) "
    "ORDER BY series, time LIMIT 1 OFFSET ?"
)
_COPY = (
    "INSERT INTO point SELECT series, time, value FROM recent_point "
    "WHERE (series, time) > (?, ?) AND (series, time) <= (?, ?) "
    "ORDER BY series, time ON CONFLICT DO UPDATE SET value = excluded.value"
)
_DROP = "DELETE FROM recent_point WHERE (series, time) > (?, ?) AND (series, time) <= (?, ?)"


def written_to(engine: Engine) -> Table:
    """Return the table to which new points are written. Points in ``point`` need not be moved."""
    return recent_point if engine.dialect.name == "sqlite" else point


def moved_where(condition: Condition, *correlated: FromClause) -> Select[Any]:
    """Return a query of ``series``, ``time``, ``value`` of the points in ``point`` that match.

    ``correlated``: tables of the surrounding query that the condition refers to.
    """
    return select(point).where(condition(point)).correlate(*correlated)


def where(condition: Condition, *correlated: FromClause) -> CompoundSelect[Any]:
    """As :func:`moved_where`, but for the points of both tables, each once."""
    # A point that was sent again may be in both tables.
    there = exists().where(
        point.c.series == recent_point.c.series, point.c.time == recent_point.c.time
    )
    resting = select(recent_point).where(condition(recent_point), ~there)
    return union_all(moved_where(condition, *correlated), resting.correlate(*correlated))


def resting_since(
    connection: Connection, series: Sequence[int], since: int, until: int
) -> int | None:
    """Return the time of the first point of ``series`` in this period that was not moved yet."""
    return connection.execute(
        select(func.min(recent_point.c.time)).where(
            recent_point.c.series.in_(series),
            recent_point.c.time >= since,
            recent_point.c.time < until,
        )
    ).scalar()


class Moving:
    """Moves points to ``point`` as others arrive: all series in turn."""

    def __init__(self, engine: Engine) -> None:
        self._needed = written_to(engine) is recent_point
        self._resting: int | None = None
        self._place = BEFORE_ALL

    def after(self, connection: Connection, written: int) -> None:
        """Move some points after ``written`` new ones were written, in the same transaction."""
        if not self._needed:
            return
        if self._resting is None:
            self._resting = _count(connection)
        else:
            self._resting += written
        if self._resting > RESTING:
            # A little more than arrived, because another process may write points, too.
            moved, self._place = move(connection, self._place, written + written // 4)
            self._resting -= moved
            if self._place == BEFORE_ALL:
                self._resting = None  # count again: points sent twice were counted twice


def move(connection: Connection, place: Place, most: int) -> tuple[int, Place]:
    """Move up to ``most`` points that come after ``place`` to ``point``, on SQLite.

    Return how many were moved, and the place of the last; :data:`BEFORE_ALL` if there are no more.
    """
    row = connection.exec_driver_sql(_LAST_OF_SOME, (*place, most - 1)).first()
    last = (row[0], row[1]) if row else (2**62, 0)
    moved = connection.exec_driver_sql(_COPY, (*place, *last)).rowcount
    connection.exec_driver_sql(_DROP, (*place, *last))
    return moved, last if row else BEFORE_ALL


def _count(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(recent_point)).scalar_one())
