"""How long the database may work for one request that only reads.

A query takes as long as there are rows, and whoever may send can store ten million of them. The
threads that answer requests are few: they must not be taken for minutes, by whatever page it is. So
what is asked of the database in such a thread ends once its time is over. What works in the
background has no limit here: nobody waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds, by the clock. Pages take a tenth of one; a CSV file of 10,000 computations takes six,
#: and the machine may be busy with other things.
SECONDS = 30.0

#: Steps of SQLite's after which it asks whether to go on: some 50 ms.
_STEPS = 1_000_000

_of_thread = threading.local()


class TookTooLong(Exception):
    """The time was over before the next query."""


@contextmanager
def limited() -> Iterator[None]:
    """End what this thread asks of the database after :data:`SECONDS`."""
    _of_thread.until = time.monotonic() + SECONDS
    try:
        yield
    finally:
        _of_thread.until = None


@contextmanager
def asking_others() -> Iterator[None]:
    """Do not count the time that this thread waits for something else than the database."""
    began = time.monotonic()
    try:
        yield
    finally:
        until: float | None = getattr(_of_thread, "until", None)
        if until is not None:
            _of_thread.until = until + time.monotonic() - began


def is_over() -> bool:
    """Return whether the time of this thread is over; never where it has no limit."""
    until: float | None = getattr(_of_thread, "until", None)
    return until is not None and time.monotonic() > until


def watch_sqlite(connection: Any) -> None:
    """Have a connection of SQLite's driver end queries whose time is over."""
    connection.set_progress_handler(is_over, _STEPS)


def beginning(dialect: str) -> str:
    """Return what begins a transaction that reads, in a database of this dialect."""
    until: float | None = getattr(_of_thread, "until", None)
    if dialect != "postgresql" or until is None:
        return "BEGIN"
    # Of one query. A little later than the time is over: then it is known why it ended.
    left = max(until - time.monotonic(), 0.0)
    return f"BEGIN; SET LOCAL statement_timeout = {math.ceil(left * 1000) + 10}"


def check(*_: Any) -> None:
    """Raise TookTooLong if the time of this thread is over: before each query."""
    if is_over():
        raise TookTooLong
