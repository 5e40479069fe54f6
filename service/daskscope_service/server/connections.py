"""Closes connections that carry no request: each takes one of a limited number of places.

The server itself closes a connection whose headers do not end, and an idle one. It leaves open a
client that connects and sends nothing. The kernel lists all of them as the process's open files,
and :class:`~daskscope_service.server.front.Front` knows which of them have a request. Only Linux
gives them unique numbers (``/proc``): elsewhere, nothing is closed here.

A client that requests much and reads nothing makes the server hold all of that in memory. The
kernel sees only what fits into its own buffer, so it is computed here: the bytes answered on a
connection, minus those that its other side has acknowledged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import sys
import termios
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_OPEN_FILES = "/proc/self/fd"

#: Seconds between two rounds: one takes about 5 µs for each connection. A round comes earlier once
#: so many bytes were answered.
_INTERVAL = 5.0
_ANSWERED = 64 * 1024 * 1024

#: A client that is still receiving an answer gets this many times as long.
_READING = 10

#: If more than the first share of all places is taken, unused connections are closed at once, until
#: only the second share is taken.
_FULL, _ENOUGH = 3 / 4, 1 / 2

#: Bytes that may wait to be read on all connections together. If more wait, connections are closed
#: until only the second number waits. A connection counts only above the third number.
_MOST_UNREAD, _FEW_UNREAD, _MUCH_OF_ONE = 256 * 1024 * 1024, 128 * 1024 * 1024, 16 * 1024

#: Where ``tcpi_bytes_acked`` is in Linux's ``tcp_info``.
_ACKNOWLEDGED = struct.Struct("=120xQ")


@dataclass(slots=True)
class _Connection:
    peer: str
    address: str
    since: float
    answered: int = 0
    #: How many of these bytes are known to have arrived.
    read: int = 0

    @property
    def unread(self) -> int:
        return self.answered - self.read


class Connections:
    """The connections of this process to ``port``, at most ``places``.

    ``idle``: seconds after which a connection without a request is closed.
    """

    def __init__(self, port: int, *, idle: float, places: int) -> None:
        self._port = port
        self._idle = idle
        self._places = places
        #: Seconds between two calls of :meth:`look`.
        self.interval = min(1.0, idle)
        self._due = time.monotonic() + min(_INTERVAL, idle)
        #: By the inode of the socket, because the number of an open file is soon used again.
        self._known: dict[int, _Connection] = {}
        self._requests: Counter[str] = Counter()
        self._used: dict[str, float] = {}
        self._answered: Counter[str] = Counter()
        self._bytes = 0

    def begin(self, peer: str) -> None:
        """Note that a request of ``peer``, an address with its port, has begun."""
        self._requests[peer] += 1

    def end(self, peer: str, answered: int) -> None:
        """Note that a request of ``peer`` was answered, with so many bytes."""
        self._answered[peer] += answered
        self._bytes += answered
        self._used[peer] = time.monotonic()
        self._requests[peer] -= 1
        if not self._requests[peer]:
            del self._requests[peer]

    def look(self) -> None:
        """Do a round if it is time for one."""
        if time.monotonic() >= self._due or self._bytes > _ANSWERED:
            self._due = time.monotonic() + min(_INTERVAL, self._idle)
            self.round()

    def round(self) -> None:
        """Close connections that were unused for too long, and those that do not read answers."""
        if not os.path.isdir(_OPEN_FILES):
            return
        now = time.monotonic()
        # What is noted during this round is left to the next one.
        used, self._used = self._used, {}
        answered, self._answered, self._bytes = self._answered, Counter(), 0
        open_files = self._look(now)
        for connection in self._known.values():
            connection.answered += answered[connection.peer]
            at = used.get(connection.peer)
            if at is not None:
                connection.since = max(connection.since, at)
        unused = {
            inode: file
            for inode, file in open_files.items()
            if self._known[inode].peer not in self._requests
            and self._known[inode].peer not in self._used
        }
        for inode in {*self._too_long(unused, now), *self._unread(open_files)}:
            _close(open_files[inode], inode)

    def _look(self, now: float) -> dict[int, int]:
        """Return the open file of each connection, by its inode."""
        sockets: dict[int, int] = {}
        for name in os.listdir(_OPEN_FILES):
            with contextlib.suppress(OSError):  # closed meanwhile
                status = os.fstat(int(name))
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                if status.st_ino not in self._known:
                    peer = _peer(int(name), self._port)
                    if peer is None:
                        continue
                    self._known[status.st_ino] = _Connection(*peer, since=now)
                sockets[status.st_ino] = int(name)
        for inode in self._known.keys() - sockets.keys():
            del self._known[inode]
        return sockets

    def _too_long(self, unused: dict[int, int], now: float) -> Iterable[int]:
        """Yield the inodes of the ``unused`` connections to close."""
        known = self._known
        for inode, file in unused.items():
            idle = now - known[inode].since
            if idle >= self._idle and (idle >= self._idle * _READING or not _unsent(file)):
                yield inode
        if len(known) <= self._places * _FULL:
            return
        # A client only loses the time to connect again. The address with the most connections is
        # first.
        of_address = Counter(connection.address for connection in known.values())
        crowd = sorted(
            unused, key=lambda inode: (-of_address[known[inode].address], known[inode].since)
        )
        yield from crowd[: len(known) - int(self._places * _ENOUGH)]

    def _unread(self, files: dict[int, int]) -> Iterable[int]:
        """Yield the inodes of the connections to close because too much waits to be read."""
        much: list[int] = []
        of_address: Counter[str] = Counter()
        for inode, connection in self._known.items():
            if connection.unread > _MUCH_OF_ONE:
                acknowledged = _acknowledged(files[inode])
                connection.read = max(connection.read, min(acknowledged, connection.answered))
                if connection.unread > _MUCH_OF_ONE:
                    much.append(inode)
                    of_address[connection.address] += connection.unread
        waits = of_address.total()
        if waits <= _MOST_UNREAD:
            return
        known = self._known
        much.sort(key=lambda one: (-of_address[known[one].address], -known[one].unread))
        for inode in much:
            if waits <= _FEW_UNREAD:
                return
            waits -= known[inode].unread
            yield inode


def _peer(file: int, port: int) -> tuple[str, str] | None:
    """Return the peer of a socket, with its port and without; None if it is not on ``port``."""
    with socket.socket(fileno=os.dup(file)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if copy.getsockname()[1] != port:
            return None
        host, its_port = copy.getpeername()[:2]  # raises if it only listens
    return (f"[{host}]:{its_port}" if ":" in host else f"{host}:{its_port}"), host


def _unsent(file: int) -> int:
    """Return how many bytes the peer has not acknowledged; 0 if the system does not say."""
    with contextlib.suppress(OSError):
        answer = fcntl.ioctl(file, termios.TIOCOUTQ, b"\0" * 4)
        return int.from_bytes(answer, "little")
    return 0


def _acknowledged(file: int) -> int:
    """Return how many bytes the peer has acknowledged so far; very many if that is unknown."""
    with contextlib.suppress(OSError, struct.error), socket.socket(fileno=os.dup(file)) as copy:
        known = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        (acknowledged,) = _ACKNOWLEDGED.unpack_from(known)
        return int(acknowledged)
    return sys.maxsize


def _close(file: int, inode: int) -> None:
    with (
        contextlib.suppress(OSError),  # it has ended by itself
        socket.socket(fileno=os.dup(file)) as copy,
    ):
        if os.fstat(copy.fileno()).st_ino == inode:  # the number may be used again by now
            copy.shutdown(socket.SHUT_RDWR)
