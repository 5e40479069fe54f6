"""The frames of a traceback in Python's own format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from daskscope_service.insight.flame import origin_of

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
#: Between the tracebacks of an exception and of what led to it; the last is the exception's own.
_LED_TO = re.compile(r"^(?:The above exception was|During handling of the above)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a call was made. ``source`` is the line of code, "" where it is not known."""

    file: str
    line: int
    function: str
    source: str


def own_frames(traceback: str) -> list[Frame]:
    """Return the frames that are users' own code, the innermost first; [] if all are, or none is.

    Of an exception that another one led to, they are its own.
    """
    lines = _LED_TO.split(traceback)[-1].splitlines()
    found = []
    frames = 0
    for line, following in pairwise([*lines, ""]):
        if match := _FRAME.fullmatch(line):
            frames += 1
            if origin_of(match["file"]) == "yours":
                # Below it is the line of code, unless it was left out; carets are below that.
                is_code = following.startswith("    ") and following.strip(" ^~")
                source = following.strip() if is_code else ""
                found.append(Frame(match["file"], int(match["line"]), match["function"], source))
    return found[::-1] if len(found) < frames else []
