"""Statements that are compiled once and run often, in the dialect of the database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Dialect, Engine, Float, Select, Table, case
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from daskscope_service.db.key_register import key_in_use
from daskscope_service.db.sealing import Sealed, SealedJSON, seal

Columns = ReadOnlyColumnCollection[str, Any]
#: A condition on two rows of one table, given the columns of each.
Condition = Callable[[Columns, Columns], ColumnElement[bool]]

#: How many rows one INSERT on SQLite has, and how many parameters a statement may have.
_ROWS_AT_ONCE = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_MOST_PARAMETERS = 30_000


def execute(connection: Connection, sql: str, parameters: Sequence[Any] = ()) -> None:
    """Execute ``sql``, written for the driver, without SQLAlchemy but with its errors."""
    driver = connection.connection
    cursor = driver.cursor()
    try:
        cursor.execute(sql, parameters)
    except connection.dialect.loaded_dbapi.Error as error:
        if connection.dialect.is_disconnect(error, driver.driver_connection, cursor):
            connection.invalidate(error)
        raise DBAPIError.instance(
            sql, None, error, Exception, dialect=connection.dialect
        ) from error
    finally:
        cursor.close()


class Upsert:
    """``INSERT … ON CONFLICT`` into one table, compiled once, for many rows at a time.

    Parameters
    ----------
    replace
        The columns that a row replaces in the row with the same key; () keeps the old row.
    unless_newer
        Replace only if this column of the new row is at least that of the old one.
    settled
        Columns that stay as they are if a condition holds: pairs of their names and the condition
        on the old row's columns and the new row's. The condition has no parameters.
    key
        The columns that identify a row; the primary key if None.
    columns
        The columns that rows have, in their order; all of the table's if None.
    """

    def __init__(
        self,
        engine: Engine,
        table: Table,
        *,
        replace: Sequence[str] = (),
        unless_newer: str | None = None,
        settled: Sequence[tuple[Sequence[str], Condition]] = (),
        key: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.table = table
        self.columns = tuple(columns or (column.name for column in table.columns))
        dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
        statement: Any = dialect.insert(table)
        key = key or [column.name for column in table.primary_key]
        if replace:
            new = statement.excluded
            condition: ColumnElement[bool] | None = (
                None if unless_newer is None else new[unless_newer] >= table.c[unless_newer]
            )
            replaced: dict[str, ColumnElement[Any]] = {name: new[name] for name in replace}
            for names, condition_of in settled:
                stays = condition_of(table.c, new)
                for name in names:
                    replaced[name] = case((stays, table.c[name]), else_=new[name])
            statement = statement.on_conflict_do_update(
                index_elements=key, set_=replaced, where=condition
            )
        else:
            statement = statement.on_conflict_do_nothing(index_elements=key)
        compiled = statement.compile(dialect=engine.dialect, column_keys=list(self.columns))
        self._sql = str(compiled)
        self._in_order = itemgetter(*self.columns)
        self._keeps_first = not replace
        self._key = itemgetter(*(self.columns.index(name) for name in key))
        self._version = None if unless_newer is None else self.columns.index(unless_newer)
        self._floats = {
            index
            for index, name in enumerate(self.columns)
            if isinstance(table.c[name].type, Float)
        }
        self._sealed = {
            index
            for index, name in enumerate(self.columns)
            if isinstance(table.c[name].type, Sealed | SealedJSON)
        }
        self._in_columns = engine.dialect.name == "postgresql"
        if self._in_columns:
            arrays = (
                f"%b::{table.c[name].type.compile(engine.dialect)}[]" for name in self.columns
            )
            values = f"SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608 - no one's text
            self._sql = re.sub(r"VALUES \(.*?\)(?= ON CONFLICT)", lambda _: values, self._sql)
        row = f"({', '.join('?' * len(self.columns))})"
        self._of_rows = [
            (size, self._sql.replace(row, ", ".join([row] * size), 1))
            for size in _ROWS_AT_ONCE
            if size == 1 or size * len(self.columns) <= _MOST_PARAMETERS
        ]
        if not self._in_columns and tuple(compiled.positiontup or ()) != self.columns:
            raise AssertionError(f"{table.name}: columns in another order than the table's")

    def row(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the row of ``values``, which has one for each of ``columns``, for :meth:`run`."""
        row: tuple[Any, ...] = self._in_order(values)
        return row

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``: tuples in the order of ``columns``, JSON columns as JSON text.

        Columns that are sealed get text, or JSON text, which is encrypted here. Raises KeyMissing
        if this process lacks the key.

        This bypasses SQLAlchemy, which would cost more than the database does, but raises its
        errors.
        """
        if not rows:
            return
        if self._sealed:
            rows = self._seal(connection, rows)
        if self._in_columns:
            self._run_in_columns(connection, rows)
        else:
            self._run_together(connection, rows)

    def _seal(
        self, connection: Connection, rows: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        key = key_in_use(connection)
        return [
            tuple(
                seal(key, value.encode()) if index in self._sealed and value is not None else value
                for index, value in enumerate(row)
            )
            for row in rows
        ]

    def _run_in_columns(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        # One parameter for each column, an array in binary, takes PostgreSQL half as long as a
        # statement for each row. But one statement must not write a row twice. Rows are in the
        # order of their keys, so that two processes do not deadlock.
        last: dict[Any, tuple[Any, ...]] = {}
        for row in rows:
            key = self._key(row)
            before = last.get(key)
            if before is None or not self._stays(before, row):
                last[key] = row
        columns = zip(*(last[key] for key in sorted(last)), strict=True)
        execute(
            connection,
            self._sql,
            tuple(
                # An array has one type: 1 and 1.5 cannot be in the same one.
                [None if value is None else float(value) for value in values]
                if index in self._floats
                else list(values)
                for index, values in enumerate(columns)
            ),
        )

    def _stays(self, before: tuple[Any, ...], row: tuple[Any, ...]) -> bool:
        if self._keeps_first:
            return True
        return self._version is not None and bool(row[self._version] < before[self._version])

    def _run_together(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        # SQLite releases the interpreter's lock for every statement, and in a busy service it takes
        # long to get it back. So there are few statements, of many rows each, and few sizes of
        # them, which are found prepared.
        done = 0
        for size, sql in self._of_rows:
            while len(rows) - done >= size:
                parameters = tuple(chain.from_iterable(rows[done : done + size]))
                execute(connection, sql, parameters)
                done += size


class Lookup:
    """A SELECT of few rows, compiled once, for queries that every request makes.

    It bypasses SQLAlchemy's connection, which costs six times as much as the query. So it returns
    the driver's values: do not select columns whose type SQLAlchemy converts, such as JSON.
    """

    def __init__(self, dialect: Dialect, statement: Select[Any]) -> None:
        compiled = statement.compile(dialect=dialect)
        self._sql = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup
        self._constants = {
            name: value for name, value in compiled.params.items() if value is not None
        }
        self._error = dialect.loaded_dbapi.OperationalError

    def first(self, engine: Engine, **parameters: Any) -> tuple[Any, ...] | None:
        """Return the first row, or None. ``parameters`` are the statement's, by name."""
        return next(iter(self.all(engine, **parameters)), None)

    def all(self, engine: Engine, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows. ``parameters`` are the statement's, by name."""
        connection: PoolProxiedConnection | None = None
        try:
            connection = engine.raw_connection()
            return self._fetch(connection, parameters)
        except self._error as error:
            if connection is not None:
                connection.invalidate()  # perhaps dead after a restart of the server
            raise OperationalError(self._sql, None, error) from error
        finally:
            if connection is not None:
                connection.close()

    def within(self, connection: Connection, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows, as :meth:`all`, by an open connection."""
        driver = connection.connection
        try:
            return self._fetch(driver, parameters)
        except self._error as error:
            if connection.dialect.is_disconnect(error, driver.driver_connection, None):
                connection.invalidate(error)
            raise OperationalError(self._sql, None, error) from error

    def _fetch(
        self, connection: PoolProxiedConnection, parameters: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        order = self._order
        if self._constants:
            parameters = self._constants | parameters
        cursor = connection.cursor()
        cursor.execute(
            self._sql, parameters if order is None else [parameters[name] for name in order]
        )
        rows = cursor.fetchall()
        cursor.close()
        return list(rows)
