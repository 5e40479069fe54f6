"""Places and turns for requests: a few addresses can never take those of all others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from daskscope_service.web.problems import Problem


class Places:
    """A limited number of places for requests. An address may have as many as are still free.

    So an address that wants all of them gets half, two addresses get a third each: some are always
    free for others. A proxy counts as one address. Belongs to one event loop.

    ``what``: what requests do here, for the message of a refusal.
    """

    def __init__(self, number: int, what: str) -> None:
        self._free = number
        self._what = what
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, address: str) -> Iterator[None]:
        """Hold a place for a request of ``address``. Raises Problem (503) if there is none."""
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
    """Lets ``number`` requests run at a time; addresses with waiting requests take turns.

    ``most``: how many of one address may run at a time, even if more could. Belongs to one event
    loop.
    """

    def __init__(self, number: int, most: int) -> None:
        self._free = number
        self._most = most
        self._of: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of ``address``, and hold it inside the block."""
        if self._may_go_on(address):
            self._take(address)
        else:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(address, deque()).append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._give_back(address)
                raise
        try:
            yield
        finally:
            self._give_back(address)

    def _may_go_on(self, address: str) -> bool:
        return self._free > 0 and self._of[address] < self._most

    def _take(self, address: str) -> None:
        self._free -= 1
        self._of[address] += 1

    def _give_back(self, address: str) -> None:
        self._free += 1
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]
        for following in list(self._waiting):
            if self._may_go_on(following) and self._call(following):
                return

    def _call(self, address: str) -> bool:
        """Let the next waiting request of an address run; return whether there was one."""
        theirs = self._waiting.pop(address)
        while theirs:
            following = theirs.popleft()
            if not following.done():
                if theirs:
                    self._waiting[address] = theirs  # behind those of the other addresses
                self._take(address)
                following.set_result(None)
                return True
        return False
