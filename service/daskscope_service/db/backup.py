"""Backs up SQLite's file while the service runs, and restores it.

PostgreSQL has its own tools for both.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine

from daskscope.errors import ConfigurationError
from daskscope_service.db import revisions
from daskscope_service.db.engine import sqlite_file
from daskscope_service.db.private_files import give_to_owner_of_folder, make_private
from daskscope_service.settings import Settings

#: Pages that are copied between two reports of progress.
_PAGES = 4096


def back_up(settings: Settings, target: Path, on_progress: Callable[[float], None]) -> None:
    """Copy the database, as it is at this moment, to ``target``, and check the copy.

    Others can go on reading and writing. ``on_progress`` gets the share that is done, 0 to 1.

    Raises
    ------
    ConfigurationError
        The database is not SQLite, or cannot be read; ``target`` exists; or the copy is damaged.
    """
    file = sqlite_file(settings)
    if not file.exists():
        raise ConfigurationError(f"there is no database {file}")
    if target.exists():
        raise ConfigurationError(f"{target} already exists; choose a new file name")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)  # left by an interrupted copy
        make_private(part)
        with closing(sqlite3.connect(file, isolation_level=None)) as source:
            # In one transaction that reads: otherwise each write by another process restarts the
            # copy.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            with closing(sqlite3.connect(part, isolation_level=None)) as copy:
                source.backup(
                    copy,
                    pages=_PAGES,
                    progress=lambda _, left, all: on_progress(1 - left / max(all, 1)),
                )
                copy.execute("PRAGMA journal_mode=DELETE").fetchone()  # all of it in one file
        _check(part, f"the copy of {file} (and so perhaps the database itself)")
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot copy {file} to {target}: {error}") from error
    except ConfigurationError:
        part.unlink()
        raise
    _put(part, target)


def restore(settings: Settings, backup: Path, *, replace: bool) -> Path | None:
    """Put a copy of ``backup`` in the place of the database of ``settings``.

    ``replace``: move an existing database aside. Return its new path, or None if there was none.

    Raises
    ------
    ConfigurationError
        The database is not SQLite; it exists and ``replace`` is not set, or the other way round; it
        is open; or ``backup`` is damaged, or no database that this daskscope knows. Then nothing is
        changed.
    """
    file = sqlite_file(settings)
    if file.exists():
        if not replace:
            raise ConfigurationError(
                f"the database {file} already exists; --replace moves it aside and keeps it "
                "under another name"
            )
        _check_unused(file)
    elif replace:
        raise ConfigurationError(
            f"there is no database {file} to replace: --data-dir or DASKSCOPE_DATA_DIR names the "
            "service's folder; where there is no database yet, leave out --replace"
        )
    part = file.with_name(f"{file.name}.restoring")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.unlink(missing_ok=True)  # left by an interrupted copy
        make_private(part)
        shutil.copyfile(backup, part)
        _check(part, str(backup))
        _check_revision(part, backup)
        give_to_owner_of_folder(part)
    except (OSError, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot restore {backup}: {error}") from error
    except ConfigurationError:
        part.unlink()
        raise
    aside: Path | None = None
    if file.exists():
        try:
            _check_unused(file)  # by now, the service may have been started
        except ConfigurationError:
            part.unlink()
            raise
        aside = _move_aside(file)
    _put(part, file)
    return aside


def _check(file: Path, name: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        rows = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    if rows != ["ok"]:
        raise ConfigurationError(f"{name} is damaged: {'; '.join(' '.join(rows).splitlines())}")


def _check_revision(file: Path, backup: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    try:
        with engine.connect() as connection:
            position = revisions.position(connection)
    finally:
        engine.dispose()
    if position.state == "empty":
        raise ConfigurationError(f"{backup} cannot be used: it contains no table of daskscope")
    if position.state not in ("current", "older"):
        raise ConfigurationError(f"{backup} cannot be used: it {position.sentence}")


def _check_unused(file: Path) -> None:
    try:
        with closing(sqlite3.connect(file, timeout=1, isolation_level=None)) as connection:
            # SQLite leaves WAL mode only if no other connection has the database open.
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise ConfigurationError(f"{file} is in use; stop the service first") from error
    except sqlite3.DatabaseError:
        pass  # it is damaged, perhaps the reason to replace it


def _move_aside(file: Path) -> Path:
    number = 1
    while (aside := file.with_name(f"{file.name}.replaced-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        old = file.with_name(file.name + suffix)
        if old.exists():
            old.rename(aside.with_name(aside.name + suffix))
    return aside


def _put(part: Path, target: Path) -> None:
    # The file is on the disk before it gets its name; then the name is, too.
    for path in (part, part.parent):
        if path == part.parent:
            part.rename(target)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
