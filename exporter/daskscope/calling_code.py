"""The code around the calls that send graphs: read once per place, and out of files alone.

Dask's client can read it too, but not in a program that must not notice. It looks for the source of
each calling frame anew with each graph, which takes several times what it takes to submit a task,
and sends all of it along: of a call at module level the whole file. And it asks every module that
there is for its ``__file__``, which loads the lazy ones, runs their code and raises what that
raises; imports IPython; and reads whatever a file's name stands for, a pipe as well.

So this reads the same, of the same frames, without running any code but Python's own library.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import stat
import sys
import tokenize
import zipimport
from collections.abc import MutableMapping
from copy import copy
from types import CodeType, FrameType, ModuleType
from typing import Any

import dask.config
from distributed import Client
from distributed.client import SourceCode

from daskscope.containment import Contained
from daskscope.own_code import is_of_library

#: Places that are remembered, each with the code of its frames; beyond it all are read again.
MAX_PLACES = 100
#: Functions that are remembered with whether Dask ignores them; beyond it all are looked up again.
MAX_FUNCTIONS = 500
#: Frames of libraries, from the innermost outwards, beyond which no user's own is looked for.
MAX_OF_LIBRARIES = 60
#: Bytes of a file that is read: nobody has written a longer one by hand.
MAX_FILE = 8 << 20
#: Calls, one inside the other, that there has to be room for to read a file.
FRAMES_TO_READ = 150
#: The file of what IPython's magics %time and %timeit run.
_TIMED = ("<timed exec>", "<timed eval>", "<magic-timeit>")
#: The file of all that is compiled from a text. From Python 3.13 on linecache has the text of
#: ``python -c`` by this name, which is wrong for any other text.
_OF_A_TEXT = "<string>"

# Whose a function is.
_USERS, _OF_LIBRARY, _IGNORED = object(), object(), object()

_OURS = re.compile(r"daskscope(\.|$)")


def send_calling_code(
    client: Client, frames: int, context_lines: int | None, drops: MutableMapping[str, int]
) -> None:
    """Have ``client`` send the code around its calls, and remember the code of each place.

    This affects no other client: Dask's own setting, ``nframes``, is the whole process's, and
    another client may refuse to send code. The client sends the innermost ``frames`` frames, or
    more if Dask's setting asks for more. It sends ``context_lines`` lines on each side of a call,
    or all if that is None, and one more if there are more, so that the scheduler sees that it was
    cut.

    If code cannot be read, the graph goes without it. Other failures are counted in ``drops``.
    """
    send_no_calling_code(client)
    read = getattr(client, "_get_computation_code", None)
    if read is None:
        return
    places = _Places(context_lines)

    # An internal of Dask's: what it may be asked some day, and is not yet, it answers itself.
    def _get_computation_code(
        stacklevel: int | None = None, nframes: int = 1, **others: Any
    ) -> Any:
        nframes = max(nframes, frames)
        if stacklevel is None and not others:
            return places.code(sys._getframe(1), nframes)
        if stacklevel is not None:
            stacklevel += 2  # This function and what contains it are on the stack, too.
        return read(stacklevel, nframes=nframes, **others)

    contained = Contained(drops).around(_get_computation_code, otherwise=())
    setattr(client, "_get_computation_code", contained)  # noqa: B010


def send_no_calling_code(client: Client) -> None:
    """Undo :func:`send_calling_code`."""
    vars(client).pop("_get_computation_code", None)


class _Places:
    """The code of the places that graphs were sent from. Threads may share it."""

    def __init__(self, context_lines: int | None) -> None:
        self._context_lines = context_lines
        self._ignored = _Ignored([], [])
        # With the functions that are on the stack, or others could come to have their identities.
        self._known: dict[tuple[int, ...], tuple[tuple[SourceCode, ...], list[CodeType]]] = {}

    def code(self, frame: FrameType | None, most: int) -> tuple[SourceCode, ...]:
        """Return the code of at most so many frames, from ``frame`` outwards; the innermost last.

        Those are left out that Dask's settings ignore. If the innermost are of a library that calls
        Dask for the user, those are left out, too, unless nothing of the user's calls them.
        """
        if most <= 0:
            return ()
        # With each graph: dask.config.get takes as long as all the rest of this.
        settings = dask.config.config["distributed"]["diagnostics"]["computations"]
        ignored = self._ignored
        if (
            ignored.modules != settings["ignore-modules"]
            or ignored.files != settings["ignore-files"]
        ):
            ignored = self._ignored = _Ignored(settings["ignore-modules"], settings["ignore-files"])
            self._known = {}
        known, functions = self._known, ignored.functions
        stack: list[FrameType] = []
        of_libraries: list[FrameType] = []
        place = [most]
        while frame is not None and len(stack) < most:
            code = frame.f_code
            function = functions.get(id(code)) or ignored.look(frame)
            if function[0] is not _IGNORED:
                if stack or function[0] is _USERS:
                    stack.append(frame)
                elif len(of_libraries) < MAX_OF_LIBRARIES:
                    of_libraries.append(frame)
                else:
                    break
                # Where it is at, without having Python look up the line.
                place += (id(code), frame.f_lasti)
            frame = frame.f_back
        stack = stack or of_libraries[:most]
        key = tuple(place)
        found = known.get(key)
        if found is None:
            if not _has_room():
                return ()
            if len(known) >= MAX_PLACES:
                known.clear()
            found = self._read(stack), [frame.f_code for frame in stack]
            known[key] = found
        return found[0]

    def _read(self, stack: list[FrameType]) -> tuple[SourceCode, ...]:
        code: list[SourceCode] = []
        for frame in stack:
            source = _source(frame)
            if source is None:
                break
            if self._context_lines is not None:
                source = _around(source, self._context_lines + 1)
            code.append(source)
            if _is_outermost(frame):
                break
        return tuple(reversed(code))


class _Ignored:
    """Which frames are left out: what Dask's settings of these names say, and our own."""

    def __init__(self, modules: Any, files: Any) -> None:
        # Copies, or a change in place would not be seen.
        self.modules = copy(modules)
        self.files = copy(files)
        # As Dask compiles them from its settings, which are lists.
        self._of_module = re.compile("|".join(f"(?:{module})" for module in modules) or r"(?!)")
        either = "|".join(files)
        self._of_file = re.compile(
            rf".*[\\/]({either})([\\/]|\.pyc?$|$)|<frozen ({either})>$" if files else r"(?!)"
        )
        #: Whose a function is, by its identity: to look it up by itself has Python hash all of it.
        #: With the function, or another could come to have its identity.
        self.functions: dict[int, tuple[object, CodeType]] = {}

    def look(self, frame: FrameType) -> tuple[object, CodeType]:
        """Find out whose the function of ``frame`` is, and remember it."""
        if len(self.functions) >= MAX_FUNCTIONS:
            self.functions.clear()
        code, module = frame.f_code, _module(frame) or ""
        if (
            code.co_name in ("<listcomp>", "<dictcomp>")
            or _OURS.match(module)
            or self._of_module.match(module)
            or self._of_file.match(code.co_filename)
        ):
            whose = _IGNORED
        else:
            whose = _OF_LIBRARY if is_of_library(code.co_filename) else _USERS
        self.functions[id(code)] = found = whose, code
        return found


