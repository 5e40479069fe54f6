"""Ports on loopback that no other test has, in this process or in another one.

A port that one test has closed may still be asked by what that test has started: a plugin that
sends again, a client that connects again. Where the next test listened on it, in this process or
in another one that runs tests, it would get what is not its own.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

#: None of those that Linux gives to connections: one of them could take it before it is listened
#: on.
_PORTS = range(10_240, 32_768)
#: So many in a row are one process's for as long as it runs.
_OWN = 512

_choosing = threading.Lock()


def free_port() -> int:
    """Return a loopback port that nothing listens on; the same one not before 500 others."""
    with _choosing:
        return next(_free)


def _free_ports() -> Iterator[int]:
    blocks = [range(first, first + _OWN) for first in _PORTS[::_OWN]]
    random.SystemRandom().shuffle(blocks)
    # With more processes than blocks, some share one.
    block = next(filter(_is_ours, blocks), blocks[0])
    return filter(_is_free, itertools.cycle(block))


def _is_ours(block: range) -> bool:
    """Return whether these ports are this process's now, and until it ends."""
    folder = Path(tempfile.gettempdir(), f"daskscope-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(block.start), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True  # and it stays open


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


_free = _free_ports()
