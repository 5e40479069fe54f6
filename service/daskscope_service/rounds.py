"""A thread that does some work again and again, until it is told to end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Rounds:
    """Calls ``work`` every ``interval`` seconds, from one interval after the start on."""

    def __init__(self, name: str, work: Callable[[], object], interval: float) -> None:
        self._name = name
        self._work = work
        self._interval = interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"daskscope-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, once the round under way is done."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                self._work()
            except Exception as error:  # a database that is away for a while must not end it
                logger.error("%s: a round failed: %s", self._name, getattr(error, "orig", error))