def _has_room() -> bool:
    """Return whether enough of Python's stack is left to read files.

    What ends for want of it may not be able to say so but on the program's stderr.
    """
    frame, left = sys._getframe(), sys.getrecursionlimit() - FRAMES_TO_READ
    while frame.f_back is not None and left > 0:
        frame, left = frame.f_back, left - 1
    return left > 0


def _module(frame: FrameType | None) -> str | None:
    """Return the name of the module that ``frame`` runs in, None if it has none."""
    if frame is None:
        return None
    # Whatever a program runs code in: it may be a dictionary of its own kind.
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else None


def _is_outermost(frame: FrameType) -> bool:
    """Return whether what called ``frame`` is of no interest, or nobody knows what it is."""
    if frame.f_back is None:
        return False
    module = _module(frame.f_back)
    # What runs pytest-xdist, and what runs a notebook's cells.
    return (
        module is None
        or module == "__channelexec__"
        or module not in sys.modules
        or module.endswith("interactiveshell")
    )


def _source(frame: FrameType) -> SourceCode | None:
    """Return the source of what ``frame`` runs, as Dask's client has it; None if it is not known.

    That is the function's, or the whole file's.
    """
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno
    try:
        lines = _lines(frame)
        # What %timeit runs is in a function that nobody wrote.
        if code.co_name != "<module>" and code.co_filename != "<magic-timeit>" and lines:
            lines = inspect.getblock(lines[code.co_firstlineno - 1 :])
    except (OSError, SyntaxError, ValueError, tokenize.TokenError):
        # It was deleted meanwhile, or edited, or it is no text.
        return None
    if not lines:
        return None
    return SourceCode(
        code=_sendable("".join(lines)),
        lineno_frame=line,
        lineno_relative=line - code.co_firstlineno,
        filename=_sendable(code.co_filename),
    )


def _lines(frame: FrameType) -> list[str]:
    """Return the lines of the file that ``frame`` runs, of a notebook's cell, or the like."""
    file = frame.f_code.co_filename
    kept = linecache.cache.get(file)
    if file == _OF_A_TEXT and not _is_of_main(frame):
        return _cell(file)
    if kept is not None and len(kept) == 4 and kept[1] is None:
        return list(kept[2])  # Of no file: a notebook's cell.
    if file.startswith("<") and file.endswith(">"):
        # Python keeps no file for it. What doctest runs it knows nevertheless.
        return linecache.getlines(file) or _cell(file)
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return _zipped(frame)
    # A pipe would be read at the cost of the program, and may never end.
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
        return []
    with tokenize.open(file) as opened:
        lines = opened.readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


def _is_of_main(frame: FrameType) -> bool:
    main = sys.modules.get("__main__")
    return type(main) is ModuleType and main.__dict__ is frame.f_globals


def _zipped(frame: FrameType) -> list[str]:
    loader, name = dict.get(frame.f_globals, "__loader__"), _module(frame)
    if type(loader) is not zipimport.zipimporter or name is None:
        return []
    return (loader.get_source(name) or "").splitlines(keepends=True)


def _cell(file: str) -> list[str]:
    """Return the lines of the cell that IPython runs, if there is one, as ``file`` counts them."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return []
    lines = str(shell.history_manager._i00).splitlines(keepends=True)
    if file not in _TIMED or not lines:
        return lines
    if lines[0].startswith("%%"):
        return lines[1:]  # what is timed begins after the magic
    timed = [line for line in lines if "%time" in line]
    return timed if len(timed) == 1 else []  # of two, nobody knows which it is


def _sendable(text: str) -> str:
    # A lone surrogate, as of a file name that is no text, could not be sent on.
    return text.encode(errors="replace").decode()


def _around(source: SourceCode, lines: int) -> SourceCode:
    """Return Dask's ``source`` of a frame with that many lines before its call and after it."""
    # Not splitlines(): a form feed ends no line of Python.
    text = source.code.removesuffix("\n").split("\n")
    called = min(max(source.lineno_relative, 0), len(text) - 1)
    first = max(called - lines, 0)
    kept = "".join(f"{line}\n" for line in text[first : called + lines + 1])
    return source._replace(code=kept, lineno_relative=called - first)
