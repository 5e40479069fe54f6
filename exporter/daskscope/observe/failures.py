"""Exceptions of tasks, grouped where they are alike and counted once, where they were raised."""

from __future__ import annotations

import hashlib
import ntpath
import pickletools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from dask.typing import Key
from distributed.metrics import time
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.observe.bounded import Bounded, Count
from daskscope.observe.naming import without_key

#: Failures that are kept apart, over all computations, and characters of their texts; beyond it
#: the oldest make room.
MAX_FAILURES = 1_000
MAX_CHARACTERS = 4_000_000
#: Types of exceptions that the metric keeps apart.
MAX_TYPES = 50

_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=\(|$)")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+, in (?P<function>.+)$', re.MULTILINE)
_NOT_THE_USERS = re.compile(r"[\\/](site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]")

# What Dask's scheduler itself gives a task up for.
_DASKS_OWN = {
    "KilledWorker": "The workers that ran this task died, more often than Dask allows.",
    "NoWorkerError": "No worker came to run this task for as long as Dask waits for one "
    "(distributed.scheduler.no-workers-timeout).",
    "NoValidWorkerError": "No worker that this task may run on came for as long as Dask waits for "
    "one (distributed.scheduler.no-workers-timeout).",
    "MemoryError": "What this task needs does not fit into the memory of a worker.",
}
_LOST_ACTOR = "The worker that held this actor was lost."
# Of older Dask this is the type that the client gets.
_LOST_ACTORS_TYPE = (
    "RuntimeError" if hasattr(Scheduler, "_transition_memory_erred") else "ValueError"
)

#: What there is to say where Dask has no text. It names no key.
OWN_WORDS = frozenset(_DASKS_OWN.values())


@dataclass(frozen=True, slots=True)
class FailedRun:
    """What a worker's message says of a run that raised. ``details`` as Dask's transition has."""

    key: Key
    run_id: int | None
    details: dict[str, Any]


def read_failed_run(message: Mapping[str, Any]) -> FailedRun:
    """Read a message of the kind ``task-erred``."""
    told = ("exception_text", "traceback_text", "startstops", "worker")
    return FailedRun(
        key=message["key"],
        run_id=message.get("run_id"),
        details={name: message[name] for name in told if name in message},
    )


class Failures:
    """Groups of equal exceptions per computation."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._failures: dict[tuple[str | None, str], _Totals] = {}
        self._characters = 0
        self._changed: dict[_Totals, None] = {}  # an ordered set
        self._types = Bounded(Count, MAX_TYPES, "exception type", drops)

    def add(
        self,
        computation: str | None,
        function: str,
        task: Key,
        details: Mapping[str, Any],
        *,
        retried: bool = False,
    ) -> None:
        """Count one exception of the task of that key; ``retried`` if Dask runs it again.

        ``details`` are the keyword arguments of Dask's transition.
        """
        text = details.get("exception_text") or ""
        traceback = details.get("traceback_text") or ""
        kind = type_of_failed(details)
        if not text:
            text = _by_dask(details.get("exception"))[1]
        function = function[: protocol.MAX_NAME]
        self._types[kind].value += 1
        key = (computation, fingerprint(kind, function, traceback))
        now = time()
        failure = self._failures.get(key)
        if failure is None:
            text = without_key(text, task)
            failure = self._failures[key] = _Totals(*key, kind, function, text, traceback, now)
            self._characters += failure.characters()
            while len(self._failures) > MAX_FAILURES or self._characters > MAX_CHARACTERS:
                self._let_go_of_oldest()
        failure.count += 1
        failure.retried += retried
        failure.last_at = now
        failure.worker = details.get("worker")
        self._changed[failure] = None

    def _let_go_of_oldest(self) -> None:
        # If it has been told, only its count stays behind.
        failure = self._failures.pop(next(iter(self._failures)))
        self._characters -= failure.characters()
        if failure in self._changed:
            del self._changed[failure]
            self._drops["failure"] += 1

    def by_type(self) -> dict[str, int]:
        """Return how many exceptions there were of each type."""
        return {kind: count.value for kind, count in self._types.values.items()}

    def waiting(self) -> int:
        """Return how many rows have changed since they were told."""
        return len(self._changed)

    def changed(self, most: int) -> list[protocol.Failure]:
        """Return at most ``most`` rows that have changed since they were told, the oldest first."""
        changed = list(islice(self._changed, most))
        for failure in changed:
            del self._changed[failure]
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
        "retried",
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
        self.retried = 0
        self.first_at = self.last_at = now
        self.worker: str | None = None

    def characters(self) -> int:
        return len(self.message) + len(self.traceback)

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
            retried=self.retried,
        )


def type_of_failed(details: Mapping[str, Any]) -> str:
    """Return the type of an exception; ``details`` are those of Dask's transition."""
    text = details.get("exception_text")
    if text:
        return exception_type(text)[: protocol.MAX_NAME]
    return _by_dask(details.get("exception"))[0]


def exception_type(text: str) -> str:
    """Return the type's name from Dask's ``exception_text``, the exception's repr."""
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


def _by_dask(exception: Any) -> tuple[str, str]:
    """Return type and text of an exception that Dask's scheduler made, pickled, or else an actor's.

    It is not unpickled: its class is named right at the start.
    """
    if not isinstance(exception, bytes):
        return _LOST_ACTORS_TYPE, _LOST_ACTOR
    for _, name, _ in islice(pickletools.genops(exception), 12):
        if name in _DASKS_OWN:
            return name, _DASKS_OWN[name]
    return "Exception", "Dask gave this task up."
