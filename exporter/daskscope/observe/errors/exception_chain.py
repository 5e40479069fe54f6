"""The causes of an exception, read from its pickle without unpickling it.

Dask reports the text and traceback of the exception that left the task. The exceptions that led to
it are in its pickle, each with its traceback. Reading the pickle imports and calls nothing that it
names: inert objects stand in for all of it.
"""

from __future__ import annotations

import builtins
import os
import pickle
import reprlib
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from daskscope.containment import contain
from daskscope.protocol import MAX_NAME

#: The longest pickle that is read, in bytes. Reading is on the event loop, once for equal failures,
#: and takes 1.5 ms at most; usually 50 µs.
MAX_PICKLE = 32_768
#: Causes of an exception that are sent, and innermost frames of each.
MAX_CAUSES = 5
MAX_FRAMES = 30
#: Notes of an exception that are sent, and members of a group of exceptions.
MAX_NOTES, MAX_MEMBERS = 5, 5
#: Arguments of an exception that are shown.
_MAX_ARGUMENTS = 6
# A bound on frames, in case a pickle is forged.
_MAX_DEPTH = 5_000

# Methods that decide what an exception shows. If all of them are Python's own, they show the
# arguments anyway; a user's class that overrides one may mean to hide its arguments.
_SHOWS = frozenset({"__repr__", "__str__", "__reduce__", "__reduce_ex__"})


@dataclass(frozen=True, slots=True)
class Cause:
    """An exception that led to another. Privacy rules have not been applied to it yet.

    ``direct``: the other was raised from it (``raise … from``), else while it was being handled.
    ``frames`` are lines of a traceback, without source lines: those were never sent to the
    scheduler.
    """

    type: str
    message: str
    frames: str
    direct: bool


class ExceptionChain(NamedTuple):
    """What led to an exception, the most recent cause first.

    ``cut`` is whether there are, or may be, more causes. ``notes`` are those that were added to the
    exception. ``members`` are those of an exception group; their ``direct`` has no meaning.
    ``files`` are those that an ``OSError`` names after its number and its text.
    """

    causes: tuple[Cause, ...] = ()
    cut: bool = False
    notes: tuple[str, ...] = ()
    members: tuple[Cause, ...] = ()
    files: tuple[str, ...] = ()

    def characters(self) -> int:
        """Return the characters of all its texts."""
        parts = (*self.causes, *self.members)
        return sum(len(part.message) + len(part.frames) for part in parts) + sum(
            map(len, (*self.notes, *self.files))
        )


def causes_of(traceback: str, exception: Any) -> ExceptionChain:
    """Return what led to an ``exception``, which is pickled as a worker sends it.

    ``traceback`` is the exception's own, as Dask reports it.
    """
    try:
        error = _read(exception)
    except Exception as unread:  # it is no pickle, or has an unknown form
        contain(unread)
        error = None
    # If an exception cannot be pickled or has a long text, Dask sends another in its place, which
    # was never raised and so has no traceback.
    if error is None or (traceback and error.traceback is None):
        return ExceptionChain(cut=bool(traceback))
    causes: list[Cause] = []
    others = _notes(error), _members(error), _files(error)
    try:
        for cause in _led_to(error):
            if len(causes) == MAX_CAUSES:
                return ExceptionChain(tuple(causes), True, *others)
            causes.append(cause)
    except Exception as unread:  # the rest has an unknown form
        contain(unread)
        return ExceptionChain(tuple(causes), True, *others)
    return ExceptionChain(tuple(causes), False, *others)


def _notes(error: _Raised) -> tuple[str, ...]:
    notes = error.notes if isinstance(error.notes, list) else ()
    return tuple(note for note in notes[:MAX_NOTES] if isinstance(note, str))


def _files(error: _Raised) -> tuple[str, ...]:
    """Return the files that one of Python's own OSErrors names: its repr leaves them out."""
    kind, made_of = error.made_by, error.made_of
    if getattr(kind, "module", None) != "builtins" or not isinstance(made_of, tuple):
        return ()
    of_python = vars(builtins).get(kind.__name__)
    if not (isinstance(of_python, type) and issubclass(of_python, OSError)):
        return ()
    # Between two files is the number that Windows gives the error.
    return tuple(_path(file) for file in made_of[2:5:2] if file is not None)


