"""Copies of SQLite's file: made while the service runs, and put back where it was.

PostgreSQL has tools of its own for both.
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

#: Pages that are copied between two looks at how far it is.
_PAGES = 4096


def back_up(settings: Settings, target: Path, on_progress: Callable[[float], None]) -> None:
    """Copy the database, as it is at this moment, to ``target``, and check the copy.

    Whoever has it open goes on reading and writing. ``on_progress`` gets the part that is done.

    Raises
    ------
    ConfigurationError
        It is not SQLite, it cannot be read, ``target`` exists, or the copy is damaged.
    """
    file = sqlite_file(settings)
    if not file.exists():
        raise ConfigurationError(f"there is no database {file}")
    if target.exists():
        raise ConfigurationError(f"{target} already exists; choose a new file name")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)  # of a copy that was broken off
        make_private(part)
        with closing(sqlite3.connect(file, isolation_level=None)) as source:
            # In one transaction that reads: else each write of another begins the copy anew.
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
    """Put a copy of ``backup`` where the database of ``settings`` is.

    ``replace``: move one that is there aside; return where it is now.

    Raises
    ------
    ConfigurationError
        It is not SQLite; there is a database and ``replace`` is not set, or the other way round,
        or someone has it open; or ``backup`` is damaged, or none of a database that this
        daskscope knows. Nothing is changed then.
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
        part.unlink(missing_ok=True)  # of a copy that was broken off
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
            found = revisions.position(connection)
    finally:
        engine.dispose()
    if found.state == "empty":
        raise ConfigurationError(f"{backup} cannot be used: it contains no table of daskscope")
    if found.state not in ("current", "older"):
        raise ConfigurationError(f"{backup} cannot be used: it {found.sentence}")


def _check_unused(file: Path) -> None:
    try:
        with closing(sqlite3.connect(file, timeout=1, isolation_level=None)) as connection:
            # Leaving the mode with a log beside the file needs the database alone.
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise ConfigurationError(f"{file} is in use; stop the service first") from error
    except sqlite3.DatabaseError:
        pass  # it is damaged, which may be why it is to be replaced


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
    # On the disk before it has its name, and its name on the disk too.
    for path in (part, part.parent):
        if path == part.parent:
            part.rename(target)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
