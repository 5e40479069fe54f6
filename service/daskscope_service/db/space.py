"""Gives space that removed rows left in SQLite's file back to the system.

PostgreSQL's own autovacuum makes such space usable again, so there is nothing to do.
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
    """Return the number of unused pages that can be given back, and of all pages of the file.

    Both are 0 on PostgreSQL, and for a file of SQLite that was created without ``auto_vacuum``.
    """
    if connection.dialect.name != "sqlite" or not _pragma(connection, "auto_vacuum"):
        return 0, 0
    return _pragma(connection, "freelist_count"), _pragma(connection, "page_count")


def give_back(engine: Engine, pages: int) -> None:
    """Give back up to ``pages`` unused pages, in one short transaction."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        # A script runs the statement to its end. Executing it would only take its first step, which
        # gives one page back.
        cursor.executescript(f"PRAGMA incremental_vacuum({pages:d})")
        cursor.close()
    finally:
        connection.close()


@functools.cache
def row_bytes(dialect: str, table: Table) -> ColumnElement[Any]:
    """Return about how many bytes a row of ``table`` takes, as a column for a query of it.

    ``dialect`` is SQLAlchemy's name of the dialect.
    """
    if dialect == "postgresql":
        return func.pg_column_size(literal_column(f'"{table.name}".*'))
    lengths = (func.coalesce(func.length(type_coerce(column, Integer)), 0) for column in table.c)
    return sum(lengths, start=literal_column("0"))


def empty_log(engine: Engine) -> bool:
    """Copy SQLite's write-ahead log into the database, and empty the log.

    Return False if it was not emptied, because someone still reads an earlier state.
    """
    if engine.dialect.name != "sqlite":
        return True
    # Not in a transaction, which would itself be a reader.
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
