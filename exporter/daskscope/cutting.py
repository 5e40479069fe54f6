"""Cuts long texts in the middle, so that their beginning and end stay.

This file is also sent to the workers, as text, before ``daskscope.record_text``. So it uses only
the standard library, and runs on any Python that distributed supports.
"""

from __future__ import annotations

LEFT_OUT = "  [… the middle is left out …]\n"

_FRAME = '\n  File "'


def without_middle(text: str, limit: int) -> str:
    """Return a traceback cut to ``limit`` characters: some of its beginning, more of its end.

    The error is at its end, the outermost call at its beginning. Whole frames are removed, or whole
    lines if there are no frames, because a cut could leave half a secret, which scrubbing would
    miss.
    """
    if len(text) <= limit:
        return text
    room = max(limit - len(LEFT_OUT), 0)
    beginning, end = text[: room // 4], text[len(text) - (room - room // 4) :]
    for mark in (_FRAME, "\n", " "):
        if mark in beginning and mark in end:
            beginning = beginning[: beginning.rfind(mark) + 1]
            return beginning + LEFT_OUT + end[end.find(mark) + 1 :]
    return LEFT_OUT[:limit]
