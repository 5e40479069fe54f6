"""The causes of an exception, read from its pickle without unpickling it.

Dask's text and traceback are those of the exception that left the task. Those that it was raised
from, or while they were handled, are in its pickle, each with where it was raised. Of that pickle
nothing is imported and nothing called: inert objects stand for whatever is named in it.
"""

from __future__ import annotations

import pickle
import reprlib
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

from daskscope.containment import contain
from daskscope.protocol import MAX_NAME

#: The longest pickle that is read, in bytes: it is on the event loop, if once for equal failures,
#: and takes 1.5 ms. Most take 50 µs.
MAX_PICKLE = 32_768
#: Exceptions that are sent as having led to another, and frames of each, the innermost.
MAX_CAUSES = 5
MAX_FRAMES = 30
#: Notes of an exception that are sent, and members of a group of exceptions.
MAX_NOTES, MAX_MEMBERS = 5, 5
#: What is shown of what an exception was made of.
_MAX_ARGUMENTS = 6
# No traceback is longer, even where a pickle is made up.
_MAX_DEPTH = 5_000

# What says what an exception is, or how it is pickled. Where Python's own do that, they show what
# it was made of; a class of a user's own may mean not to.
_SHOWS = frozenset({"__repr__", "__str__", "__reduce__", "__reduce_ex__"})


@dataclass(frozen=True, slots=True)
class Cause:
    """An exception that led to another. It has not been cleared to leave.

    ``direct``: the other was raised from it; else while it was being handled. ``frames`` are lines
    of a traceback, without source lines: those were never sent to the scheduler.
    """

    type: str
    message: str
    frames: str
    direct: bool


class ExceptionChain(NamedTuple):
    """What led to an exception, the last first. ``cut`` says that there is, or may be, more.

    And what came with it: the ``notes`` that were added to it and, of a group of exceptions, its
    ``members``, for which ``direct`` says nothing.
    """

    causes: tuple[Cause, ...] = ()
    cut: bool = False
    notes: tuple[str, ...] = ()
    members: tuple[Cause, ...] = ()

    def characters(self) -> int:
        """Return how many characters it is."""
        parts = (*self.causes, *self.members)
        return sum(len(part.message) + len(part.frames) for part in parts) + sum(
            map(len, self.notes)
        )


def causes_of(traceback: str, exception: Any) -> ExceptionChain:
    """Return what led to an ``exception`` as a worker sends it: pickled.

    ``traceback`` is what Dask reports of it: its own.
    """
    try:
        error = _read(exception)
    except Exception as unread:  # of what is no pickle, or is made in a way that is not known
        contain(unread)
        error = None
    # Dask sends another in place of one that cannot be pickled, or has a long text: one that was
    # made, not raised.
    if error is None or (traceback and error.traceback is None):
        return ExceptionChain(cut=bool(traceback))
    causes: list[Cause] = []
    notes, members = _notes(error), _members(error)
    try:
        for cause in _led_to(error):
            if len(causes) == MAX_CAUSES:
                return ExceptionChain(tuple(causes), True, notes, members)
            causes.append(cause)
    except Exception as unread:  # the rest is made in a way that is not known
        contain(unread)
        return ExceptionChain(tuple(causes), True, notes, members)
    return ExceptionChain(tuple(causes), False, notes, members)


def _notes(error: _Raised) -> tuple[str, ...]:
    notes = error.notes if isinstance(error.notes, list) else ()
    return tuple(note for note in notes[:MAX_NOTES] if isinstance(note, str))


def _members(error: _Raised) -> tuple[Cause, ...]:
    """Return the members of a group, without what groups in it hold."""
    held = error.made_of[1:2] if isinstance(error.made_of, tuple) else ()
    found = [_raised(one) for one in held[0]] if held and isinstance(held[0], list | tuple) else []
    members = []
    for one in found[:MAX_MEMBERS]:
        if one is not None:
            try:
                members.append(_cause(one, direct=True))
            except Exception as unread:  # it is made in a way that is not known
                contain(unread)
    return tuple(members)


class _Raised(NamedTuple):
    """An exception, as tblib pickles it. Old tblib leaves out all after the traceback."""

    made_by: Any
    made_of: Any
    cause: Any
    traceback: Any
    context: Any = None
    suppresses_context: bool = False
    notes: Any = None


