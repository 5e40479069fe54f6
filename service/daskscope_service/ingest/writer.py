"""The one writer thread: commits the rows of waiting requests in one transaction.

A request takes a place, decodes its body, hands its rows over and waits until they are committed.
Only then is it acknowledged. For small, frequent bodies, the writer also makes the rows: one thread
makes those of many requests faster than a thread for each. Requests wait in threads of their own,
or on an event loop, where a thousand wait at no cost: methods that end in ``_soon`` are for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from daskscope_service.accounts import tokens
from daskscope_service.db.engine import for_writing
from daskscope_service.db.key_register import KeyMissing
from daskscope_service.db.statements import Upsert
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web.problems import Problem

logger = logging.getLogger(__name__)

#: Seconds that a request waits for a place. A burst is written within this time. If not, the disk
#: is stuck, and the thread is needed elsewhere.
_PATIENCE = 0.5

#: Seconds that the writer waits at most for all requests that hold a place: one commit for many
#: costs less than one for each.
_GATHER = 0.002

#: Rows by the statement that writes them.
Rows = Mapping[Upsert, Sequence[tuple[Any, ...]]]

#: Makes rows, in the writer's thread.
Make = Callable[[], Rows]

#: A query that follows the commit, outside of a transaction, for many batches at once. It gets what
#: each batch wants to know, and returns an answer for each.
Ask = Callable[[Connection, Sequence[Any]], Sequence[Any]]


class Outdated(Exception):
    """Rows must not be written any more: the token was revoked, or their series removed."""


#: What a request waits for. In a thread, a lock is the cheapest kind of event.
Done: TypeAlias = "threading.Lock | asyncio.Future[None]"


class _Batch:
    """Rows to write, and their outcome.

    At the end, ``done`` is released if it is a lock, and gets a result if it is a future.
    """

    __slots__ = ("_make", "answer", "ask", "done", "error", "rows", "token", "wanted")

    def __init__(
        self,
        rows: Rows | Make,
        ask: Ask | None,
        wanted: Any,
        token: str | None,
        done: Done,
    ) -> None:
        self._make = rows if callable(rows) else None
        self.rows: Rows = {} if callable(rows) else rows
        self.token = token
        self.ask = ask
        self.wanted = wanted
        self.answer: Any = None
        self.error: Exception | None = None
        self.done = done

    def made(self) -> bool:
        """Make the rows if that was left to the writer; return whether they can be written."""
        if self._make is not None:
            try:
                self.rows = self._make()
            except Exception as error:  # it must reach the request, not end the thread
                self.error = error
                return False
        return True


class Writer:
    """The thread and its queue. ``capacity``: how many requests may hold a place at a time."""

    def __init__(self, engine: Engine, *, capacity: int, instruments: ServiceMetrics) -> None:
        self._engine = for_writing(engine)
        self._instruments = instruments
        instruments.queue_capacity.set(capacity)
        instruments.queue_length.set_function(lambda: self._held)
        self._capacity = capacity
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(capacity):
            self._places.put(None)
        # Requests that wait for a place on an event loop.
        self._hopeful: deque[asyncio.Future[None]] = deque()
        self._waiting: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="daskscope-writer", daemon=True)
        self._thread.start()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place in the queue. Take it before decoding a body: refusing must be cheap.

        Do not take it before the body has arrived: slow senders could take all places.

        Raises
        ------
        Problem
            429 if the queue is full, 503 if the service is stopping.
        """
        self._check_open()
        try:
            self._places.get(timeout=_PATIENCE)
        except queue.Empty:
            raise self._full() from None
        try:
            yield
        finally:
            self._give_back()

    @asynccontextmanager
    async def place_soon(self) -> AsyncIterator[None]:
        """Do as :meth:`place`, on an event loop."""
        self._check_open()
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while not self._has_place():
            self._hopeful.append(freed := loop.create_future())
            if self._has_place():  # freed meanwhile
                freed.set_result(None)
                break
            try:
                async with asyncio.timeout_at(until):
                    await freed
            except TimeoutError:
                raise self._full() from None
        try:
            yield
        finally:
            self._give_back()

    def _check_open(self) -> None:
        if self._closed:
            self._instruments.refused.labels("stopping").inc()
            raise _unavailable("The service is stopping.")

    def _full(self) -> Problem:
        self._instruments.refused.labels("queue full").inc()
        return Problem(
            429,
            "More data arrives than the service can write; send this again in a moment.",
            headers={"Retry-After": "1"},
        )

    def _has_place(self) -> bool:
        try:
            self._places.get_nowait()
        except queue.Empty:
            return False
        return True

    def _give_back(self) -> None:
        self._places.put(None)
        with contextlib.suppress(IndexError):  # no request waits on a loop
            while (freed := self._hopeful.popleft()).done():
                pass
            _resolve(freed.get_loop(), [freed])

    def write(
        self,
        rows: Rows | Make,
        ask: Ask | None = None,
        wanted: Any = None,
        *,
        token: str | None = None,
    ) -> Any:
        """Write ``rows``; return after the commit, with the answer of ``ask`` to ``wanted``.

        If ``rows`` is a function, the writer's thread makes them with it, and its exceptions are
        raised here. Everyone else waits for it meanwhile.

        They are written only if the ``token`` with this id is in force. The writer checks that, and
        asks, once for all that it writes together: a query by each request's thread would cost more
        than one for all of them.

        Raises
        ------
        Problem
            503 if the database failed, for example because its disk is full, or if the key that
            encrypts code is missing.
        Outdated
            The token is not in force any more, or the rows' series was removed.
        """
        done = threading.Lock()
        done.acquire()
        batch = _Batch(rows, ask, wanted, token, done)
        self._waiting.put(batch)
        done.acquire()
        return self._outcome(batch)

    async def write_soon(
        self, make: Make, ask: Ask | None = None, wanted: Any = None, *, token: str | None = None
    ) -> Any:
        """Do as :meth:`write`, on an event loop."""
        done = asyncio.get_running_loop().create_future()
        batch = _Batch(make, ask, wanted, token, done)
        self._waiting.put(batch)
        await done
        return self._outcome(batch)

    def _outcome(self, batch: _Batch) -> Any:
        if batch.error is None:
            return batch.answer
        if isinstance(batch.error, KeyMissing):
            raise _unavailable("The service lacks the key that encrypts code.") from batch.error
        if _is_outage(batch.error):
            raise _unavailable(
                "The service cannot write to the database at the moment."
            ) from batch.error
        raise batch.error

    @property
    def running(self) -> bool:
        """Whether the writer accepts rows."""
        return not self._closed and self._thread.is_alive()

    def is_busy(self) -> bool:
        """Return whether requests hold a place."""
        return self._held > 0

    @property
    def _held(self) -> int:
        return self._capacity - self._places.qsize()

    def close(self) -> None:
        """Write the rows that wait, and end the thread."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            group, last = self._take()
            self._write_group([batch for batch in group if batch.made()])
            futures: list[asyncio.Future[None]] = []
            for batch in group:
                if isinstance(batch.done, asyncio.Future):
                    futures.append(batch.done)
                else:
                    batch.done.release()
            if futures:  # one call of the loop for all of them is cheaper
                _resolve(futures[0].get_loop(), futures)
            if last:
                return

    def _take(self) -> tuple[list[_Batch], bool]:
        group: list[_Batch] = []
        batch = self._waiting.get()
        until = time.monotonic() + _GATHER
        while self._waiting.qsize() + 1 < self._held and time.monotonic() < until:
            time.sleep(_GATHER / 4)
        while batch is not None:
            group.append(batch)
            try:
                batch = self._waiting.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write_group(self, group: list[_Batch]) -> None:
        try:
            with self._engine.connect() as connection:
                self._commit(connection, group)
                _answer(connection, group)
        except Exception as error:  # it must reach the request, not end the thread
            if len(group) == 1:
                if isinstance(error, KeyMissing):
                    logger.error("no text that may contain code can be stored: %s", error)
                group[0].error = error
                return
            # One bad batch must not fail the others: write each alone.
            for batch in group:
                self._write_group([batch])

    def _commit(self, connection: Connection, group: list[_Batch]) -> None:
        together: dict[Upsert, list[tuple[Any, ...]]] = {}
        for batch in group:
            for upsert, rows in batch.rows.items():
                together.setdefault(upsert, []).extend(rows)
        if not together:
            return
        # Always in the same order, so that two processes do not wait for each other's rows.
        ordered = sorted(together.items(), key=lambda item: item[0].table.name)
        shown = {batch.token for batch in group if batch.token is not None}
        instruments = self._instruments
        try:
            with instruments.commit_seconds.time(), connection.begin():
                if shown and not tokens.in_force(connection, shown):
                    raise Outdated
                for upsert, rows in ordered:
                    upsert.run(connection, rows)
        except Outdated:
            raise
        except Exception:
            instruments.write_failures.inc()
            raise
        for upsert, rows in ordered:
            instruments.rows.labels(upsert.table.name).inc(len(rows))


def _resolve(loop: asyncio.AbstractEventLoop, futures: Sequence[asyncio.Future[None]]) -> None:
    def resolve() -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)

    with contextlib.suppress(RuntimeError):  # the loop has ended, with its requests
        loop.call_soon_threadsafe(resolve)


def _answer(connection: Connection, group: list[_Batch]) -> None:
    by_ask: dict[Ask, list[_Batch]] = {}
    for batch in group:
        if batch.ask is not None:
            by_ask.setdefault(batch.ask, []).append(batch)
    for ask, batches in by_ask.items():
        answers = ask(connection, [batch.wanted for batch in batches])
        for batch, answer in zip(batches, answers, strict=True):
            batch.answer = answer


def _is_outage(error: Exception) -> bool:
    # The other errors mean that the rows are wrong, not the database; sending them again is no
    # help.
    return isinstance(error, DBAPIError) and not isinstance(
        error, IntegrityError | DataError | ProgrammingError
    )


def _unavailable(detail: str) -> Problem:
    return Problem(
        503, f"{detail} Nothing was stored; send this again.", headers={"Retry-After": "5"}
    )
