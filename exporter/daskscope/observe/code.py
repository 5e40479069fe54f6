"""The user's code around the call that sent a graph.

The client reads it off its stack and sends it along (``nframes`` in Dask's configuration), but no
hook is told: Dask adds it to a set from which it cannot be told which call it belongs to. So the
handler of the client's message is wrapped, and notes the code for the hook that runs inside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

from distributed.scheduler import Scheduler

from daskscope import protocol

#: Calling lines that are remembered; beyond it the oldest are sent again when they come back.
MAX_CODE = 1_000

_current: ContextVar[Sequence[Any]] = ContextVar("daskscope_code", default=())

Handler = Callable[..., Awaitable[Any]]


class CodeOfGraphs:
    """Cuts the code of each graph to the lines around its call, and remembers it by hash."""

    def __init__(self, context_lines: int, max_bytes: int) -> None:
        self._context_lines = context_lines
        self._max_bytes = max_bytes
        self._frames: OrderedDict[tuple[Any, ...], tuple[protocol.CodeFrame, ...]] = OrderedDict()
        self._unsent: dict[str, protocol.Code] = {}

    def current(self) -> tuple[protocol.CodeFrame, ...]:
        """Return the frames of the graph that is being handled, outermost first."""
        sent = tuple(map(tuple, _current.get()))
        frames = self._frames.get(sent)
        if frames is None:
            frames = self._frames[sent] = tuple(map(self._frame, sent))
            if len(self._frames) > MAX_CODE:
                self._frames.popitem(last=False)
        return frames

    def take(self) -> tuple[protocol.Code, ...]:
        """Return the code that was met since the last call."""
        code = tuple(self._unsent.values())
        self._unsent.clear()
        return code

    def _frame(self, source: tuple[str, int, int, str]) -> protocol.CodeFrame:
        text, line, relative_line, file = source
        code = cut(text, line, relative_line, file, self._context_lines, self._max_bytes)
        self._unsent[code.hash] = code
        return protocol.CodeFrame(file=file, line=line, code=code.hash)


def cut(
    text: str, line: int, relative_line: int, file: str, context_lines: int, max_bytes: int
) -> protocol.Code:
    """Return the lines of ``text`` around the calling line.

    ``line`` counts in the file, ``relative_line`` from the first line of ``text`` (0 is the first).
    At module level ``text`` is the whole file, or the notebook's cell. No more than ``max_bytes``
    are kept, and the calling line always.
    """
    # Not splitlines(): a form feed ends no line of Python.
    lines = text.removesuffix("\n").split("\n")
    called = min(max(relative_line, 0), len(lines) - 1)
    first = max(called - context_lines, 0)
    last = min(called + context_lines + 1, len(lines))
    while last - first > 1 and len("\n".join(lines[first:last]).encode()) > max_bytes:
        if called - first >= last - 1 - called:
            first += 1
        else:
            last -= 1
    kept = "\n".join(lines[first:last]).encode()[:max_bytes].decode(errors="ignore")
    first_line = max(line - called + first, 1)
    is_cut = first > 0 or last < len(lines)
    return protocol.Code(
        hash=protocol.code_hash(file, first_line, is_cut, kept),
        file=file,
        text=kept,
        first_line=first_line,
        cut=is_cut,
    )


def watch_graphs(scheduler: Scheduler) -> Callable[[], None]:
    """Note the code of every graph that arrives from now on. Return what undoes it."""
    original: Handler = scheduler.stream_handlers["update-graph"]

    @wraps(original)
    async def update_graph(*args: Any, **message: Any) -> Any:
        token = _current.set(message.get("code") or ())
        try:
            return await original(*args, **message)
        finally:
            _current.reset(token)

    scheduler.stream_handlers["update-graph"] = update_graph

    def stop() -> None:
        # Someone may have wrapped the handler after us: then ours stays, harmless, inside theirs.
        if scheduler.stream_handlers.get("update-graph") is update_graph:
            scheduler.stream_handlers["update-graph"] = original

    return stop
