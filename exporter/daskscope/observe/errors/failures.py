"""Groups equal exceptions of tasks, and counts each once, for the task that raised it."""

from __future__ import annotations

import hashlib
import inspect
import ntpath
import os
import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

import dask
import distributed
from dask.typing import Key
from distributed.core import error_message
from distributed.metrics import time

from daskscope import protocol
from daskscope.containment import each_guarded, guarded
from daskscope.observe.bounded import Bounded, Count
from daskscope.observe.errors.exception_chain import Cause, ExceptionChain, causes_of
from daskscope.observe.errors.exception_types import by_dask, type_of_failed
from daskscope.observe.naming import without_key
from daskscope.own_code import is_of_library

#: Failures that are stored, over all computations, and characters of their texts. Beyond it, the
#: failure that was not seen for longest is dropped.
MAX_FAILURES = 1_000
MAX_CHARACTERS = 4_000_000
#: Types of exceptions that the metric counts separately.
MAX_TYPES = 50

#: Dropped failures whose counts are remembered.
MAX_COUNTED = 5_000

#: Tasks that raised whose failure is remembered; retries of earlier tasks are only counted.
MAX_RAISED = 10_000

_FRAME = re.compile(
    r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$'
    r"(?P<source>(?:\n    .*)*)",
    re.MULTILINE,
)
#: The longest cycle of recursive calls that is recognized, in frames.
_MAX_CYCLE = 8
#: Frames of a traceback that are read at its two ends, and characters at either end. Bounded
#: because this runs on the event loop.
_OUTERMOST, _INNERMOST, _MAX_PART = 100, 200, 100_000
_DASKS_FOLDERS = tuple(
    os.path.join(os.path.dirname(inspect.getfile(module)), "") for module in (dask, distributed)
)
# The part of distributed that loads what clients send.
_LOADING = os.path.join(_DASKS_FOLDERS[1], "protocol", "")
# Python's repr of an OSError: its number and its text.
_WITHOUT_FILES = re.compile(r"[A-Z]\w*\(\d+, .*\)", re.DOTALL)
# A notebook's cell is a file whose name changes with its text.
_CELL = re.compile(r".*[\\/]ipykernel_\d+[\\/]\d+\.py")


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A worker's message about a run that raised. ``details`` are those of Dask's transition."""

    key: Key
    run_id: int | None
    details: dict[str, Any]


def read_failed_run(message: Mapping[str, Any]) -> FailedRun:
    """Read a message of the kind ``task-erred``."""
    wanted = ("exception", "exception_text", "traceback_text", "startstops", "worker")
    return FailedRun(
        key=message["key"],
        run_id=message.get("run_id"),
        details={name: message[name] for name in wanted if name in message},
    )


def details_of_graph(error: BaseException) -> dict[str, Any]:
    """Return the error of a graph that Dask could not accept, in the form of a task's details.

    Dask's own messages about a graph contain its keys, so they are left out. Errors from loading
    the graph come from the user's code or name a missing module, and are kept.
    """
    details: dict[str, Any] = dict(error_message(error))
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    file = "" if last is None else last.tb_frame.f_code.co_filename
    if file.startswith(_DASKS_FOLDERS) and not file.startswith(_LOADING):
        details.update(exception_text=f"{type(error).__name__}(…)", exception=None)
    return details


@dataclass(frozen=True, slots=True)
class RawFailure:
    """A row, and what led to its first exception. Privacy rules have been applied to neither."""

    row: protocol.Failure
    causes: ExceptionChain

    @property
    def computation(self) -> str | None:
        """The id of the failure's computation."""
        return self.row.computation

    @property
    def fingerprint(self) -> str:
        """The hash that equal failures share."""
        return self.row.fingerprint


