"""The user's code around the call that sent a graph. The client reads it from its stack."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from daskscope import codec, protocol
from daskscope.size import size_of

#: Calling lines that are cached. Beyond it the oldest are forgotten, and sent again when they
#: recur.
MAX_CODE = 1_000
#: Bytes of code that wait for the next snapshot. Further calling lines are sent without code and
#: counted. If they recur later, their code is sent then.
MAX_BYTES = 4 << 20
#: Dask's ``SourceCode`` of a call's frames, outermost first: the text, the calling line counted in
#: the file and in the text, and the file.
Sources = Sequence[tuple[str, int, int, str]]


class CodeOfGraphs:
    """Cuts the code of each graph to the lines around its call, and remembers it by hash."""

    def __init__(self, context_lines: int, max_bytes: int, drops: Counter[str]) -> None:
        self._context_lines = context_lines
        self._max_bytes = max_bytes
        self._drops = drops
        # By a small key that identifies a frame's source: the source may be a whole file.
        self._frames: OrderedDict[tuple[Any, ...], protocol.CodeFrame] = OrderedDict()
        self._unsent: dict[str, protocol.Code] = {}
        self._unsent_bytes = 0

    def frames(self, sources: Sources) -> tuple[protocol.CodeFrame, ...]:
        """Return the frames of a graph."""
        return tuple(self._frame(*source) for source in sources)

    def take(self) -> tuple[protocol.Code, ...]:
        """Return the code that was new since the last call."""
        code = tuple(self._unsent.values())
        self._unsent.clear()
        self._unsent_bytes = 0
        return code

    def _frame(self, text: str, line: int, relative_line: int, file: str) -> protocol.CodeFrame:
        key = (file, line, relative_line, len(text), hash(text))
        frame = self._frames.get(key)
        if frame is None:
            if len(self._unsent) >= MAX_CODE or self._unsent_bytes >= MAX_BYTES:
                self._drops["code"] += 1
                return protocol.CodeFrame(file=file, line=line)
            code = cut(text, line, relative_line, file, self._context_lines, self._max_bytes)
            self._unsent[code.hash] = code
            self._unsent_bytes += size_of(code)
            frame = protocol.CodeFrame(file=file, line=line, code=code.hash)
            self._frames[key] = frame
            if len(self._frames) > MAX_CODE:
                self._frames.popitem(last=False)
        return frame


def cut(
    text: str, line: int, relative_line: int, file: str, context_lines: int, max_bytes: int
) -> protocol.Code:
    """Return the lines of ``text`` around the calling line.

    ``line`` counts in the file, ``relative_line`` from the first line of ``text`` (0 is the first).
    At module level ``text`` is the whole file, or the notebook's cell. At most ``max_bytes`` are
    returned, and always the calling line, or its beginning.
    """
    # Not splitlines(): a form feed does not end a line of Python.
    lines = text.removesuffix("\n").split("\n")
    called = min(max(relative_line, 0), len(lines) - 1)
    first = max(called - context_lines, 0)
    last = min(called + context_lines + 1, len(lines))
    sizes = [len(line.encode(errors="replace")) + 1 for line in lines[first:last]]
    size, offset = sum(sizes) - 1, first
    while last - first > 1 and size > max_bytes:
        if called - first >= last - 1 - called:
            size -= sizes[first - offset]
            first += 1
        else:
            last -= 1
            size -= sizes[last - offset]
    encoded = "\n".join(lines[first:last]).encode(errors="replace")
    kept = encoded[:max_bytes].decode(errors="ignore")
    first_line = max(line - called + first, 1)
    is_cut = first > 0 or last < len(lines)
    return protocol.Code(
        hash=codec.code_hash(file, first_line, is_cut, kept),
        file=file,
        text=kept,
        first_line=first_line,
        cut=is_cut,
    )
