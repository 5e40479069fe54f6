"""Reads log records in the processes that log them: on the workers, and on the scheduler.

This file is also sent to the workers, as text, and runs there
(``daskscope.observe.messages.logs``): workers may lack daskscope, and have another Python than the
scheduler. So it uses only the standard library, distributed, and ``daskscope.containment`` and
``daskscope.record_text``, which are sent along. It runs on any Python that distributed supports.

It wraps the method by which ``logging`` calls the handlers. A handler of our own at the root logger
would miss loggers that do not propagate, such as Dask's; would disable the user's ``basicConfig``;
and would suppress what Python prints if there is no handler.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.scheduler import Scheduler
from distributed.utils import thread_state  # type: ignore[attr-defined]  # of dask, or its own

from daskscope.containment import Contained, contain
from daskscope.record_text import Described, describe, of_framework

#: The operation of the workers' messages to the scheduler.
OP = "daskscope-logs"

#: Limits on records and characters of one worker, or of the scheduler: first at once, then per
#: second.
RECORDS, RECORDS_PER_SECOND = 200, 10
CHARACTERS, CHARACTERS_PER_SECOND = 400_000, 20_000

#: Records that a worker stores while its event loop is too busy to send them.
MAX_PENDING = 1_000
#: Seconds that an ending worker waits until its last lines are sent.
LAST_LINES_PATIENCE = 1.0

#: The beginning of Dask's records of failed task runs. Without the user's keys and texts they are
#: useless, and daskscope sends the failure as an exception anyway.
REPORTED_OTHERWISE = "Compute Failed\n"

# The attribute of our wrapper of logging's method with the wrapper, the original, and the takers.
_TAP = "_daskscope_tap"
# The attribute of a record, while it is handled, with the worker in this process that has taken it.
_TAKER = "_daskscope"


def tap(take: Callable[[logging.LogRecord], None]) -> Callable[[], None]:
    """Call ``take`` with each record logged in this process. Return a function to stop it."""
    # All takers in a process share one wrapper and its list, so they can end in any order.
    known = getattr(logging.Logger.callHandlers, _TAP, None)
    wrapper, original, takers = _wrap() if known is None else known
    process = os.getpid()

    def take_here(record: logging.LogRecord) -> None:
        # Not in a forked process, which sends no records, and where a lock of ours may never be
        # released.
        if os.getpid() == process:
            take(record)

    takers.append(take_here)

    def untap() -> None:
        takers.remove(take_here)
        # If other code has wrapped it since, ours stays inside it and does nothing.
        if not takers and logging.Logger.callHandlers is wrapper:
            logging.Logger.callHandlers = original  # type: ignore[method-assign]

    return untap


def _wrap() -> tuple[Any, Any, list[Any]]:
    original = logging.Logger.callHandlers
    takers: list[Any] = []
    busy = threading.local()
    contained = Contained()

    def taken(record: logging.LogRecord) -> None:
        # Formatting a record's arguments may log again, which must not recurse.
        if not takers or getattr(busy, "now", False):
            return
        busy.now = True
        try:
            for take in tuple(takers):
                with contained:  # not counted: it may belong to any taker
                    take(record)
        finally:  # a thread may be interrupted at any time, and log again
            busy.now = False
            # Other code may store the record or write all of its attributes.
            record.__dict__.pop(_TAKER, None)

    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
        original(self, record)
        taken(record)

    try:
        wrapper = _followed_by(original, taken)
    except Exception as error:  # there is no source code
        contain(error)
        wrapper = call_handlers
    tapped = wrapper, original, takers
    setattr(wrapper, _TAP, tapped)
    logging.Logger.callHandlers = wrapper  # type: ignore[method-assign]
    return tapped


def _followed_by(original: Any, then: Callable[[logging.LogRecord], None]) -> Any:
    """Return a function that does the same as the standard library's ``original``, and then calls
    ``then`` with the record.

    It is compiled from the same source, so no frame of ours is on the stack while handlers run.
    They search the stack for the logging code, by file names or by counting frames.
    """
    code = original.__code__
    source = f"class Logger:\n{inspect.getsource(original)}"
    method: Any = ast.parse(source).body[0].body[0]  # type: ignore[attr-defined]
    if original.__globals__ is not vars(logging) or any(
        isinstance(node, ast.Return) for node in ast.walk(method)
    ):
        raise ValueError("it is not the standard library's, or may return before its end")
    ast.increment_lineno(method, code.co_firstlineno - method.lineno)
    maker: Any = ast.parse(f"def make(then):\n    ...\n    return {method.name}")
    last = ast.parse(f"then({method.args.args[1].arg})").body[0]
    for node in ast.walk(last):
        ast.copy_location(node, method.body[-1])
    method.body.append(last)
    maker.body[0].body[0] = method
    made: dict[str, Any] = {}
    compiled = compile(maker, code.co_filename, "exec", dont_inherit=True)
    exec(compiled, vars(logging), made)  # noqa: S102 # the standard library's own code
    return functools.wraps(original)(made["make"](then))


def wanted(record: logging.LogRecord, level: int) -> bool:
    """Return whether a record is serious enough, and not our own."""
    if of_framework(record.name):
        # Sending makes Dask log below that level, which would be an endless loop.
        level = max(level, logging.INFO)
        if isinstance(record.msg, str) and record.msg.startswith(REPORTED_OTHERWISE):
            return False
    return record.levelno >= level and record.name.split(".", 1)[0] != "daskscope"


class Allowance:
    """A rate limit: ``most`` at once, refilled by ``per_second``."""

    def __init__(self, most: float, per_second: float) -> None:
        self._most = self._left = most
        self._per_second = per_second
        self._at = time.monotonic()

    def take(self, amount: float) -> bool:
        """Take ``amount``. Return False, and take nothing, if less is left."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if amount > self._left:
            return False
        self._left -= amount
        return True


