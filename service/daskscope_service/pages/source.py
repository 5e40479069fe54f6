"""Users' code with its keywords, strings and comments marked, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from daskscope_service.db.scope import Item

#: How many characters of code per page are highlighted. It is slow, so the rest stays plain.
MOST_CHARACTERS = 6_000

#: The CSS classes of tokens; the first type that contains a token's type counts. Others are plain.
_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Function, "defined"),
    (Name.Class, "defined"),
    (Name.Decorator, "decorator"),
    (Name.Builtin, "builtin"),
)

#: The pieces of a line, each with its class ("" for plain) and its text.
ColouredLine = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Source:
    """The lines of one frame. ``first`` is the number of the first line."""

    first: int
    lines: list[ColouredLine]


def sources(frames: Sequence[Item]) -> list[Source | None]:
    """Return the code of ``frames``, outermost first; None for a frame whose code is not known.

    The innermost frame, which made the call, is highlighted first: see :data:`MOST_CHARACTERS`.
    """
    texts: list[Source | None] = []
    left = MOST_CHARACTERS
    for frame in reversed(frames):
        text = frame["text"]
        if text is None:
            texts.append(None)
            continue
        plain = len(text) > left
        texts.append(Source(frame["first_line"], _plain(text) if plain else highlighted(text)))
        left -= 0 if plain else len(text)
    return texts[::-1]


def highlighted(text: str) -> list[ColouredLine]:
    """Return the lines of Python code in pieces, which together are exactly ``text``."""
    lines: list[ColouredLine] = [[]]
    # Pygments' get_tokens would strip empty lines and change line ends, and then the line numbers
    # would be wrong.
    for _, kind, value in PythonLexer().get_tokens_unprocessed(text):
        name = _class_of(kind)
        for place, part in enumerate(value.split("\n")):
            if place:
                lines.append([])
            if part:
                _add(lines[-1], name, part)
    return lines


@cache
def _class_of(kind: _TokenType) -> str:
    return next((name for above, name in _CLASSES if kind in above), "")


def _add(line: ColouredLine, name: str, text: str) -> None:
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + text)
    else:
        line.append((name, text))


def _plain(text: str) -> list[ColouredLine]:
    return [[("", line)] for line in text.split("\n")]
