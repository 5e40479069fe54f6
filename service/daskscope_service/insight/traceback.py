"""Finds the frames of users' own code in a traceback that Python formatted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from daskscope_service.insight.flame import origin_of

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
#: Separates the tracebacks of a chain of exceptions; the last one is that of the final exception.
_LED_TO = re.compile(r"^(?:The above exception was|During handling of the above)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a call was made. ``source`` is the line of code, "" if it is not known."""

    file: str
    line: int
    function: str
    source: str


def own_frames(traceback: str) -> list[Frame]:
    """Return the frames of users' own code, the innermost first; [] if all frames are, or none is.

    In a chain of exceptions, only the frames of the final one count.
    """
    lines = _LED_TO.split(traceback)[-1].splitlines()
    frames_of_users = []
    frames = 0
    for line, following in pairwise([*lines, ""]):
        if match := _FRAME.fullmatch(line):
            frames += 1
            if origin_of(match["file"]) == "yours":
                # The line of code follows, unless it was left out; a line of carets may come next.
                is_code = following.startswith("    ") and following.strip(" ^~")
                source = following.strip() if is_code else ""
                frames_of_users.append(
                    Frame(match["file"], int(match["line"]), match["function"], source)
                )
    return frames_of_users[::-1] if len(frames_of_users) < frames else []
