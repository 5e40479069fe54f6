"""Receives request bodies, each within a time limit and all within a bounded memory.

Nothing here waits for a sender without a deadline, and nothing here takes a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections import Counter
from typing import Any, NoReturn

from daskscope_service.web import forms
from daskscope_service.web.body import too_large
from daskscope_service.web.problems import Problem

#: How many seconds a body may be late, and the bytes that it must bring in each second.
_GRACE = 10.0
_RATE = 32 * 1024

#: Bodies up to this size are received from anyone. A larger one needs a token that may send data,
#: and a share of the memory for all of them.
SMALL = forms.MAX_BYTES
_ROOM = 256 * 1024 * 1024

#: Seconds for which the rest of a refused body is read: most senders read the answer only after
#: they have sent everything, and would otherwise see a broken connection. Paths for large bodies
#: get the longer time.
_DRAIN_SECONDS = 1.0
_DRAIN_SECONDS_LARGE = 5.0


class GoneError(Exception):
    """The sender went away before the body was complete: there is no one to answer."""


class Refusal(io.RawIOBase):
    """Replaces a body that was not received: reading it raises the reason.

    So errors before the body, such as a wrong path or a missing token, are still reported first,
    and the reason is reported in the format of the path.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> NoReturn:
        """Raise the reason why there is no body."""
        raise self._problem

    def readinto(self, buffer: object) -> NoReturn:
        """Raise the reason why there is no body."""
        raise self._problem


class Reception:
    """Receives bodies. Belongs to one event loop.

    Parameters
    ----------
    room
        Bytes that large bodies may take together, from their first byte until :meth:`give_back`.
        Those of one sender may take as many as are still free.
    grace, rate
        How many seconds a body may be late, and the bytes that it must bring in each second.
    """

    def __init__(self, room: int = _ROOM, grace: float = _GRACE, rate: int = _RATE) -> None:
        self._free = room
        self._of: Counter[str] = Counter()
        self._grace = grace
        self._rate = rate

    async def receive(self, request: Any, length: int | None, limit: int, sender: str) -> bytes:
        """Return the body of an RSGI ``request``.

        Parameters
        ----------
        length
            How many bytes the sender announces; None if it does not.
        limit
            The most bytes that are accepted.
        sender
            Whose share of the room it takes.

        Raises
        ------
        Problem
            408: it came too slowly. 413: it is too large. 503: there is no room for it.
        GoneError
            The sender went away.
        """
        if length is not None and length > limit:
            raise too_large(limit)
        if length is not None and length <= SMALL:
            try:
                async with asyncio.timeout(self._grace + length / self._rate):
                    body: bytes = await request()
            except TimeoutError:
                raise self._too_slow() from None
            except RuntimeError as error:  # RSGI's own error
                raise GoneError from error
            return body
        return await self._receive_parts(request, length, limit, sender)

    def give_back(self, body: bytes, sender: str) -> None:
        """Free the room of a ``body`` of ``sender``, once it is no longer needed."""
        if len(body) > SMALL:
            self._take(sender, -len(body))

    def _take(self, sender: str, size: int) -> None:
        self._free -= size
        self._of[sender] += size
        if not self._of[sender]:
            del self._of[sender]

    async def _receive_parts(
        self, request: Any, length: int | None, limit: int, sender: str
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        parts: list[bytes] = []
        size = empty = 0
        try:
            async with asyncio.timeout_at(deadline) as timer:
                async for part in request:
                    if not part:
                        empty += 1  # the end; another one before it is an error
                        continue
                    empty = 0
                    size += len(part)
                    self._take(sender, len(part))
                    parts.append(part)
                    if size > limit:
                        raise too_large(limit)
                    if size > SMALL and self._of[sender] > self._free:
                        raise _no_room()
                    # What comes early buys no time in which nothing comes.
                    deadline += len(part) / self._rate
                    deadline = min(deadline, loop.time() + self._grace)
                    timer.reschedule(deadline)
                    if size == length:
                        break
            if size < length if length is not None else empty > 1:
                raise GoneError
        except BaseException as error:
            self._take(sender, -size)
            if isinstance(error, TimeoutError):
                raise self._too_slow() from None
            raise
        if size <= SMALL:
            self._take(sender, -size)
        return b"".join(parts)

    def _too_slow(self) -> Problem:
        return Problem(
            408,
            f"The body arrived too slowly: it must bring {self._rate} bytes per second, and may "
            f"be {self._grace:g} seconds late.",
        )


async def drain(request: Any, limit: int) -> None:
    """Read and drop the rest of a refused body: at most ``limit`` bytes, for a short time."""
    left = limit
    with contextlib.suppress(RuntimeError):  # raises if reading has begun
        request.__aiter__()
    # StopAsyncIteration: the body was received as a whole.
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(_DRAIN_SECONDS if limit <= SMALL else _DRAIN_SECONDS_LARGE):
            # Not by "async for", which would begin to read again: granian allows that only once.
            while left > 0 and (part := await anext(request)):
                left -= len(part)


def _no_room() -> Problem:
    return Problem(
        503,
        "Too many large bodies arrive at the same time, or too many of your workspace; send this "
        "again in a moment.",
        headers={"Retry-After": "5"},
    )
