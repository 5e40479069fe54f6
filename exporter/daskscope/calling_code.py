"""The code around the calls that send graphs, as Dask's client reads it: once per place.

Dask looks for the source of each calling frame anew with each graph, on the disk and through
Python's own parser, which takes several times what it takes to submit a task.
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


def remember_calling_code(client: Client) -> None:
    """Have ``client`` remember the code that it has read for a place. It ends with the client."""
    read = getattr(client, "_get_computation_code", None)
    if read is None or getattr(read, "of_daskscope", False):
        return
    # With the code that is on the stack, or another could come to have the same identity.
    known: dict[tuple[object, ...], tuple[Any, list[CodeType]]] = {}

    # An internal of Dask's: what it may be asked some day, and is not yet, it answers itself.
    def _get_computation_code(
        stacklevel: int | None = None, nframes: int = 1, **others: Any
    ) -> Any:
        if nframes <= 0:
            return ()
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
            found = known[key] = read(nframes=nframes), stack
        return found[0]

    _get_computation_code.of_daskscope = True  # type: ignore[attr-defined]
    setattr(client, "_get_computation_code", _get_computation_code)  # noqa: B010
