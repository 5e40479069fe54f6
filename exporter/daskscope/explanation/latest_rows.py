"""The latest rows of each kind, kept in the scheduler's process for ``explain()``."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Hashable
from typing import Any

from daskscope.delivery.queue import KEYS
from daskscope.observe.snapshot import Observed
from daskscope.observe.tasks.computation import Traced

#: Rows of each kind that are remembered, the latest: as many as go with one beat.
MAX_ROWS = 40

#: What each snapshot holds all of.
_STATE = frozenset({"prefixes", "times"})


class LatestRows:
    """The last state, and the latest rows of each kind. Thread-safe.

    Rows are handed out once; these stay here, in the scheduler's process, to be explained.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Observed | None = None
        self._rows: dict[str, dict[Hashable, Any]] = {}
        self._traced: dict[str, Traced] = {}

    def add(self, observed: Observed) -> None:
        """Remember a snapshot."""
        with self._lock:
            self._last = observed
            for field in dataclasses.fields(observed):
                rows = getattr(observed, field.name)
                if not isinstance(rows, tuple) or field.name in _STATE:
                    continue
                known = self._rows.setdefault(field.name, {})
                # What stays alive for as long as it is a key has an id of its own.
                key_of = KEYS.get(field.name, id)
                for row in rows:
                    key = key_of(row)
                    known.pop(key, None)
                    known[key] = row
                while len(known) > MAX_ROWS:
                    del known[next(iter(known))]
            for computation, traced in observed.traced.items():
                before = self._traced.pop(computation, None)
                # Samples are handed out once, too.
                self._traced[computation] = traced if before is None or traced.samples else before
            while len(self._traced) > MAX_ROWS:
                del self._traced[next(iter(self._traced))]

    def has(self, observed: Observed) -> bool:
        """Return whether ``observed`` was the last one."""
        return self._last is observed

    def snapshot(self) -> Observed | None:
        """Return one snapshot of it all."""
        with self._lock:
            if self._last is None:
                return None
            rows: dict[str, Any] = {
                field: tuple(known.values()) for field, known in self._rows.items()
            }
            return dataclasses.replace(self._last, traced=dict(self._traced), **rows)