class Failures:
    """Groups of equal exceptions per computation."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        # The failure that was not seen for longest comes first.
        self._failures: dict[tuple[str | None, str], _Totals] = {}
        # Of dropped failures: their count, how many were retried, and when the first was.
        self._counted: dict[tuple[str | None, str], tuple[int, int, float]] = {}
        # The failures of the tasks that raised last, by the hashes of their keys: a key may be
        # long, and would outlive Dask's task. Then the hashes of tasks that run again.
        self._raised: dict[int, tuple[str | None, str]] = {}
        self._again: deque[int] = deque()
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
        """Count one exception of the task with the key ``task``; ``retried`` if Dask runs it again.

        ``details`` are the keyword arguments of Dask's transition.
        """
        self._note_retries()
        traceback = details.get("traceback_text") or ""
        function = function[: protocol.MAX_NAME]
        # It is counted even if parts of it cannot be read.
        kind = guarded(self._drops, "Exception", type_of_failed, details)
        self._types[kind].value += 1
        key = (computation, guarded(self._drops, "v1-", fingerprint, kind, function, traceback))
        now = time()
        failure = self._failures.pop(key, None)
        if failure is None:
            causes = guarded(self._drops, ExceptionChain(cut=True), _causes_of, details, task)
            text = guarded(self._drops, "", _text_of, details, task, causes.files)
            failure = _Totals(*key, kind, function, text, traceback, causes, now)
            failure.goes_on_from(self._counted.pop(key, None))
            self._characters += failure.characters()
        self._failures[key] = failure
        while len(self._failures) > MAX_FAILURES or self._characters > MAX_CHARACTERS:
            self._drop_oldest()
        failure.count += 1
        failure.retried += retried
        failure.last_at = now
        failure.worker = details.get("worker")
        self._changed[failure] = None
        if not retried:
            self._raised[hash(task)] = key
            if len(self._raised) > MAX_RAISED:
                del self._raised[next(iter(self._raised))]

    def runs_again(self, task: Key) -> None:
        """Note that the task with that key, which raised, runs again because someone asked for it.

        In any thread, after :meth:`add` for the task and before the next :meth:`add` for it.
        """
        if hash(task) in self._raised:
            self._again.append(hash(task))
        else:
            self._drops["retry"] += 1

    def _note_retries(self) -> None:
        while self._again:
            key = self._raised.pop(self._again.popleft(), None)
            failure = None if key is None else self._failures.get(key)
            if failure is None:  # it was dropped meanwhile
                self._drops["retry"] += 1
            else:
                failure.retried += 1
                self._changed[failure] = None

    def _drop_oldest(self) -> None:
        key = next(iter(self._failures))
        failure = self._failures.pop(key)
        self._characters -= failure.characters()
        # The rows contain total counts: if the failure occurs again, its count continues from here.
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
        """Return how many rows have changed since they were sent."""
        self._note_retries()
        return len(self._changed)

    def changed(self, most: int) -> list[RawFailure]:
        """Return at most ``most`` rows that have changed since they were sent, in that order."""
        self._note_retries()
        changed = list(islice(self._changed, most))
        for failure in changed:
            del self._changed[failure]
        return list(each_guarded(self._drops, _Totals.raw, changed))


def _text_of(details: Mapping[str, Any], task: Key, files: tuple[str, ...]) -> str:
    text = details.get("exception_text") or by_dask(details.get("exception"))[1]
    if files and _WITHOUT_FILES.fullmatch(text):
        text = f"{text[:-1]}, {', None, '.join(map(repr, files))})"
    return without_key(text, task)


def _causes_of(details: Mapping[str, Any], task: Key) -> ExceptionChain:
    chain = causes_of(details.get("traceback_text") or "", details.get("exception"))

    def cleared(causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
        return tuple(replace(cause, message=without_key(cause.message, task)) for cause in causes)

    return chain._replace(
        causes=cleared(chain.causes),
        members=cleared(chain.members),
        notes=tuple(without_key(note, task) for note in chain.notes),
    )


class _Totals:
    __slots__ = (
        "causes",
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
        causes: ExceptionChain,
        now: float,
    ) -> None:
        self.computation = computation
        self.fingerprint = fingerprint
        self.type = kind
        self.function = function
        self.message = message
        self.traceback = traceback
        self.causes = causes
        self.count = 0
        self.retried = 0
        self.first_at = self.last_at = now
        self.worker: str | None = None

    def goes_on_from(self, earlier: tuple[int, int, float] | None) -> None:
        if earlier is not None:
            self.count, self.retried, self.first_at = earlier

    def characters(self) -> int:
        return len(self.message) + len(self.traceback) + self.causes.characters()

    def raw(self) -> RawFailure:
        row = protocol.Failure(
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
        return RawFailure(row, self.causes)


@lru_cache(maxsize=256)
def fingerprint(kind: str, function: str, traceback: str) -> str:
    """Return a hash that equal failures share on every cluster and in every run.

    It covers the user's own frames by file name and function, or all frames if none is the user's.
    It leaves out line numbers, folders and messages, so it survives edits elsewhere in the file and
    other machines. Between the first and the last call of a recursive function it leaves out all
    frames, so the depth makes no difference.
    """
    if len(traceback) > 2 * _MAX_PART:
        traceback = f"{traceback[:_MAX_PART]}\n{traceback[-_MAX_PART:]}"
    frames = [_Frame(**match.groupdict()) for match in _FRAME.finditer(traceback)]
    if len(frames) > _OUTERMOST + _INNERMOST:
        frames[_OUTERMOST:-_INNERMOST] = []
    own = [frame for frame in frames if not is_of_library(frame.file)]
    parts = [kind, function, *_without_recursion(own or frames)]
    return "v1-" + hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:16]


class _Frame(NamedTuple):
    file: str
    line: str
    function: str
    source: str

    @property
    def name(self) -> str:
        return f"{_file_name(self.file)}:{self.function}"


def _without_recursion(frames: list[_Frame]) -> list[str]:
    """Return the names of frames; of a recursive cycle, only the last way through it."""
    names = [frame.name for frame in frames]
    recursive = _recursive(frames, names)
    way: list[str] = []
    for name in names:
        if name in recursive and name in way:
            del way[way.index(name) + 1 :]
        else:
            way.append(name)
    return way


def _recursive(frames: list[_Frame], names: list[str]) -> set[str]:
    # A repeated name is not enough: several functions may have the same decorator.
    recursive: set[str] = set()
    if len(set(names)) == len(names):
        return recursive
    seen = set(names[:1])
    for number, (caller, frame) in enumerate(pairwise(frames)):
        called = names[number + 1]
        if called in seen and _calls(caller.source, frame.function):
            recursive.add(called)
        seen.add(called)
    for length in range(1, _MAX_CYCLE + 1):
        for at in range(len(frames) - 2 * length + 1):
            again = at + length
            if frames[at] == frames[again] and frames[at:again] == frames[again : again + length]:
                recursive.update(names[at:again])
    return recursive


def _calls(source: str, function: str) -> bool:
    """Return whether a line of code calls that function, or that method of its own object."""
    # Without a regular expression, which would have to be compiled for each function.
    at = source.find(f"{function}(")
    while at >= 0:
        before = source[:at].removesuffix("self.").removesuffix("cls.")[-1:]
        if not (before.isalnum() or before in ("_", ".")):
            return True
        at = source.find(f"{function}(", at + 1)
    return False


def _file_name(file: str) -> str:
    return "<cell>" if _CELL.fullmatch(file) else ntpath.basename(file)
