"""The type of an exception, read from its pickle without unpickling it."""

from __future__ import annotations

import builtins
import pickletools
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.containment import Contained

_BUILTINS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=\(|$)")
# Operations and bytes at the start of a pickle that are searched for the class.
_MAX_OPERATIONS, _MAX_BYTES = 100, 4_096
# Packages that wrap exceptions and classes in pickles.
_WRAPPERS = frozenset({"tblib", "cloudpickle", "copyreg"})

# Exceptions that Dask's scheduler itself raises for a task.
_DASKS_OWN = {
    "KilledWorker": "The workers that ran this task died, more often than Dask allows.",
    "NoWorkerError": "No worker came to run this task for as long as Dask waits for one "
    "(distributed.scheduler.no-workers-timeout).",
    "NoValidWorkerError": "No worker that this task may run on came for as long as Dask waits for "
    "one (distributed.scheduler.no-workers-timeout).",
    "MemoryError": "This task needs more memory than any worker has.",
}
_LOST_ACTOR = "The worker that held this actor was lost."
# The type that the client gets, in older versions of Dask a ValueError.
_LOST_ACTORS_TYPE = (
    "RuntimeError" if hasattr(Scheduler, "_transition_memory_erred") else "ValueError"
)

#: Our texts for exceptions without a text of Dask's. They contain no key.
OWN_WORDS = frozenset(_DASKS_OWN.values())


def type_of_failed(details: Mapping[str, Any]) -> str:
    """Return the type of an exception; ``details`` are the arguments of Dask's transition."""
    text, exception = details.get("exception_text"), details.get("exception")
    if text:
        return exception_type(text, exception)[: protocol.MAX_NAME]
    return by_dask(exception)[0]


def exception_type(text: str, exception: Any) -> str:
    """Return the class name of an ``exception``, which is pickled as a worker sends it.

    ``text`` is its repr. A class can define that freely, so it may contain what must not be sent.
    It only serves to choose among the classes that the pickle names. For an exception that cannot
    be pickled, Dask sends an ``Exception``; then only Python's own classes are reported.
    """
    match = _TYPE.match(text)
    shown = match[0].rpartition(".")[2] if match else None
    likely = "Exception"
    for name in _classes(exception):
        if name == shown:
            return name
        # The pickle may name a function that creates the exception; a class begins with a capital.
        if likely == "Exception" and name.lstrip("_")[:1].isupper():
            likely = name
    return shown if likely == "Exception" and shown in _BUILTINS else likely


def _classes(exception: Any) -> Iterator[str]:
    """Yield names of classes and functions in a pickle, its class first, without unpickling it.

    ``exception`` is Dask's wrapper of the pickle, from the wire or from a worker in the same
    process.
    """
    parts = [getattr(exception, "data", None) or b"", *getattr(exception, "frames", ())]
    # Only the beginning, so that large arrays in it are not copied.
    pickled = b"".join(bytes(memoryview(part)[:_MAX_BYTES]) for part in parts[:2])
    names: list[Any] = []  # the unpickler's stack: strings, None for others
    memo: list[Any] = []
    by_value = 0  # a class without a module: 2 before its metaclass, 1 before its name
    with Contained():  # yield nothing more if it is no pickle
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


def by_dask(exception: Any) -> tuple[str, str]:
    """Return type and text of an exception that Dask's scheduler made.

    ``exception`` is a pickle, which is not unpickled: its class is named at the start. Anything
    else means that an actor was lost.
    """
    if not isinstance(exception, bytes):
        return _LOST_ACTORS_TYPE, _LOST_ACTOR
    for _, name, _ in islice(pickletools.genops(exception), 12):
        if name in _DASKS_OWN:
            return name, _DASKS_OWN[name]
    return "Exception", "Dask gave up this task."
