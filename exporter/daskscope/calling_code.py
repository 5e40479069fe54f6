"""The code around the calls that send graphs, as Dask's client reads it: once per place.

Dask looks for the source of each calling frame anew with each graph, on the disk and through
Python's own parser, which takes several times what it takes to submit a task. And it sends all of
it along: of a call at module level the whole file, which the scheduler has to unpack each time.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import dask.config
from distributed import Client

#: Places that are remembered, each with the code of its frames; beyond it all are read again.
MAX_PLACES = 100

# Settings of Dask's that its answer depends on.
_SETTINGS = (
    "distributed.diagnostics.computations.ignore-modules",
    "distributed.diagnostics.computations.ignore-files",
)


def send_calling_code(client: Client, frames: int, context_lines: int | None) -> None:
    """Have ``client`` send the code around its calls, and remember what it has read for a place.

    It alone: Dask's setting for it, ``nframes``, is the whole process's, and another client may
    have refused it. It sends that many ``frames``, the innermost ones; more where Dask's setting
    asks for more. Of what is around a call it sends ``context_lines`` on each side, or all if that
    is None; and one more where there is more, so that the scheduler sees that it was cut.
    """
    send_no_calling_code(client)
    read = getattr(client, "_get_computation_code", None)
    if read is None:
        return
    # With the code that is on the stack, or another could come to have the same identity.
    known: dict[tuple[object, ...], tuple[Any, list[CodeType]]] = {}

    # An internal of Dask's: what it may be asked some day, and is not yet, it answers itself.
    def _get_computation_code(
        stacklevel: int | None = None, nframes: int = 1, **others: Any
    ) -> Any:
        nframes = max(nframes, frames)
        if stacklevel is not None:
            stacklevel += 1  # this function is on the stack, too
        if stacklevel is not None or others:
            return read(stacklevel, nframes=nframes, **others)
        place: list[object] = [nframes, *(str(dask.config.get(name)) for name in _SETTINGS)]
        stack = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            stack.append(frame.f_code)
            # Where it is at, without having Python look up the line.
            place += (id(frame.f_code), frame.f_lasti)
            frame = frame.f_back
        key = tuple(place)
        found = known.get(key)
        if found is None:
            if len(known) >= MAX_PLACES:
                known.clear()
            code = read(nframes=nframes)
            if context_lines is not None:
                code = tuple(_around(source, context_lines + 1) for source in code)
            found = known[key] = code, stack
        return found[0]

    setattr(client, "_get_computation_code", _get_computation_code)  # noqa: B010


def send_no_calling_code(client: Client) -> None:
    """Undo :func:`send_calling_code`."""
    vars(client).pop("_get_computation_code", None)


def _around(source: Any, lines: int) -> Any:
    """Return Dask's ``source`` of a frame with that many lines before its call and after it."""
    # Not splitlines(): a form feed ends no line of Python.
    text = source.code.removesuffix("\n").split("\n")
    called = min(max(source.lineno_relative, 0), len(text) - 1)
    first = max(called - lines, 0)
    kept = "".join(f"{line}\n" for line in text[first : called + lines + 1])
    return source._replace(code=kept, lineno_relative=called - first)
