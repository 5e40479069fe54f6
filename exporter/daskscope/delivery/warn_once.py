"""Warnings that are logged once: a cause of failure usually lasts until someone removes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable

logger = logging.getLogger("daskscope")


class WarnOnce:
    """Logs the first warning of each kind. From any thread."""

    def __init__(self) -> None:
        self._warned: set[Hashable] = set()
        self._lock = threading.Lock()

    def __call__(self, kind: Hashable, message: str, *details: object) -> None:
        """Log ``message`` with its ``details``, unless there was a warning of that ``kind``."""
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        logger.warning(message, *details)
