"""Reads the code around the calls that send graphs, once per place, and only from files.

Dask's client can read it too, but with side effects on the program. For each graph it looks up the
source of each calling frame again, which takes several times as long as submitting a task. It sends
all of the source: for a call at module level, the whole file. It reads ``__file__`` of every
module, which loads lazy modules and runs their code, which may raise; it imports IPython; and it
reads any kind of file, even a pipe.

So this module reads the same code of the same frames, and runs only Python's standard library.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import MutableMapping
from copy import copy
from types import CodeType, FrameType
from typing import Any, NamedTuple

import dask.config
import distributed.utils
from distributed import Client
from distributed.client import SourceCode

from daskscope.containment import Contained
from daskscope.frame_source import around, module_of, source_of
from daskscope.own_code import is_of_library

#: Places whose code is cached. Beyond it the cache is cleared.
MAX_PLACES = 100
#: Stacks that a call's own is compared with first.
MAX_STACKS = 4
#: Functions whose owner is cached. Beyond it the cache is cleared.
MAX_FUNCTIONS = 500
#: Innermost frames of libraries after which the search for the user's own frames ends.
MAX_OF_LIBRARIES = 60
#: Innermost frames of a thread that waits for a task, among which is Dask's own.
MAX_OF_WAITING = 10
#: Stack frames that must be left to read a file.
FRAMES_TO_READ = 150
#: The function of Dask's in which a thread waits for a task of an event loop.
_SYNC = getattr(distributed.utils.sync, "__code__", None)
# The possible owners of a function.
_USERS, _OF_LIBRARY, _IGNORED = object(), object(), object()

_OURS = re.compile(r"daskscope(\.|$)")


def send_calling_code(
    client: Client, frames: int, context_lines: int | None, drops: MutableMapping[str, int]
) -> None:
    """Make ``client`` send the code around its calls, and cache the code of each place.

    This affects no other client: Dask's own setting, ``nframes``, is the whole process's, and
    another client may refuse to send code. The client sends the innermost ``frames`` frames, or
    more if Dask's setting asks for more. It sends ``context_lines`` lines on each side of a call,
    or all if that is None, and one more if there are more, so that the scheduler sees that it was
    cut.

    If code cannot be read, the graph is sent without it. Other failures are counted in ``drops``.
    """
    send_no_calling_code(client)
    read = getattr(client, "_get_computation_code", None)
    if read is None:
        return
    places = _Places(context_lines)

    # A private method of Dask's. Calls with arguments of later versions go to the original.
    def _get_computation_code(
        stacklevel: int | None = None, nframes: int = 1, **others: Any
    ) -> Any:
        nframes = max(nframes, frames)
        if stacklevel is None and not others:
            return places.code(sys._getframe(2), nframes)  # without what contains it
        if stacklevel is not None:
            stacklevel += 2  # This function and what contains it are on the stack, too.
        return read(stacklevel, nframes=nframes, **others)

    contained = Contained(drops).around(_get_computation_code, otherwise=())
    setattr(client, "_get_computation_code", contained)  # noqa: B010


def send_no_calling_code(client: Client) -> None:
    """Undo :func:`send_calling_code`."""
    vars(client).pop("_get_computation_code", None)


class _Stack(NamedTuple):
    """The ``frames`` that led to ``code``, innermost first: functions and bytecode offsets.

    ``to_outermost`` is whether no frame is outside of these, ``most`` how many may be sent.
    """

    frames: tuple[tuple[CodeType, int], ...]
    to_outermost: bool
    most: int
    code: tuple[SourceCode, ...]


class _Places:
    """The code of the places that graphs were sent from. Thread-safe."""

    def __init__(self, context_lines: int | None) -> None:
        self._context_lines = context_lines
        self._ignored = _Ignored([], [])
        # By the ids of the code objects on the stack. It stores these objects, too, because a freed
        # object's id could be reused.
        self._places: dict[tuple[Any, ...], tuple[tuple[Any, ...], tuple[SourceCode, ...]]] = {}
        # The newest stacks. To compare a stack is faster than to find the owners of its functions.
        self._stacks: deque[_Stack] = deque(maxlen=MAX_STACKS)

    def code(self, frame: FrameType | None, most: int) -> tuple[SourceCode, ...]:
        """Return the code of at most ``most`` frames, from ``frame`` outwards; the innermost last.

        Frames that Dask's settings ignore are left out. So are innermost frames of a library that
        calls Dask for the user, unless no user's code calls them. A library may have a coroutine
        run on the client's event loop: the code that waits for it calls it.
        """
        if most <= 0:
            return ()
        # This runs for each graph, and dask.config.get would double its time.
        settings = dask.config.config["distributed"]["diagnostics"]["computations"]
        ignored = self._ignored
        if (
            ignored.modules != settings["ignore-modules"]
            or ignored.files != settings["ignore-files"]
        ):
            ignored = self._ignored = _Ignored(settings["ignore-modules"], settings["ignore-files"])
            self._places, self._stacks = {}, deque(maxlen=MAX_STACKS)
        # Both as they are now: another thread may meet other settings meanwhile.
        places, stacks = self._places, self._stacks
        for known in stacks.copy():  # another thread may add to it
            inner = frame
            for function, instruction in known.frames:
                if inner is None or inner.f_code is not function or inner.f_lasti != instruction:
                    break
                inner = inner.f_back
            else:
                if known.most == most and (inner is None or not known.to_outermost):
                    return known.code
        walked, chosen, is_of_this_thread = _walk(frame, most, ignored)
        # The position as a bytecode offset, which is faster than a line number.
        frames = tuple([(frame.f_code, frame.f_lasti) for frame in walked])
        place = (most, *[(id(function), instruction) for function, instruction in frames])
        known_place = places.get(place)
        if known_place is None:
            if not _has_room():
                return ()
            if len(places) >= MAX_PLACES:
                places.clear()
            known_place = places[place] = frames, self._read(chosen)
        code = known_place[1]
        if is_of_this_thread:
            stacks.appendleft(_Stack(frames, walked[-1].f_back is None, most, code))
        return code

    def _read(self, stack: list[FrameType]) -> tuple[SourceCode, ...]:
        code: list[SourceCode] = []
        for frame in stack:
            source = source_of(frame)
            if source is None:
                break
            if self._context_lines is not None:
                source = around(source, self._context_lines + 1)
            code.append(source)
            if _is_outermost(frame):
                break
        return tuple(reversed(code))


class _Ignored:
    """Decides which frames are left out: those that Dask's settings ignore, and daskscope's own."""

    def __init__(self, modules: Any, files: Any) -> None:
        # Copies, to detect a change in place.
        self.modules = copy(modules)
        self.files = copy(files)
        # As Dask compiles them from its settings.
        self._of_module = re.compile("|".join(f"(?:{module})" for module in modules) or r"(?!)")
        either = "|".join(files)
        self._of_file = re.compile(
            rf".*[\\/]({either})([\\/]|\.pyc?$|$)|<frozen ({either})>$" if files else r"(?!)"
        )
        #: Owners of functions by id: hashing a code object itself is slow. With the code object,
        #: because a freed object's id could be reused.
        self.functions: dict[int, tuple[object, CodeType]] = {}

    def look(self, frame: FrameType) -> tuple[object, CodeType]:
        """Find the owner of the function of ``frame``, and cache it."""
        if len(self.functions) >= MAX_FUNCTIONS:
            self.functions.clear()
        code, module = frame.f_code, module_of(frame) or ""
        if (
            code.co_name in ("<listcomp>", "<dictcomp>")
            or _OURS.match(module)
            or self._of_module.match(module)
            or self._of_file.match(code.co_filename)
        ):
            whose = _IGNORED
        else:
            whose = _OF_LIBRARY if is_of_library(code.co_filename) else _USERS
        self.functions[id(code)] = owner = whose, code
        return owner


def _walk(
    frame: FrameType | None, most: int, ignored: _Ignored
) -> tuple[list[FrameType], list[FrameType], bool]:
    """Return the frames from ``frame`` outwards, at most ``most`` of them whose code is sent, and
    whether all are of this thread.
    """
    functions = ignored.functions
    walked: list[FrameType] = []
    of_users: list[FrameType] = []
    of_libraries: list[FrameType] = []
    has_waiting = False
    while len(of_users) < most:
        if frame is None:
            if of_users or has_waiting:
                break
            frame, has_waiting = _waiting_for_this_task(), True
            continue
        function = functions.get(id(frame.f_code)) or ignored.look(frame)
        walked.append(frame)
        if function[0] is not _IGNORED:
            if of_users or function[0] is _USERS:
                of_users.append(frame)
            elif len(of_libraries) < MAX_OF_LIBRARIES:
                of_libraries.append(frame)
            else:
                break
        frame = frame.f_back
    return walked, of_users or of_libraries[:most], not has_waiting


def _waiting_for_this_task() -> FrameType | None:
    """Return the frame that called ``Client.sync``, or the like, to wait in another thread for just
    the task that runs on this thread's event loop; None if there is none.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
    if task is None:
        return None
    for waiting in sys._current_frames().values():
        frame: FrameType | None = waiting
        for _ in range(MAX_OF_WAITING):
            if frame is None:
                break
            if frame.f_code is _SYNC:
                if frame.f_locals.get("future") is task:
                    return frame.f_back
                break
            frame = frame.f_back
    return None


def _has_room() -> bool:
    """Return whether enough of Python's stack is left to read files.

    Otherwise an error in a finalizer could show up on the program's stderr.
    """
    frame, left = sys._getframe(), sys.getrecursionlimit() - FRAMES_TO_READ
    while frame.f_back is not None and left > 0:
        frame, left = frame.f_back, left - 1
    return left > 0


def _is_outermost(frame: FrameType) -> bool:
    """Return whether the callers of ``frame`` are of no interest, or unknown."""
    if frame.f_back is None:
        return False
    module = module_of(frame.f_back)
    # The modules that run pytest-xdist and a notebook's cells.
    return (
        module is None
        or module == "__channelexec__"
        or module not in sys.modules
        or module.endswith("interactiveshell")
    )
