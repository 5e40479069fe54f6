"""Opens the database. The one file that knows SQLite from PostgreSQL.

Everything else speaks SQLAlchemy Core through what is here: :func:`open_database`,
:func:`current_engine`, :func:`writing` and :class:`Upsert`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from flask import current_app
from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Select,
    Table,
    create_engine,
    event,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from daskscope.errors import ConfigurationError
from daskscope_service.db.schema import metadata, workspace
from daskscope_service.settings import Settings

#: The workspace that exists from the start.
DEFAULT_WORKSPACE = "default"

#: Seconds that a connection waits for another process that holds SQLite's write lock.
_BUSY_SECONDS = 10.0

#: How many rows one INSERT of SQLite has, and how many parameters a statement may have.
_ROWS_AT_ONCE = (1024, 256, 64, 16, 4, 1)
_MOST_PARAMETERS = 30_000


def open_database(settings: Settings) -> Engine:
    """Open the database of ``settings``, with its folder, its tables and the default workspace.

    Raises
    ------
    ConfigurationError
        The address is not one, or the database cannot be opened. The message says which and why.
    """
    try:
        url = make_url(settings.database)
    except ArgumentError:
        raise ConfigurationError(
            "DASKSCOPE_DATABASE_URL is not a database address; "
            "right would be postgresql+psycopg://user:password@host/name"
        ) from None
    try:
        # Every request thread may hold a connection, and the writer has one.
        options: dict[str, Any] = {"pool_size": settings.threads + 2, "max_overflow": 8}
        # The one used last has its statements prepared and its pages at hand.
        options["pool_use_lifo"] = True
        if url.get_backend_name() == "sqlite":
            if url.database and url.database != ":memory:":
                _make_private(Path(url.database))
            options["connect_args"] = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
        engine = create_engine(url, **options)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        with writing(engine) as connection:
            metadata.create_all(connection)
            make_workspace(connection, DEFAULT_WORKSPACE)
    except (OSError, ImportError, DBAPIError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise ConfigurationError(
            f"cannot open the database {url.render_as_string(hide_password=True)}: {reason}; "
            "see DASKSCOPE_DATA_DIR and DASKSCOPE_DATABASE_URL"
        ) from error
    return engine


def current_engine() -> Engine:
    """Return the database of the application that answers the current request."""
    engine: Engine = current_app.extensions["daskscope.engine"]
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; committed at the end, rolled back by an exception.

    On SQLite it takes the write lock at once: a transaction that reads first and writes later
    could not wait for the lock, it would fail.
    """
    with engine.connect().execution_options(daskscope_writes=True) as connection:
        with connection.begin():
            yield connection


def make_workspace(connection: Connection, name: str) -> None:
    """Make the workspace ``name`` unless it exists."""
    Upsert(connection.engine, workspace).run(connection, [(name, time.time())])


class Upsert:
    """``INSERT … ON CONFLICT`` into one table, compiled once, for many rows at a time.

    Parameters
    ----------
    replace
        The columns that a row replaces in the row of the same key; () keeps the old row.
    unless_newer
        Replace only where this column of the new row is at least that of the old one.
    key
        The columns that make two rows the same; the primary key if None.
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
            statement = statement.on_conflict_do_update(
                index_elements=key, set_={name: new[name] for name in replace}, where=condition
            )
        else:
            statement = statement.on_conflict_do_nothing(index_elements=key)
        compiled = statement.compile(dialect=engine.dialect, column_keys=list(self.columns))
        self._sql = str(compiled)
        self._row = f"({', '.join('?' * len(self.columns))})"
        self._positional = compiled.positiontup is not None
        if self._positional and tuple(compiled.positiontup or ()) != self.columns:
            raise AssertionError(f"{table.name}: columns in another order than the table's")

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write ``rows``: tuples in the order of ``columns``, JSON columns as JSON text.

        Past SQLAlchemy's handling of parameters, which would cost more than the database does.
        """
        if not rows:
            return
        if self._positional:
            self._run_together(connection, rows)
        else:
            named = [dict(zip(self.columns, row, strict=True)) for row in rows]
            connection.exec_driver_sql(self._sql, named)

    def _run_together(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        # SQLite gives up the interpreter's lock for every statement, and a busy service is slow to
        # give it back: so few statements, of many rows each. Few sizes, to find them prepared.
        done = 0
        for size in _ROWS_AT_ONCE:
            if size > 1 and size * len(self.columns) > _MOST_PARAMETERS:
                continue
            sql = self._sql.replace(self._row, ", ".join([self._row] * size), 1)
            while len(rows) - done >= size:
                parameters = tuple(chain.from_iterable(rows[done : done + size]))
                connection.exec_driver_sql(sql, parameters)
                done += size


class Lookup:
    """A SELECT of one row, compiled once, for what every request asks.

    Past SQLAlchemy's connection, which costs six times what the query does. So it returns what the
    driver does: do not ask it for columns whose type SQLAlchemy converts, such as JSON.
    """

    def __init__(self, dialect: Dialect, statement: Select[Any]) -> None:
        compiled = statement.compile(dialect=dialect)
        self._sql = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup

    def first(self, engine: Engine, **parameters: Any) -> tuple[Any, ...] | None:
        """Return the first row, or None. ``parameters`` are those of the statement, by name."""
        order = self._order
        connection = engine.raw_connection()
        try:
            cursor = connection.cursor()
            cursor.execute(
                self._sql, parameters if order is None else [parameters[name] for name in order]
            )
            row: tuple[Any, ...] | None = cursor.fetchone()
            cursor.close()
            return row
        finally:
            connection.close()


def _make_private(file: Path) -> None:
    # SQLite gives its -wal and -shm files the mode of the database.
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    file.chmod(0o600)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # SQLAlchemy begins transactions (below); Python's sqlite3 must not begin any on its own.
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # a commit is on the disk before it is acknowledged
        "foreign_keys=ON",
        "cache_size=-16384",  # KiB, per connection
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("daskscope_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
