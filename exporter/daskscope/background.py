"""A thread that handles items one by one, so that the scheduler's event loop never waits."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from daskscope.containment import Contained

Item = TypeVar("Item")

#: Items that may wait while the handler is busy. Beyond it the oldest are dropped and counted.
MAX_WAITING = 600
#: Bytes of items that may wait, as far as their sizes are given.
MAX_WAITING_BYTES = 16 << 20


class Background(Generic[Item]):
    """Calls ``handle`` with each item in a daemon thread, and ``finish`` once at the end.

    The thread starts at once, because no thread can be started at interpreter exit, while a running
    daemon thread continues until the last moment. Exceptions of the functions are counted in
    ``drops``.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Item], None],
        finish: Callable[[], None],
        drops: Counter[str],
    ) -> None:
        self._drops = drops
        self._contained = Contained(drops)
        self._handle = handle
        self._finish = finish
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item, size: int = 0) -> None:
        """Add an item of ``size`` bytes to the queue. Never waits."""
        with self._wake:
            self._items.append((item, size))
            self._bytes += size
            while len(self._items) > MAX_WAITING or (
                self._bytes > MAX_WAITING_BYTES and len(self._items) > 1
            ):
                self._bytes -= self._items.popleft()[1]
                self._drops["snapshot"] += 1
            self._wake.notify()

    def close(self) -> None:
        """Let the thread end once it has handled the queue. Does not wait: see :meth:`done`."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, at most ``timeout`` seconds. Not for the event loop."""
        self._thread.join(timeout)

    def waiting(self) -> int:
        """Return how many items wait."""
        return len(self._items)

    def done(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._items and not self._closing:
                    self._wake.wait()
                if not self._items:
                    break
                item, size = self._items.popleft()
                self._bytes -= size
            with self._contained:
                self._handle(item)
        with self._contained:
            self._finish()
