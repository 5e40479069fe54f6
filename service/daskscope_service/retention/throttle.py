"""Pauses between the short transactions of a removal, so that others can write.

SQLite takes one writer at a time, and new data must not wait for a removal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from daskscope_service.periodic import Stopped

#: Seconds that a transaction should take, and the bounds of its number of rows.
_SECONDS = 0.02
_LEAST, _MOST = 16, 5_000


@dataclass(frozen=True, slots=True)
class Removed:
    """What one transaction did: it removed ``rows`` rows of ``table``."""

    table: str
    rows: int


class Throttle:
    """Sets how much a transaction does, and pauses after it.

    Parameters
    ----------
    share
        The share of the time for work; the rest is paused.
    stop
        Set by others to end the work after the transaction under way.
    """

    def __init__(self, share: float, stop: threading.Event | None = None) -> None:
        self._pauses = 1 / share - 1
        self._stop = stop or threading.Event()
        #: Rows that the next transaction should handle.
        self.rows = 256

    def run(self, steps: Iterator[Removed]) -> Iterator[Removed]:
        """Run ``steps``, each of one transaction, and yield them with pauses in between.

        Raises
        ------
        Stopped
            ``stop`` was set.
        """
        while True:
            began = time.monotonic()
            step = next(steps, None)
            took = time.monotonic() - began
            if step is None:
                return
            # On a slow disk, a transaction gets fewer rows.
            if took > _SECONDS:
                self.rows = max(_LEAST, self.rows // 2)
            elif took < _SECONDS / 2:
                self.rows = min(_MOST, self.rows * 2)
            yield step
            if self._stop.wait(took * self._pauses):
                raise Stopped
