"""Exceptions of tasks, grouped where they are alike and counted once, where they were raised."""

from __future__ import annotations

import builtins
import hashlib
import ntpath
import pickletools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
#: those that were not seen for longest make room.
MAX_FAILURES = 1_000
MAX_CHARACTERS = 4_000_000
#: Types of exceptions that the metric keeps apart.
MAX_TYPES = 50

#: Failures that have made room and whose counts are remembered.
MAX_COUNTED = 5_000

_BUILTINS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=\(|$)")
# Operations, and bytes, of a pickle among which the class of what is pickled is named.
_MAX_OPERATIONS, _MAX_BYTES = 100, 4_096
# Modules of what wraps exceptions and classes in pickles.
_WRAPPERS = frozenset({"tblib", "cloudpickle", "copyreg"})
_FRAME = re.compile(r'^  File "(?P<file>.+)", line \d+, in (?P<function>.+)$', re.MULTILINE)
# Python's own library lies in lib/python3.x or, on Windows, in Lib. Compiled libraries tell of
# files that were where they were built.
_NOT_THE_USERS = re.compile(
    r"[\\/](site-packages|dist-packages|lib[\\/]python\d[^\\/]*)[\\/]|\\Lib\\"
    r"|^(?![\\/]|[A-Za-z]:).*\.(?:pyx|pxi|pxd)$|^<(?:frozen|__array_function__) "
)
# A notebook's cell is a file whose name changes with its text.
_CELL = re.compile(r".*[\\/]ipykernel_\d+[\\/]\d+\.py")

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
    told = ("exception", "exception_text", "traceback_text", "startstops", "worker")
    return FailedRun(
        key=message["key"],
        run_id=message.get("run_id"),
        details={name: message[name] for name in told if name in message},
    )


class Failures:
    """Groups of equal exceptions per computation."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        # Those first that were not seen for longest.
        self._failures: dict[tuple[str | None, str], _Totals] = {}
        # Of those that made room: how often, how often retried, and since when.
        self._counted: dict[tuple[str | None, str], tuple[int, int, float]] = {}
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
        failure = self._failures.pop(key, None)
        if failure is None:
            text = without_key(text, task)
            failure = _Totals(*key, kind, function, text, traceback, now)
            failure.goes_on_from(self._counted.pop(key, None))
            self._characters += failure.characters()
        self._failures[key] = failure
        while len(self._failures) > MAX_FAILURES or self._characters > MAX_CHARACTERS:
            self._let_go_of_oldest()
        failure.count += 1
        failure.retried += retried
        failure.last_at = now
        failure.worker = details.get("worker")
        self._changed[failure] = None

    def _let_go_of_oldest(self) -> None:
        key = next(iter(self._failures))
        failure = self._failures.pop(key)
        self._characters -= failure.characters()
        # What is told is how often it was in all: should it come again, it goes on from there.
        self._counted[key] = failure.count, failure.retried, failure.first_at
        if len(self._counted) > MAX_COUNTED:
            del self._counted[next(iter(self._counted))]
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

    def goes_on_from(self, earlier: tuple[int, int, float] | None) -> None:
        if earlier is not None:
            self.count, self.retried, self.first_at = earlier

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
    text, exception = details.get("exception_text"), details.get("exception")
    if text:
        return exception_type(text, exception)[: protocol.MAX_NAME]
    return _by_dask(exception)[0]


def exception_type(text: str, exception: Any) -> str:
    """Return the name of the class of an ``exception`` as a worker sends it: pickled.

    ``text`` is its repr, which may begin with whatever its author likes: with what may not leave.
    So it only tells which of the classes that the pickle names is meant. Of an exception that
    cannot be pickled Dask sends an ``Exception``, to whoever asks for the result as well: of these
    only Python's own classes are told.
    """
    match = _TYPE.match(text)
    shown = match[0].rpartition(".")[2] if match else None
    found = "Exception"
    for name in _classes(exception):
        if name == shown:
            return name
        # What makes it need not be its class: a function, which by convention begins otherwise.
        if found == "Exception" and name.lstrip("_")[:1].isupper():
            found = name
    return shown if found == "Exception" and shown in _BUILTINS else found


def _classes(exception: Any) -> Iterator[str]:
    """Yield names of what a pickle is made by, its class first. It is not unpickled.

    ``exception`` is Dask's wrapper of it, from the wire or from a worker in the same process.
    """
    parts = [getattr(exception, "data", None) or b"", *getattr(exception, "frames", ())]
    # Arrays that it holds are not copied.
    pickled = b"".join(bytes(memoryview(part)[:_MAX_BYTES]) for part in parts[:2])
    names: list[Any] = []  # the strings of late, None for whatever else
    memo: list[Any] = []
    by_value = 0  # the class is no module's: its metaclass comes next (2), then its name (1)
    with suppress(Exception):  # of what is no pickle nothing is known
        for operation, argument, _ in islice(pickletools.genops(pickled), _MAX_OPERATIONS):
            what = operation.name
            if what == "MEMOIZE":
                memo.append(names[-1] if names else None)
            elif what in ("SHORT_BINUNICODE", "BINUNICODE"):
                names.append(argument)
                if by_value == 1:
                    by_value = 0
                    yield str(argument)
            elif what in ("BINGET", "LONG_BINGET"):
                names.append(memo[argument or 0])
            elif what == "STACK_GLOBAL":
                module, name = names[-2:]
                names.append(None)
                if by_value == 2:
                    by_value = 1
                elif name == "_make_skeleton_class":
                    by_value = 2
                elif module.partition(".")[0] not in _WRAPPERS:
                    yield name.rpartition(".")[2]
            elif what not in ("PROTO", "FRAME", "MARK"):
                names.append(None)


@lru_cache(maxsize=256)
def fingerprint(kind: str, function: str, traceback: str) -> str:
    """Return what equal failures share on every cluster and in every run.

    The user's own frames count, by file name and function, without line numbers, folders and
    messages, so that it outlives an edit elsewhere in the file and another machine. Where no frame
    is the user's own, all count.
    """
    frames = [(match["file"], match["function"]) for match in _FRAME.finditer(traceback)]
    own = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])]
    names = [f"{_file_name(file)}:{called}" for file, called in own or frames]
    parts = [kind, function, *names]
    return "v1-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _file_name(file: str) -> str:
    return "<cell>" if _CELL.fullmatch(file) else ntpath.basename(file)


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
