"""Places and turns, shared among addresses: a few of them never take those of all others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from daskscope_service.web.problems import Problem


class Places:
    """Places for requests. An address may have as many of them as are free.

    So one address that wants all of them gets half, two get a third each: some are always free for
    others. A proxy is one address. Belongs to one event loop.

    ``what`` says in the refusal what requests do here.
    """

    def __init__(self, number: int, what: str) -> None:
        self._free = number
        self._what = what
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, address: str) -> Iterator[None]:
        """Hold a place. Raises Problem (503) if there is none for the address."""
        if self._of[address] >= self._free:
            raise Problem(
                503,
                f"{self._of[address]} requests of your address {self._what}; send this again.",
                headers={"Retry-After": "5"},
            )
        self._free -= 1
        self._of[address] += 1
        try:
            yield
        finally:
            self._free += 1
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]


class Turns:
    """Lets ``number`` requests go on at a time; those that wait get their turn address by address.

    Belongs to one event loop.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of ``address``, and have it meanwhile."""
        if self._free:
            self._free -= 1
        else:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(address, deque()).append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            theirs = self._waiting.pop(address)
            following = theirs.popleft()
            if theirs:
                self._waiting[address] = theirs  # behind those of the other addresses
            if not following.done():
                following.set_result(None)
                return
        self._free += 1
