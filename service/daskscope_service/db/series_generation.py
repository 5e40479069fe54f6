"""Processes that write points remember the ids of series, so no id is ever used twice.

Each removal of series begins a new generation. A process that writes points with ids of an earlier
generation first checks that they are still there.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, func, insert, select, update

from daskscope_service.db.schema import series
from daskscope_service.db.schema import series_generation as table

#: The number of PostgreSQL's advisory lock.
_LOCK = 0x6461736B_73657269  # "daskseri"

#: Ids that one query asks for: databases bound the number of parameters.
_ASKED_AT_ONCE = 500

#: The workspace of a row that only holds the highest id: it is no one's.
NO_WORKSPACE = ""


def current(connection: Connection) -> int:
    """Return the number of the generation."""
    return connection.execute(select(table.c.value)).scalar() or 0


def hold(connection: Connection) -> int:
    """Return the number of the generation, and let no one remove until the transaction ends."""
    _lock(connection, shared=True)
    # Asked with each commit of points, so past SQLAlchemy's handling of statements.
    row = connection.exec_driver_sql("SELECT value FROM series_generation").first()
    return int(row[0]) if row else 0


def all_there(connection: Connection, ids: Collection[int]) -> bool:
    """Return whether there are still series of all ``ids``."""
    ordered, there = sorted(ids), 0
    for first in range(0, len(ordered), _ASKED_AT_ONCE):
        some = series.c.id.in_(ordered[first : first + _ASKED_AT_ONCE])
        there += connection.execute(select(func.count()).where(some)).scalar_one()
    return there == len(ordered)


def begin_next(connection: Connection) -> None:
    """Begin the next generation: before series are removed, in the same transaction."""
    _lock(connection, shared=False)
    changed = connection.execute(update(table).values(value=table.c.value + 1))
    if not changed.rowcount:
        connection.execute(insert(table).values(id=1, value=1))
    # SQLite gives a new row the highest id plus one: that must not be one which was removed. So a
    # row of no one holds the highest, and the next such row is there before that one goes.
    nothing = dict.fromkeys(("cluster", "metric", "field", "kind", "unit"), "")
    holder = insert(series).values(
        workspace=NO_WORKSPACE, **nothing, attributes=str(current(connection))
    )
    highest = connection.execute(holder.returning(series.c.id)).scalar_one()
    before = (series.c.workspace == NO_WORKSPACE, series.c.id < highest)
    connection.execute(delete(series).where(*before))


def _lock(connection: Connection, *, shared: bool) -> None:
    # Those that write points share it. On SQLite, a transaction that writes is alone already.
    if connection.dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        connection.execute(select(lock(_LOCK)))