def _path(file: Any) -> str:
    if isinstance(file, _Stand) and type(file).module.partition(".")[0] == "pathlib":
        windows = type(file).__name__.endswith("WindowsPath")
        return str((PureWindowsPath if windows else PurePosixPath)(*file.args))
    return os.fsdecode(file) if isinstance(file, str | bytes) else repr(file)


def _members(error: _Raised) -> tuple[Cause, ...]:
    """Return the direct members of an exception group."""
    held = error.made_of[1:2] if isinstance(error.made_of, tuple) else ()
    raised = [_raised(one) for one in held[0]] if held and isinstance(held[0], list | tuple) else []
    members = []
    for one in raised[:MAX_MEMBERS]:
        if one is not None:
            try:
                members.append(_cause(one, direct=True))
            except Exception as unread:  # it has an unknown form
                contain(unread)
    return tuple(members)


class _Raised(NamedTuple):
    """An exception, as tblib pickles it. Old tblib omits the fields after ``traceback``."""

    made_by: Any
    made_of: Any
    cause: Any
    traceback: Any
    context: Any = None
    suppresses_context: bool = False
    notes: Any = None


class _Stand:
    """Stands in for a class or function that a pickle names, and for what calls of it return."""

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
        """Stand in for a call of an object from the pickle, such as a bound method."""
        return _stand_in("", "object")(*args)

    def __repr__(self) -> str:
        raised = _raised(self)
        return f"<{type(self).__name__ if raised is None else raised.made_by.__name__}>"

    # The unpickler fills objects like lists, sets and mappings by these methods.

    def append(self, item: Any) -> None:
        """Take an item."""

    def extend(self, items: Any) -> None:
        """Ignore items of a list."""

    def add(self, item: Any) -> None:
        """Take an item."""

    def __setitem__(self, key: Any, item: Any) -> None:
        """Take an item."""


@lru_cache(maxsize=256)
def _stand_in(module: str, name: str) -> type[_Stand]:
    return type(name, (_Stand,), {"__slots__": (), "module": module})


def _class_by_value(metaclass: Any, name: str, *_: Any) -> type[_Stand]:
    # The pickle contains the class itself: cloudpickle does so for classes without a module.
    return _stand_in("", name)


class _Reader(pickle.Unpickler):
    """Creates Python's literals, and stand-ins for everything else."""

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
        return _Raised(kind, _with_files(attributes), *others[:5])
    return None


def _with_files(attributes: Mapping[str, Any]) -> Any:
    """Return an exception's arguments, those of an OSError as they were given: with its files."""
    made_of = attributes["args"]
    files = [attributes[name] for name in ("filename", "filename2") if name in attributes]
    if not files or len(made_of) != 2:
        return made_of
    return (*made_of, files[0], *(more for file in files[1:] for more in (None, file)))


def _led_to(raised: _Raised) -> Iterator[Cause]:
    """Yield the causes, the most recent first."""
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
    if not name.lstrip("_")[:1].isupper():  # a function creates it, and that name may not be sent
        name = "Exception"
    message = f"{name}(…)"
    if _shows_arguments(kind.module, kind.__name__):
        few = [_repr.repr(value) for value in raised.made_of[:_MAX_ARGUMENTS]]
        few += ["…"] if len(raised.made_of) > len(few) else []
        message = f"{name}({', '.join(few)})"
    return Cause(name, message, _frames(raised.traceback), direct)


def _shows_arguments(module: str, name: str) -> bool:
    # This can only be known if the class's module is loaded here; it is never imported for this.
    kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return isinstance(kind, type) and not any(
        base.__module__ != "builtins" and not _SHOWS.isdisjoint(vars(base))
        for base in type.mro(kind)
    )


def _frames(traceback: Any) -> str:
    last: deque[str] = deque(maxlen=MAX_FRAMES)
    depth = 0
    while traceback is not None and depth < _MAX_DEPTH:
        if traceback.state is None:  # the first is a call, the others are objects
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
    """Short texts of an exception's arguments."""

    def __init__(self) -> None:
        super().__init__()
        # Texts are cut only after scrubbing, because half a secret would not be recognized.
        self.maxstring = self.maxother = MAX_PICKLE
        self.maxlevel = 3

    def repr_type(self, kind: type, level: int) -> str:
        """Return the name of a class."""
        return kind.__name__


_repr = _Repr()
