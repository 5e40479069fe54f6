"""Opens the database, SQLite or PostgreSQL, and begins transactions that write.

Other code uses SQLAlchemy Core on the engine that this module returns.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from daskscope.errors import ConfigurationError, install_with
from daskscope_service.db import revisions, sealing, time_limit
from daskscope_service.db.keys import Keys
from daskscope_service.db.private_files import give_to_owner_of_folder, make_private
from daskscope_service.db.revisions import Position
from daskscope_service.db.schema import workspace
from daskscope_service.db.statements import Upsert, execute
from daskscope_service.settings import Settings

#: The workspace that the first revision creates.
DEFAULT_WORKSPACE = "default"

#: Seconds that a connection waits for another process that holds SQLite's write lock.
_BUSY_SECONDS = 10.0

#: Seconds without use after which a connection to PostgreSQL is checked before it is used.
_PING_SECONDS = 1.0

#: How PostgreSQL's client notices within half a minute that the server's machine is gone or cut
#: off. By default, it waits two hours for an answer that never comes. The address can say
#: otherwise.
_NOTICE_LOSS = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds, for what was sent and is not acknowledged
}

#: The number of PostgreSQL's advisory lock that :func:`alone` holds.
_ALONE_LOCK = 0x6461736B_73636F70  # "daskscop"

#: The error by which PostgreSQL ends one transaction of a deadlock.
_DEADLOCK = "40P01"
#: How often such a transaction is tried. Each time, another transaction has gone on.
_TIMES = 5

T = TypeVar("T")


def open_database(settings: Settings) -> Engine:
    """Open the database of ``settings``, which must have the revision that this code needs.

    Raises
    ------
    ConfigurationError
        The address is not valid, the database cannot be opened, or it has another revision: see
        :func:`upgrade_database`. The message says which and what to do.
    """
    with _opened(settings) as engine, engine.connect() as connection:
        position = revisions.position(connection)
        if position.state != "current":
            raise _refusal(engine, position)
    return engine


def upgrade_database(settings: Settings, *, to: str | None = None) -> Position:
    """Bring the database of ``settings`` to the revision that this code needs, or to ``to``.

    It is created if it is missing. All missing revisions are applied, or none. If several processes
    do this at once, one applies them, and the others wait. Return where the database stood before.

    Raises
    ------
    ConfigurationError
        As :func:`open_database`, but not for a database that is older.
    """
    with _opened(settings, make=True) as engine:
        with alone(engine) as connection:
            if connection.dialect.name == "postgresql":
                _check_encoding(connection)
            before = revisions.upgrade(connection, to)
        if before.state in ("newer", "unnumbered"):
            raise _refusal(engine, before)
        if before.leaves_code and engine.dialect.name == "sqlite":
            _write_anew(engine)
        engine.dispose()
    return before


def database_position(settings: Settings) -> Position:
    """Return the revision of the database of ``settings``, and the one that this code needs.

    Raises
    ------
    ConfigurationError
        The address is not valid, or the database cannot be opened.
    """
    with _opened(settings) as engine:
        with engine.connect() as connection:
            position = revisions.position(connection)
        engine.dispose()
    return position


def sqlite_file(settings: Settings) -> Path:
    """Return the file of the database. Raises ConfigurationError if it is not SQLite."""
    url = _url(settings.database)
    if url.get_backend_name() != "sqlite" or not url.database:
        raise ConfigurationError(
            "this command is for SQLite; for PostgreSQL use pg_dump and pg_restore, see "
            "docs/operations.md"
        )
    return Path(url.database)


def for_writing(engine: Engine) -> Engine:
    """Return ``engine``, whose transactions all write: each is like that of :func:`writing`."""
    return engine.execution_options(daskscope_writes=True)


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes; commit it at the end, roll it back after an exception.

    On SQLite it takes the write lock at once: a transaction that reads first and writes later could
    not wait for the lock, it would fail.
    """
    with for_writing(engine).begin() as connection:
        yield connection


def writing_again(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do ``work`` in a transaction that writes; repeat it if a deadlock ended the transaction.

    It may have no effects but those that a rollback undoes.
    """
    left = _TIMES
    while True:
        left -= 1
        try:
            with writing(engine) as connection:
                return work(connection)
        except DBAPIError as error:
            if left == 0 or getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                raise


@contextmanager
def alone(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes, and excludes all others of this kind, in all processes."""
    with writing(engine) as connection:  # on SQLite, this waits for the write lock
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_ALONE_LOCK)))
        yield connection


def lock_until_end(connection: Connection, number: int, *, shared: bool) -> None:
    """Take PostgreSQL's advisory lock of this number until the transaction ends.

    Those who share it wait only for one who does not. On SQLite, a transaction that writes is alone
    anyway.
    """
    if connection.dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        connection.execute(select(lock(number)))


def take_turns(connection: Connection, what: str) -> None:
    """Wait until no other transaction that writes holds ``what``; hold it until this one ends.

    Call this before counting rows in order to add one: on PostgreSQL, two transactions could
    otherwise get the same count.
    """
    if connection.dialect.name == "postgresql":  # SQLite has one that writes at a time
        number = int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def make_workspace(connection: Connection, name: str) -> None:
    """Create the workspace ``name`` unless it exists."""
    Upsert(connection.engine, workspace).run(connection, [(name, time.time())])


