"""Stores the latest rows of each kind in the scheduler's process, for ``explain()``."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Hashable
from typing import Any

from daskscope.delivery.queue import KEYS
from daskscope.observe.snapshot import Observed
from daskscope.observe.tasks.computation import Traced

#: Latest rows of each kind that are stored; only one of large ones.
MAX_ROWS = 40
_LARGE = frozenset({"task_streams"})

#: Fields of which each snapshot contains all rows.
_STATE = frozenset({"prefixes", "times"})


class LatestRows:
    """The last state, and the latest rows of each kind. Thread-safe.

    Snapshots contain each row once; this stores copies for ``explain()``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Observed | None = None
        self._rows: dict[str, dict[Hashable, Any]] = {}
        self._traced: dict[str, Traced] = {}

    def add(self, observed: Observed) -> None:
        """Store a snapshot and its rows."""
        with self._lock:
            self._last = observed
            for field in dataclasses.fields(observed):
                rows = getattr(observed, field.name)
                # A named tuple is a value of the state.
                if type(rows) is not tuple or field.name in _STATE:
                    continue
                known = self._rows.setdefault(field.name, {})
                # Rows without a key are identified by id, which is unique while the row is stored
                # here.
                key_of = KEYS.get(field.name, id)
                for row in rows:
                    key = key_of(row)
                    known.pop(key, None)
                    known[key] = row
                while len(known) > (1 if field.name in _LARGE else MAX_ROWS):
                    del known[next(iter(known))]
            for computation, traced in observed.traced.items():
                before = self._traced.pop(computation, None)
                # A computation's samples are in one snapshot only: do not replace them by none.
                self._traced[computation] = traced if before is None or traced.samples else before
            while len(self._traced) > MAX_ROWS:
                del self._traced[next(iter(self._traced))]

    def has(self, observed: Observed) -> bool:
        """Return whether ``observed`` was the last snapshot added."""
        return self._last is observed

    def snapshot(self) -> Observed | None:
        """Return one snapshot with the last state and all stored rows; None if there is none."""
        with self._lock:
            if self._last is None:
                return None
            rows: dict[str, Any] = {
                field: tuple(known.values()) for field, known in self._rows.items()
            }
            return dataclasses.replace(self._last, traced=dict(self._traced), **rows)