class _Stand:
    """Stands for what a pickle names, and for what is made by it, out of ``args``."""

    __slots__ = ("args", "state")
    module = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_: Any) -> _Stand:
        self = object.__new__(cls)
        self.args, self.state = args, None
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *args: Any, **_: Any) -> _Stand:
        """Make what a pickle makes by something that it has made, as methods of a class."""
        return _stand_in("", "object")(*args)

    def __repr__(self) -> str:
        raised = _raised(self)
        return f"<{type(self).__name__ if raised is None else raised.made_by.__name__}>"

    # What is like a list, a set or a mapping is filled.

    def append(self, item: Any) -> None:
        """Take an item."""

    def extend(self, items: Any) -> None:
        """Take some items."""

    def add(self, item: Any) -> None:
        """Take an item."""

    def __setitem__(self, key: Any, item: Any) -> None:
        """Take an item."""


@lru_cache(maxsize=256)
def _stand_in(module: str, name: str) -> type[_Stand]:
    return type(name, (_Stand,), {"__slots__": (), "module": module})


def _class_by_value(metaclass: Any, name: str, *_: Any) -> type[_Stand]:
    # It came along, as cloudpickle sends what is of no module.
    return _stand_in("", name)


class _Reader(pickle.Unpickler):
    """Makes nothing but what Python writes as a literal, and what stands for all else."""

    def find_class(self, module: str, name: str) -> Any:
        return _class_by_value if name == "_make_skeleton_class" else _stand_in(module, name)


def _read(exception: Any) -> _Raised | None:
    parts = [getattr(exception, "data", None) or b"", *getattr(exception, "frames", ())]
    parts = [memoryview(part) for part in parts]
    if sum(part.nbytes for part in parts) > MAX_PICKLE:
        return None
    return _raised(_Reader(BytesIO(b"".join(parts))).load())


def _raised(error: Any) -> _Raised | None:
    called = type(error).__name__
    if called == "unpickle_exception":
        return _Raised(*error.args[:7])
    if called == "unpickle_exception_with_attrs":
        kind, attributes, *others = error.args
        return _Raised(kind, attributes["args"], *others[:5])
    return None


def _led_to(raised: _Raised) -> Iterator[Cause]:
    """Yield what led to it, the last first."""
    while True:
        direct = raised.cause is not None
        error = raised.cause if direct or raised.suppresses_context else raised.context
        if error is None:
            return
        before = _raised(error)
        if before is None:
            raise ValueError("it is pickled in a way of its own")
        raised = before
        yield _cause(raised, direct)


def _cause(raised: _Raised, direct: bool) -> Cause:
    kind = raised.made_by
    if not (isinstance(kind, type) and issubclass(kind, _Stand)):
        raise ValueError("it is made by no class")
    name = kind.__name__.rpartition(".")[2][:MAX_NAME]
    if not name.lstrip("_")[:1].isupper():  # a function makes it, and its name may not be sent
        name = "Exception"
    message = f"{name}(…)"
    if _shows_arguments(kind.module, kind.__name__):
        few = [_repr.repr(value) for value in raised.made_of[:_MAX_ARGUMENTS]]
        few += ["…"] if len(raised.made_of) > len(few) else []
        message = f"{name}({', '.join(few)})"
    return Cause(name, message, _frames(raised.traceback), direct)


def _shows_arguments(module: str, name: str) -> bool:
    # Only where the class is at hand here can that be known; it is not imported.
    kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return isinstance(kind, type) and not any(
        base.__module__ != "builtins" and not _SHOWS.isdisjoint(vars(base))
        for base in type.mro(kind)
    )


def _frames(traceback: Any) -> str:
    last: deque[str] = deque(maxlen=MAX_FRAMES)
    depth = 0
    while traceback is not None and depth < _MAX_DEPTH:
        if traceback.state is None:  # the first is a call, those below it are objects
            frame, line, following = traceback.args
        else:
            names = ("tb_frame", "tb_lineno", "tb_next")
            frame, line, following = map(traceback.state.get, names)
        code = frame.state["f_code"].state
        last.append(f'  File "{code["co_filename"]}", line {line}, in {code["co_name"]}\n')
        traceback = following
        depth += 1
    left_out = [f"  [{depth - len(last)} more calls before these]\n"] if depth > len(last) else []
    return "".join([*left_out, *last])


class _Repr(reprlib.Repr):
    """Short texts of what an exception was made of."""

    def __init__(self) -> None:
        super().__init__()
        # They are cut once they are scrubbed: half a secret is not known for one.
        self.maxstring = self.maxother = MAX_PICKLE
        self.maxlevel = 3

    def repr_type(self, kind: type, level: int) -> str:
        """Return the name of a class."""
        return kind.__name__


_repr = _Repr()