def _url(address: str) -> URL:
    try:
        url = make_url(address)
    except ArgumentError:
        pass
    else:
        if url.get_backend_name() in ("postgresql", "postgres"):
            return url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "sqlite":
            return url
    raise ConfigurationError(
        "DASKSCOPE_DATABASE_URL is not a valid database address; for example "
        "postgresql://user:password@host/name"
    )


@contextmanager
def _opened(settings: Settings, *, make: bool = False) -> Iterator[Engine]:
    # The engine outlives the block, unless the block raises.
    url = _url(settings.database)
    engine: Engine | None = None
    try:
        # Every request thread may hold a connection, and the writer has one.
        options: dict[str, Any] = {"pool_size": settings.threads + 2, "max_overflow": 8}
        options["pool_use_lifo"] = True  # the one used last has its statements and pages at hand
        options["hide_parameters"] = True  # in errors: no users' data in the log
        # JSON has no NaN and no infinity: they would break each list that contains them.
        options["json_serializer"] = functools.partial(json.dumps, allow_nan=False)
        options["json_deserializer"] = msgspec.json.decode  # takes a third of Python's own time
        if url.get_backend_name() == "sqlite":
            if url.database and url.database != ":memory:":
                _make_private(Path(url.database), make=make)
            options["connect_args"] = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
        else:
            options["connect_args"] = {
                "connect_timeout": round(_BUSY_SECONDS),
                "client_encoding": "utf8",
                "application_name": "daskscope",
                **{name: value for name, value in _NOTICE_LOSS.items() if name not in url.query},
            }
        engine = create_engine(url, **options)
        sealing.attach(engine.dialect, Keys(settings))
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _set_up_sqlite)
        else:
            event.listen(engine, "connect", _set_up_postgresql)
            event.listen(engine, "checkout", _ping_if_idle)
            event.listen(engine, "checkin", _note_use)
        event.listen(engine, "begin", _begin)
        event.listen(engine, "before_cursor_execute", time_limit.check)
        yield engine
    except Exception as error:
        if engine is not None:
            engine.dispose()
        if isinstance(error, ImportError):
            raise ConfigurationError(
                f"the database {_address(url)} needs the package {error.name}: "
                f"{install_with('service', 'postgresql')}"
            ) from error
        if not isinstance(error, OSError | DBAPIError):
            raise
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise ConfigurationError(
            f"cannot open the database {_address(url)}: {reason}; "
            "see DASKSCOPE_DATA_DIR and DASKSCOPE_DATABASE_URL"
        ) from error


def _write_anew(engine: Engine) -> None:
    # Data that was deleted or replaced stays in SQLite's file until its space is used again.
    connection = engine.raw_connection()  # because VACUUM cannot run in a transaction
    try:
        connection.cursor().execute("VACUUM")
    finally:
        connection.close()


def _refusal(engine: Engine, position: Position) -> ConfigurationError:
    return ConfigurationError(f"the database {_address(engine.url)} {position.sentence}")


def _check_encoding(connection: Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise ConfigurationError(
            f"the database {_address(connection.engine.url)} has the encoding {encoding}, "
            "which lacks most characters; create one with createdb --encoding UTF8 "
            "--template template0"
        )


def _address(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _make_private(file: Path, *, make: bool) -> None:
    # SQLite gives its -wal and -shm files the mode of the database.
    if make:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists():
            make_private(file)
            give_to_owner_of_folder(file)
    elif not file.exists():
        raise ConfigurationError(
            f"there is no database {file}; 'daskscope serve' or '{revisions.COMMAND}' creates "
            "it. The folder is DASKSCOPE_DATA_DIR (--data-dir)"
        )
    file.chmod(0o600)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # SQLAlchemy begins transactions (below); Python's sqlite3 must not begin any on its own.
    connection.isolation_level = None
    _use_wal(connection)
    time_limit.watch_sqlite(connection)
    for pragma in (
        "synchronous=FULL",  # a commit is on the disk before it is acknowledged
        "secure_delete=ON",  # removed and replaced data is overwritten
        "foreign_keys=ON",
        "cache_size=-16384",  # KiB, per connection
        # Pages of 4 KiB: the same ones change often, and are then copied into the file only once.
        "wal_autocheckpoint=16000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    # As on SQLite: a query outside of a transaction is one message to the server, and not three.
    connection.autocommit = True
    # Just-in-time compilation takes longer than to run any of our statements.
    connection.execute("SET jit = off")


def _use_wal(connection: Any) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if not connection.execute("PRAGMA page_count").fetchone()[0]:
                # So that space can be given back in steps. Only for a new database: setting this on
                # an old one is a write, and every connection would wait for the lock.
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL").close()
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            # If several processes create a database at once, SQLite fails here in all but one.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("daskscope_writes", False)
    immediate = writes and connection.dialect.name == "sqlite"
    beginning = time_limit.beginning(connection.dialect.name)
    execute(connection, "BEGIN IMMEDIATE" if immediate else beginning)


def _note_use(_connection: Any, record: ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _ping_if_idle(connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
    # A restart of the server leaves dead connections behind. Checking each time would cost as much
    # as the queries of most requests.
    if time.monotonic() - record.info.get("used", -math.inf) > _PING_SECONDS:
        try:
            connection.execute("")
        except Exception as error:
            raise DisconnectionError from error  # the pool opens another one
