"""Replaces secrets in texts; ``daskscope.secret_patterns`` contains the patterns.

The time is proportional to a text's length, whatever its content, because each pattern's matches
are bounded.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from daskscope.cutting import without_middle
from daskscope.protocol import MAX_NAME
from daskscope.secret_patterns import KINDS, NAME, NAMED, STEMS
from daskscope.slow_patterns import WINDOW

SCRUBBED = "[scrubbed]"

#: Characters before and after a name that are searched for its context.
_BEFORE, _BEHIND = 200, 1_000

#: Names of secrets in one text without a value behind them. Each takes as long as a long line of
#: prose. If a text has more, the rest of it is replaced.
MAX_WITHOUT_VALUE = 1_000


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern compiled, when a text needs it.

    All of them take a seventh of a second, for which the import would stop a scheduler.
    """
    return re.compile(pattern)


class _Named(NamedTuple):
    pattern: str
    before: str
    plain: bool


def _named(within: str) -> tuple[_Named, ...]:
    return tuple(
        _Named(
            f"(?ix) {kind.pattern}",
            rf"(?ix) {kind.before} \Z" if kind.before else "",
            kind.plain,
        )
        for kind in NAMED
        if kind.within in ("any text", within)
    )


_IN_CODE, _IN_PROSE = _named("code"), _named("prose")

#: CPU seconds for which one user's pattern may search one text. Patterns that the settings accept
#: as fast need less. If one needs more, the rest of the text is replaced.
MAX_SECONDS = 1.0
#: Characters before the end of a window in which the window's end may affect a match.
_MARGIN = 200

# A frame of a traceback. Source lines, and markers below them, are indented further.
_FRAME = re.compile(r"(?m)^  (?:File \".+\", line \d+, in .+|\[Previous line repeated .+)\n?")

# The same in any text, also with escaped line ends, and with the lines below the frame.
_FRAME_IN_TEXT = re.compile(
    r"""(?P<frame>(?:\A|\n|\\n)(?P<margin>[ \t|]{0,40})File \\?"[^"\n]{1,1000}", line \d+"""
    r"""(?:, in (?:(?!\\n)[^\n]){1,1000})?)"""
    r"""(?:(?:\n|\\n)(?P=margin)[ \t]++(?!File \\?")(?:(?!\\n)[^\n])*+)+"""
)


class Scrubber:
    """Replaces secrets in texts: known kinds of secrets, and matches of users' own patterns."""

    def __init__(self, users_own: Iterable[str] = ()) -> None:
        self._users_own = tuple(re.compile(pattern) for pattern in users_own)

    def scrub(self, text: str, limit: int, *, code: bool = False) -> str:
        """Return ``text`` without secrets, at most ``limit`` characters.

        In ``code``, a bare word behind a secret's name may be a variable, so it must look like a
        secret.
        """
        # Text that is cut off below need not be searched. A secret that the cut divides would not
        # be recognized, so the last word is dropped.
        if len(text) > 2 * limit:
            text = text[: 2 * limit]
            text = text[: max(text.rfind(" "), text.rfind("\n"), len(text) - 1_000)]
        # JSON and OTLP cannot contain lone surrogates, as in file names that are no UTF-8.
        text = text.encode(errors="replace").decode()
        text = _without_named(_without_known(text), _IN_CODE if code else _IN_PROSE)
        for pattern in self._users_own:
            text = _without_users_own(text, pattern)
        return shortened(text, limit)

    def scrub_traceback(self, text: str, limit: int, *, code: bool) -> str:
        """Return a traceback without secrets and, beyond ``limit``, without its middle."""
        text = without_middle(text, 2 * limit)
        return without_middle(self.scrub(text, 20 * limit, code=code), limit)

    def scrub_named(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return short ``texts`` by name, without secrets, and without texts named as secrets."""
        return {
            self.scrub(name, MAX_NAME): SCRUBBED
            if names_a_secret(name)
            else self.scrub(text, MAX_NAME)
            for name, text in texts.items()
        }


def _without_named(text: str, kinds: tuple[_Named, ...]) -> str:
    """Return ``text`` without the values behind names of secrets."""
    parts: list[str] = []
    at = without_value = 0
    # Only this letter becomes two letters in lower case, which would shift all positions behind it.
    for stem in _compiled(STEMS).finditer(text.replace("\u0130", "i").lower()):
        name = _compiled(NAME).match(text, stem.start()) if stem.start() >= at else None
        if name is None:
            continue
        secret = _behind(name, text, kinds)
        if secret is not None:
            parts += text[at : secret.end("keep")], SCRUBBED
            at = secret.end()
        elif (without_value := without_value + 1) > MAX_WITHOUT_VALUE:
            return "".join((*parts, text[at : name.start()], SCRUBBED))
    return "".join((*parts, text[at:])) if parts else text


def _behind(name: re.Match[str], text: str, kinds: tuple[_Named, ...]) -> re.Match[str] | None:
    start, end = name.span()
    for kind in kinds:
        if kind.plain and name["plain"] is None:
            continue
        pattern = _compiled(kind.pattern)
        if kind.before and not (
            # Bounded: otherwise all of the remaining text would be searched for each name.
            pattern.match(text, end, end + _BEHIND)
            and _compiled(kind.before).search(text, max(start - _BEFORE, 0), start)
        ):
            continue
        match = pattern.match(text, end)
        if match is not None:
            return match
    return None


def _without_known(text: str) -> str:
    """Return ``text`` without secrets that are recognized without a name."""
    lower = text.lower()
    for kind in KINDS:
        if not kind.words or any(word in lower for word in kind.words):
            text = _compiled(kind.pattern).sub(rf"\g<keep>{SCRUBBED}", text)
    return text


def names_a_secret(name: str) -> bool:
    """Return whether the value of ``name`` is a secret."""
    return _compiled(NAME).search(name[:1_000]) is not None


def _without_users_own(text: str, pattern: re.Pattern[str]) -> str:
    """Return ``text`` without matches of a user's pattern, which is searched in windows.

    A match near the end of a window may be wrong or too short; it is searched again in a window
    that begins at its start.
    """
    parts: list[str] = []
    at = start = 0
    # The thread's CPU time does not depend on the machine's load.
    ends = time.thread_time() + MAX_SECONDS
    while start < len(text):
        if start and time.thread_time() > ends:
            return "".join((*parts, text[at:start], SCRUBBED))
        stop = min(start + WINDOW, len(text))
        match = pattern.search(text, start, stop)
        if match is None:
            start = len(text) if stop == len(text) else start + WINDOW // 2
        elif start < match.start() and stop < len(text) and match.end() > stop - _MARGIN:
            start = match.start()
        else:
            if match.end() > match.start():
                parts += text[at : match.start()], SCRUBBED
                at = match.end()
                start = match.end()
            else:  # an empty match
                start = match.end() + 1
    return "".join((*parts, text[at:])) if parts else text


def without_source_lines(traceback: str) -> str:
    """Return only the lines of a traceback that name file, line and function."""
    return "".join(_FRAME.findall(traceback))


def without_code(text: str) -> str:
    """Return ``text`` without the source lines of tracebacks in it."""
    return _FRAME_IN_TEXT.sub(r"\g<frame>", text) if ", line " in text else text


def shortened(text: str, limit: int) -> str:
    """Return ``text``, its end replaced by an ellipsis if it is longer than ``limit``."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