class Records:
    """Describes wanted records within the rate limits. Thread-safe."""

    def __init__(self, level: int, exceptions: bool) -> None:
        self._level = level
        self._exceptions = exceptions
        self._lock = threading.Lock()
        self._records = Allowance(RECORDS, RECORDS_PER_SECOND)
        self._characters = Allowance(CHARACTERS, CHARACTERS_PER_SECOND)
        self._dropped = 0

    def describe(self, record: logging.LogRecord, room: bool = True) -> Described | None:
        """Return the parts of a wanted record that may be sent; None beyond the rate limits.

        Without ``room`` for it, the record is only counted.
        """
        with self._lock:
            if not (room and self._records.take(1)):
                self._dropped += 1
                return None
        try:
            described = describe(record, self._exceptions)
        except Exception as error:  # an exception's __str__ may fail
            contain(error)
            with self._lock:
                self._dropped += 1
            return None
        size = sum(len(part) for part in described if isinstance(part, str))
        with self._lock:
            if not self._characters.take(size):
                self._dropped += 1
                return None
        return described

    def wants(self, record: logging.LogRecord) -> bool:
        """Return whether a record is serious enough, and not our own."""
        return wanted(record, self._level)

    def dropped(self) -> int:
        """Return how many wanted records were not described since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped


class WorkerLogs(WorkerPlugin):
    """Sends a worker's log records to its scheduler, with the keys of the tasks that logged them.

    A task's records belong to its worker, in any process. A process's other records belong to one
    worker in it or, if the scheduler is in the same process, to the scheduler.
    """

    def __init__(self, level: int, exceptions: bool) -> None:
        self._records = Records(level, exceptions)
        # Any thread appends, the event loop's thread takes.
        self._pending: deque[tuple[Described, Any]] = deque()
        self._flushing = False
        self._sending_apart: asyncio.Future[None] | None = None
        self._may_send_apart = True

    def setup(self, worker: Any) -> None:
        """Start sending records."""
        self._worker = worker
        self._untap = tap(self._take)

    async def teardown(self, worker: Any) -> None:
        """Send waiting records, and stop."""
        self._untap()
        self._flush()
        if self._sending_apart is not None:
            with Contained():  # not counted: the worker ends
                await asyncio.wait_for(self._sending_apart, LAST_LINES_PATIENCE)

    def _take(self, record: logging.LogRecord) -> None:
        if not self._records.wants(record):
            return
        state = getattr(thread_state, "execution_state", None)
        key = None
        if state is not None:
            if state["worker"] is not self._worker:
                return
            key = thread_state.key
        elif Scheduler._instances or record.__dict__.setdefault(_TAKER, self) is not self:
            return
        described = self._records.describe(record, len(self._pending) < MAX_PENDING)
        if described is not None:
            self._pending.append((described, key))
        # At once, because it must arrive before the end of its task, and may be the worker's last
        # record.
        if not self._flushing:
            self._flushing = True
            self._worker.loop.add_callback(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        stream = self._worker.batched_stream
        if stream is None or stream.comm is None or stream.comm.closed():
            if self._sending_apart is None or self._sending_apart.done():
                self._sending_apart = asyncio.ensure_future(self._send_apart())
            return
        message = self._message()
        if message is not None:
            self._worker.batched_send({"op": OP, **message})

    async def _send_apart(self) -> None:
        # The worker's stream has not begun yet, or is broken, for example by an unreadable message.
        # In that case the worker ends, and the waiting lines say why.
        try:
            send = getattr(self._worker.scheduler, OP)
            while self._may_send_apart:
                message = self._message()
                if message is None:
                    return
                await send(worker=self._worker.contact_address, **message)
        except Exception as error:
            contain(error)
            # A retry would be logged as well, in an endless loop.
            self._may_send_apart = False

    def _message(self) -> dict[str, Any] | None:
        """Take waiting records, and return them as a message; None if there are none."""
        pending = []
        while self._pending:
            pending.append(self._pending.popleft())
        dropped = self._records.dropped()
        return {"records": pending, "dropped": dropped} if pending or dropped else None
