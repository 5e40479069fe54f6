"""Processes that write points cache the ids of series, so no id is ever used twice.

Each removal of series begins a new generation. A process whose ids are of an earlier generation
checks that they still exist before it writes points with them.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, func, insert, select, update

from daskscope_service.db.engine import lock_until_end
from daskscope_service.db.schema import series
from daskscope_service.db.schema import series_generation as table

#: The number of the lock that transactions share which write points.
_LOCK = 0x6461736B_73657269  # "daskseri"

#: How many ids one query checks: databases limit the number of parameters.
_ASKED_AT_ONCE = 500

#: The workspace of a row that only holds the highest id: it belongs to no one.
NO_WORKSPACE = ""


def current(connection: Connection) -> int:
    """Return the number of the present generation."""
    return connection.execute(select(table.c.value)).scalar() or 0


def hold(connection: Connection) -> int:
    """Return the number of the generation; no series are removed until the transaction ends."""
    lock_until_end(connection, _LOCK, shared=True)
    # Runs in each commit of points, so it bypasses SQLAlchemy's handling of statements.
    row = connection.exec_driver_sql("SELECT value FROM series_generation").first()
    return int(row[0]) if row else 0


def all_there(connection: Connection, ids: Collection[int]) -> bool:
    """Return whether series with all ``ids`` still exist."""
    ordered, there = sorted(ids), 0
    for first in range(0, len(ordered), _ASKED_AT_ONCE):
        some = series.c.id.in_(ordered[first : first + _ASKED_AT_ONCE])
        there += connection.execute(select(func.count()).where(some)).scalar_one()
    return there == len(ordered)


def begin_next(connection: Connection) -> None:
    """Begin the next generation. Call this before removing series, in the same transaction."""
    lock_until_end(connection, _LOCK, shared=False)
    changed = connection.execute(update(table).values(value=table.c.value + 1))
    if not changed.rowcount:
        connection.execute(insert(table).values(id=1, value=1))
    # SQLite gives a new row the highest id plus one, which must not be the id of a removed series.
    # So a row of no workspace holds the highest id, and the next such row is inserted before that
    # one is deleted.
    nothing = dict.fromkeys(("cluster", "metric", "field", "kind", "unit"), "")
    holder = insert(series).values(
        workspace=NO_WORKSPACE, **nothing, attributes=str(current(connection))
    )
    highest = connection.execute(holder.returning(series.c.id)).scalar_one()
    before = (series.c.workspace == NO_WORKSPACE, series.c.id < highest)
    connection.execute(delete(series).where(*before))
