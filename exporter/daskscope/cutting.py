"""Cuts long texts in the middle, so that their beginning and end stay.

This file is also sent to the workers, as text, before ``daskscope.worker_logs``: it needs nothing
but a Python as old as distributed takes.
"""

from __future__ import annotations

LEFT_OUT = "  [… the middle is left out …]\n"

_FRAME = '\n  File "'


def without_middle(text: str, limit: int) -> str:
    """Return a traceback, of at most ``limit`` characters: its beginning, and more of its end.

    Where it was raised stands at its end, and what set it going at its beginning. Whole frames go,
    or whole lines where there are none: what a cut goes through could be half a secret.
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
