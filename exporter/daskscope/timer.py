"""Calls functions at an interval, and waits with a deadline, by a monotonic clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping

from daskscope.containment import Contained


class Timer:
    """Calls ``callback`` every ``interval`` seconds on the running event loop, until :meth:`stop`.

    Exceptions of the callback are counted in ``drops``; the event loop would log each. Tornado's
    own timer uses the wall clock: if that is set back by an hour, it pauses for an hour.
    """

    def __init__(
        self, callback: Callable[[], object], interval: float, drops: MutableMapping[str, int]
    ) -> None:
        self.interval = interval
        self._callback = Contained(drops).around(callback, otherwise=None)
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = self._loop.call_later(interval, self._call)

    def is_running(self) -> bool:
        """Return whether it has not been stopped."""
        return self._next is not None

    def stop(self) -> None:
        """Stop calling the callback."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _call(self) -> None:
        began = self._loop.time()
        try:
            self._callback()
        finally:
            if self._next is not None:  # the callback may have stopped it, or set its interval
                self._next = self._loop.call_at(began + self.interval, self._call)


async def until(condition: Callable[[], bool], deadline: float) -> None:
    """Wait for ``condition``, for ``deadline`` seconds at most."""
    # Polling, because threads cannot be awaited, and executors do not work at interpreter exit.
    ends = time.monotonic() + deadline
    while not condition() and time.monotonic() < ends:
        await asyncio.sleep(0.02)
