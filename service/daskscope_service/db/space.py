"""Gives space that removed rows left in SQLite's file back to the system.

PostgreSQL's own autovacuum makes such space usable again; there is nothing to do.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Table,
    func,
    literal_column,
    type_coerce,
)


def unused_pages(connection: Connection) -> tuple[int, int]:
    """Return how many pages of the file hold nothing and can be given back, and how many it has.

    Both are 0 where the file has no say in it: on PostgreSQL, and in a file of SQLite that was made
    without the wish to give back.
    """
    if connection.dialect.name != "sqlite" or not _pragma(connection, "auto_vacuum"):
        return 0, 0
    return _pragma(connection, "freelist_count"), _pragma(connection, "page_count")


def give_back(engine: Engine, pages: int) -> None:
    """Give back up to ``pages`` unused pages, in one short transaction."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        # A script, which is a transaction of its own, is taken to its end; of a statement, Python
        # takes one step, which gives one page back.
        cursor.executescript(f"PRAGMA incremental_vacuum({pages:d})")
        cursor.close()
    finally:
        connection.close()


@functools.cache
def row_bytes(dialect: str, table: Table) -> ColumnElement[Any]:
    """Return about how many bytes a row of ``table`` takes, as a column of a query of it.

    ``dialect`` is the name of SQLAlchemy's.
    """
    if dialect == "postgresql":
        return func.pg_column_size(literal_column(f'"{table.name}".*'))
    lengths = (func.coalesce(func.length(type_coerce(column, Integer)), 0) for column in table.c)
    return sum(lengths, start=literal_column("0"))


def empty_log(engine: Engine) -> bool:
    """Bring what is in SQLite's write-ahead log into the database, and empty that file.

    False: someone still reads what was before, and it was not emptied.
    """
    if engine.dialect.name != "sqlite":
        return True
    # Not in a transaction, which would be one that still reads.
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        cursor.close()
        return not busy
    finally:
        connection.close()


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
