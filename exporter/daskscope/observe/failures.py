"""Exceptions of tasks, grouped where they are alike and counted once, where they were raised."""

from __future__ import annotations

import hashlib
import ntpath
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from distributed.metrics import time

from daskscope import protocol
from daskscope.observe.bounded import Bounded, Count
from daskscope.observe.naming import without_key

#: Failures that are kept apart, over all computations; beyond it the oldest make room.
MAX_FAILURES = 1_000
#: Types of exceptions that the metric keeps apart.
MAX_TYPES = 50

_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=\(|$)")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+, in (?P<function>.+)$', re.MULTILINE)
_NOT_THE_USERS = re.compile(r"[\\/](site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]")

#: What there is to say where Dask has no text: it names the key.
KILLED = "The workers that ran this task died, more often than Dask allows."


class Failures:
    """Groups of equal exceptions per computation."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._failures: dict[tuple[str | None, str], _Totals] = {}
        self._changed: set[_Totals] = set()
        self._types = Bounded(Count, MAX_TYPES, "exception type", drops)

    def add(self, computation: str | None, function: str, details: Mapping[str, Any]) -> None:
        """Count one exception. ``details`` are the keyword arguments of Dask's transition."""
        text = details.get("exception_text") or ""
        traceback = details.get("traceback_text") or ""
        kind = exception_type(text)[: protocol.MAX_NAME]
        function = function[: protocol.MAX_NAME]
        self._types[kind].value += 1
        key = (computation, fingerprint(kind, function, traceback))
        now = time()
        failure = self._failures.get(key)
        if failure is None:
            if len(self._failures) >= MAX_FAILURES:
                # It has been sent; only its count stays behind.
                oldest = next(iter(self._failures))
                if self._failures.pop(oldest) in self._changed:
                    self._drops["failure"] += 1
            message = without_key(text, details["cause"]) if text else KILLED
            failure = self._failures[key] = _Totals(*key, kind, function, message, traceback, now)
        failure.count += 1
        failure.last_at = now
        failure.worker = details.get("worker")
        self._changed.add(failure)

    def by_type(self) -> dict[str, int]:
        """Return how many exceptions there were of each type."""
        return {kind: count.value for kind, count in self._types.values.items()}

    def changed(self) -> list[protocol.Failure]:
        """Return the rows that changed since the last call."""
        changed, self._changed = self._changed, set()
        return [failure.row() for failure in changed]


class _Totals:
    __slots__ = (
        "computation",
        "count",
        "fingerprint",
        "first_at",
        "function",
        "last_at",
        "message",
        "traceback",
        "type",
        "worker",
    )

    def __init__(
        self,
        computation: str | None,
        fingerprint: str,
        kind: str,
        function: str,
        message: str,
        traceback: str,
        now: float,
    ) -> None:
        self.computation = computation
        self.fingerprint = fingerprint
        self.type = kind
        self.function = function
        self.message = message
        self.traceback = traceback
        self.count = 0
        self.first_at = self.last_at = now
        self.worker: str | None = None

    def row(self) -> protocol.Failure:
        return protocol.Failure(
            computation=self.computation,
            fingerprint=self.fingerprint,
            type=self.type,
            function=self.function,
            message=self.message,
            traceback=self.traceback or None,
            count=self.count,
            first_at=self.first_at,
            last_at=self.last_at,
            worker=self.worker,
        )


def exception_type(text: str) -> str:
    """Return the type's name from Dask's ``exception_text``, the exception's repr.

    Dask has no text only where a task's workers died too often: a ``KilledWorker``.
    """
    if not text:
        return "KilledWorker"
    match = _TYPE.match(text)
    return match[0] if match else "Exception"


@lru_cache(maxsize=256)
def fingerprint(kind: str, function: str, traceback: str) -> str:
    """Return what equal failures share on every cluster and in every run.

    The user's own frames count, by file name and function, without line numbers, folders and
    messages, so that it outlives an edit elsewhere in the file and another machine. Where no frame
    is the user's own, all count.
    """
    frames = [(match["file"], match["function"]) for match in _FRAME.finditer(traceback)]
    own = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])]
    names = [f"{ntpath.basename(file)}:{called}" for file, called in own or frames]
    parts = [kind, function, *names]
    return "v1-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
