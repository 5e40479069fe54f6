"""Pauses between the short transactions of a removal, so that others have room.

SQLite takes one writer at a time, and what comes in must not wait for what goes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from daskscope_service.periodic import Stopped

#: Seconds that a transaction should take, and how many rows it may be about.
_SECONDS = 0.02
_LEAST, _MOST = 16, 5_000


@dataclass(frozen=True, slots=True)
class Step:
    """What one transaction did: so many rows of ``table`` are gone."""

    table: str
    rows: int


class Throttle:
    """How much a transaction does, and the pause after it.

    Parameters
    ----------
    share
        The part of the time that is worked; the rest is paused.
    stop
        Set by others to end the work after the transaction under way.
    """

    def __init__(self, share: float, stop: threading.Event | None = None) -> None:
        self._pauses = 1 / share - 1
        self._stop = stop or threading.Event()
        #: Rows that the next transaction should be about.
        self.rows = 256

    def run(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Take ``steps``, each of one transaction, and pass them on with pauses.

        Raises
        ------
        Stopped
            Someone asked to stop.
        """
        while True:
            began = time.monotonic()
            step = next(steps, None)
            took = time.monotonic() - began
            if step is None:
                return
            # A slow disk gets less at a time.
            if took > _SECONDS:
                self.rows = max(_LEAST, self.rows // 2)
            elif took < _SECONDS / 2:
                self.rows = min(_MOST, self.rows * 2)
            yield step
            if self._stop.wait(took * self._pauses):
                raise Stopped
