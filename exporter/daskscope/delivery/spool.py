"""Stores undelivered heartbeats in files that survive the process.

The plugin writes to the spool while the service does not accept data, and removes it once
everything is delivered. If a process leaves files behind, however it ended, the next process with
the same endpoint and token delivers them. Several processes can share a folder: a process that
writes or delivers a file holds a lock on it until it ends.

A file is a sequence of records: ``dsk1``, the length and the CRC-32 of the body (big-endian, 4
bytes each), and the body of a heartbeat as it is sent. Reading skips a damaged record up to the
next intact one. This module passes no OSError on: a spool that cannot be written causes one
warning.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import logging
import os
import secrets
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

from daskscope.delivery.warn_once import WarnOnce

try:
    import fcntl
except ImportError:  # Windows: see _lock
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("daskscope")

_MAGIC = b"dsk1"
_HEADER = struct.Struct(">4sII")
_SUFFIX = ".beats"

#: A file takes at most this fraction (1/4) of the spool's size, so that the oldest can be dropped.
_PARTS = 4

#: The byte that is locked on Windows, far behind any record: a locked byte cannot be read.
_LOCKED = 0x7FFF_0000

_PLATFORM = sys.platform


def directory(setting: str | None) -> Path | None:
    """Return the folder for ``spool.directory`` on this machine; None if nothing is spooled."""
    if setting == "":
        return None
    try:
        return _usual_folder() if setting is None else Path(setting).expanduser()
    except RuntimeError as error:
        logger.warning(
            "daskscope: no data can be spooled while the service is unreachable (%s); set "
            "daskscope.spool.directory.",
            error,
        )
        return None


def _usual_folder() -> Path:
    """Return the folder for such files of this user, by the platform's conventions."""
    state = os.environ.get("XDG_STATE_HOME")
    if state:
        return Path(state) / "daskscope"
    posix = Path.home() / ".local" / "state" / "daskscope"
    if _PLATFORM == "win32":
        local = os.environ.get("LOCALAPPDATA")
        folder = (Path(local) if local else Path.home() / "AppData" / "Local") / "daskscope"
    elif _PLATFORM == "darwin":
        folder = Path.home() / "Library" / "Application Support" / "daskscope"
    else:
        return posix
    # Earlier versions used this folder on all platforms, and may have left data there.
    return posix if posix.is_dir() else folder


def read_records(data: bytes) -> Iterator[bytes]:
    """Yield the bodies of the intact records in ``data``, in order."""
    at = data.find(_MAGIC)
    while at >= 0 and at + _HEADER.size <= len(data):
        _, length, checksum = _HEADER.unpack_from(data, at)
        body = data[at + _HEADER.size : at + _HEADER.size + length]
        if len(body) == length and zlib.crc32(body) == checksum:
            yield body
            at = data.find(_MAGIC, at + _HEADER.size + length)
        else:
            at = data.find(_MAGIC, at + 1)


@dataclass(slots=True)
class _File:
    """A file whose lock this process holds. ``size`` is in bytes."""

    path: Path
    descriptor: int
    size: int = 0
    records: int = 0

    def append(self, record: bytes) -> None:
        rest = record
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError:
            # Remove the partial record. Readers skip it if that fails.
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        self.size += len(record)
        self.records += 1

    def remove(self) -> bool:
        """Remove the file. Return whether it is gone."""
        # Remove it while the lock is held, so that no other process claims it. Windows cannot
        # remove an open file, so try again afterwards.
        gone = _unlink(self.path)
        self.release()
        return gone or _unlink(self.path)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


#: All spools, to release their locks in a forked process.
_spools: WeakSet[Spool] = WeakSet()


