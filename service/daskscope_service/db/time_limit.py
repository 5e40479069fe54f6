"""Limits how long the database may work for one request that only reads.

A query takes longer the more rows there are, and anyone who may send data can store ten million of
them. Few threads answer requests, and no page may take them for minutes. So queries of such a
thread end once its time is over. Background work has no limit here: nobody waits for it.
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

#: Steps of SQLite between two checks of the time: some 50 ms.
_STEPS = 1_000_000

_of_thread = threading.local()


class TookTooLong(Exception):
    """The time was over before the next query began."""


@contextmanager
def limited() -> Iterator[None]:
    """End this thread's queries after :data:`SECONDS`."""
    _of_thread.until = time.monotonic() + SECONDS
    try:
        yield
    finally:
        _of_thread.until = None


@contextmanager
def asking_others() -> Iterator[None]:
    """Do not count the time in which this thread waits for something other than the database."""
    began = time.monotonic()
    try:
        yield
    finally:
        until: float | None = getattr(_of_thread, "until", None)
        if until is not None:
            _of_thread.until = until + time.monotonic() - began


def is_over() -> bool:
    """Return whether the time of this thread is over; False if it has no limit."""
    until: float | None = getattr(_of_thread, "until", None)
    return until is not None and time.monotonic() > until


def watch_sqlite(connection: Any) -> None:
    """Let SQLite end queries on this connection once their time is over."""
    connection.set_progress_handler(is_over, _STEPS)


def beginning(dialect: str) -> str:
    """Return the SQL that begins a transaction that reads, in a database of this dialect."""
    until: float | None = getattr(_of_thread, "until", None)
    if dialect != "postgresql" or until is None:
        return "BEGIN"
    # The limit of one query. It ends a little after the time, so that the reason is known.
    left = max(until - time.monotonic(), 0.0)
    return f"BEGIN; SET LOCAL statement_timeout = {math.ceil(left * 1000) + 10}"


def check(*_: Any) -> None:
    """Raise TookTooLong if the time of this thread is over. Called before each query."""
    if is_over():
        raise TookTooLong