class Spool:
    """Data that this plugin could not deliver, and data that others left behind. Not thread-safe.

    ``drops`` counts, as ``spooled beat``, heartbeats that were dropped because the spool was full.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        endpoint: str,
        token: str | None,
        max_bytes: int,
        drops: Counter[str],
    ) -> None:
        self._folder = folder
        # A hash of endpoint and token in file names: heartbeats must not be sent with another
        # token, and the name must not reveal either.
        self._whose = hashlib.sha256(f"{endpoint}\n{token}".encode()).hexdigest()[:16]
        self._max_bytes = max_bytes
        self._drops = drops
        self._own: list[_File] = []
        self._backlog: list[_File] = []
        # Files that Windows did not remove, because another process had them open.
        self._unremoved: set[Path] = set()
        self._records: Iterator[bytes] | None = None
        self._next: bytes | None = None
        self._warn_once = WarnOnce()
        _spools.add(self)

    @property
    def is_used(self) -> bool:
        """Whether the spool contains data of this plugin."""
        return bool(self._own)

    # --- writing ----------------------------------------------------------------------------------

    def append(self, body: bytes) -> bool:
        """Write the body of a heartbeat; return whether it was written.

        There is no fsync: a crash of the machine may lose the last seconds, a crash of the process
        nothing.
        """
        if self._folder is None:
            return False
        record = _HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(len(record))
            if not self._own or self._own[-1].size + len(record) > self._max_bytes // _PARTS:
                self._own.append(self._create(self._folder))
            self._own[-1].append(record)
        except OSError as error:
            self._warn(
                f"cannot write undelivered data to {self._folder} ({error.strerror}); it "
                "waits in memory and is lost if the scheduler ends before the service is "
                "reachable again. See the settings daskscope.spool.directory and "
                "daskscope.spool.max-bytes"
            )
            return False
        return True

    def forget_removed(self) -> int:
        """Forget own files that another program has removed, such as a cleaner of old files.

        Return how many heartbeats they contained.
        """
        removed = [file for file in self._own if os.fstat(file.descriptor).st_nlink == 0]
        for file in removed:
            self._own.remove(file)
            file.release()
        if removed:
            self._warn(
                f"undelivered data in {self._folder} was removed by another program; what memory "
                "still holds is written there again"
            )
        return sum(file.records for file in removed)

    def discard(self) -> None:
        """Remove this plugin's own data, which has been delivered."""
        for file in self._own:
            self._remove(file)
        self._own.clear()

    def _remove(self, file: _File) -> bool:
        self._unremoved = {path for path in self._unremoved if not _unlink(path)}
        gone = file.remove()
        if not gone:
            self._unremoved.add(file.path)
        return gone

    def _create(self, folder: Path) -> _File:
        name = f"{time.time_ns():020}-{self._whose}-{secrets.token_hex(4)}{_SUFFIX}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        file = _File(folder / name, os.open(folder / name, flags, 0o600))
        _lock(file.descriptor)
        return file

    def _make_room(self, size: int) -> None:
        if size > self._max_bytes:
            raise OSError(errno.EFBIG, f"a heartbeat of {size} bytes exceeds spool.max-bytes")
        entries = self._entries()
        total = sum(length for _, length in entries)
        own = {file.path: file for file in self._own}
        for path, length in entries:
            if total + size <= self._max_bytes:
                return
            file = own.get(path) or self._claimed(path)
            if file is None:
                continue  # another scheduler uses it
            self._drops["spooled beat"] += file.records or sum(
                1 for _ in read_records(_content(file))
            )
            if path in own:
                self._own.remove(file)
            if self._remove(file):
                total -= length
        if total + size > self._max_bytes:
            raise OSError(errno.ENOSPC, "the data of other schedulers fills spool.max-bytes")

    # --- delivering -------------------------------------------------------------------------------

    def claim(self) -> None:
        """Take over files that others with the same endpoint and token left behind."""
        if self._folder is None:
            return
        mine = {file.path for file in (*self._own, *self._backlog)} | self._unremoved
        for path, length in self._entries():
            if self._whose not in path.name.split("-"):
                continue
            # An empty file has just been created by another process.
            if length and path not in mine and (file := self._claimed(path)) is not None:
                self._backlog.append(file)

    def deliver_own(self) -> None:
        """Also deliver this plugin's own data, because memory does not hold all of it any more."""
        self._backlog += self._own
        self._own.clear()

    def next(self) -> bytes | None:
        """Return the oldest body to deliver, or None. It stays the same until :meth:`taken`."""
        while self._next is None and self._backlog:
            if self._records is None:
                data = _content(self._backlog[0])
                self._records = read_records(data)
                if len(data) != sum(_HEADER.size + len(body) for body in read_records(data)):
                    self._warn(
                        f"{self._backlog[0].path} is damaged; only its intact heartbeats are sent"
                    )
            self._next = next(self._records, None)
            if self._next is None:
                self._records = None
                self._remove(self._backlog.pop(0))
        return self._next

    def taken(self) -> None:
        """Advance to the next body: the service has accepted the last, or will never accept it."""
        self._next = None

    def close(self) -> None:
        """Release all files, and leave them to the next plugin."""
        for file in (*self._own, *self._backlog):
            file.release()
        self._own.clear()
        self._backlog.clear()
        self._records = self._next = None
        self._folder = None

    def _entries(self) -> list[tuple[Path, int]]:
        """Return the files and their lengths, the oldest first."""
        assert self._folder is not None
        files: list[tuple[Path, int]] = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # the file may be removed at any time
                        if entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                            length = entry.stat(follow_symlinks=False).st_size
                            files.append((self._folder / entry.name, length))
        except (FileNotFoundError, NotADirectoryError):
            pass  # a later write reports it
        except OSError as error:
            self._warn(f"cannot read the spool in {self._folder} ({error.strerror})")
        return sorted(files)

    def _claimed(self, path: Path) -> _File | None:
        try:
            descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot send the data in {path} ({error.strerror})")
            return None
        # The process that held the lock may have delivered and removed the file meanwhile.
        if _lock(descriptor) and path.exists():
            return _File(path, descriptor)
        os.close(descriptor)
        return None

    def hangs(self, outcome: str) -> None:
        """Warn that the disk does not respond, and of the ``outcome``. From any thread."""
        self._warn(
            f"cannot use the spool in {self._folder} (the disk does not respond); {outcome}. "
            "See the settings daskscope.spool.directory and daskscope.spool.max-bytes"
        )

    def _warn(self, problem: str) -> None:
        self._warn_once("spool", "daskscope: %s. This is the only warning.", problem)


def _content(file: _File) -> bytes:
    try:
        return file.path.read_bytes()
    except OSError:
        return b""


def _unlink(path: Path) -> bool:
    """Remove a file. Return whether it is gone."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _lock(descriptor: int) -> bool:
    """Take the lock on a file; return False if another process holds it.

    The operating system releases it when the process ends.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_on_windows(descriptor)
    except OSError as error:
        # Without locks in the file system, a heartbeat may be delivered twice, which is harmless.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _lock_on_windows(descriptor: int) -> None:
    msvcrt: Any = importlib.import_module("msvcrt")
    os.lseek(descriptor, _LOCKED, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def _release_after_fork() -> None:
    # A forked process shares the locks, so no other process could deliver the files while it lives.
    for spool in tuple(_spools):
        spool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_after_fork)
