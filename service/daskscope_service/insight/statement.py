"""The whole statement that a line of code belongs to, on one line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping
from typing import Any

#: The most characters of code that are searched for a statement, and how many lines on each side of
#: the given line are tried if the code is longer. Python's tokenizer takes a second for some lines
#: of 20,000 characters.
_MOST_TEXT, _AROUND = 2_000, (20, 6)

#: What a statement calls that sends a graph, if it is one of several on a line.
_SENDS = re.compile(r"(?:\b|\.)(?:compute|persist|submit|map|fit|to_parquet|to_csv|to_zarr)\(")

_OPENS, _CLOSES = "([{", ")]}"
_NO_SPACE_AFTER = tuple(_OPENS)
_NO_SPACE_BEFORE = (*_CLOSES, ".", ",")


def statement_at(lines: list[str], place: int) -> str:
    """Return the statement that contains ``lines[place]``, or only that line if none is found.

    For a compound statement, such as a loop, return its first line. Of several on one line, return
    the one that computes, if it is clear which does. ``lines`` are a part of a file and may begin
    or end within a statement.
    """
    return _that_computes(_whole_line(lines, place))


def _whole_line(lines: list[str], place: int) -> str:
    """Return the statements that ``lines[place]`` is a part of, on one line."""
    line = lines[place].strip()
    if _stands_alone(lines, place):
        return line
    for around in (len(lines), *_AROUND):
        first = max(place - around, 0)
        some = lines[first : place + around]
        if sum(map(len, some)) <= _MOST_TEXT:
            rows = _rows("\n".join(some), place - first + 1)
            return line if rows is None else _joined(some[rows[0] - 1 : rows[1]])
    return line


def statement_in(source: Mapping[str, Any], line: int) -> str | None:
    """Return the statement at ``line`` of a file. ``source`` is the stored part of that file.

    Return None if the code cannot be decrypted, or does not include that line.
    """
    if source["text"] is None:
        return None
    lines = source["text"].split("\n")
    place = line - source["first_line"]
    return statement_at(lines, place) if 0 <= place < len(lines) else None


def _stands_alone(lines: list[str], place: int) -> bool:
    line = lines[place]
    before = lines[place - 1].strip() if place else ""
    after = lines[place + 1].strip() if place + 1 < len(lines) else ""
    return (
        sum(line.count(one) for one in _OPENS) == sum(line.count(one) for one in _CLOSES)
        and not line.rstrip().endswith((*_OPENS, ",", "\\"))
        and not before.endswith((*_OPENS, ",", "\\"))
        and not after.startswith((*_CLOSES, "."))
        and not line.strip().startswith((*_CLOSES, "."))
    )


def _rows(text: str, row: int) -> tuple[int, int] | None:
    """Return the first and last row of the statement that contains ``row``; None if none is found.

    Rows count from 1.
    """
    first: int | None = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT):
                continue
            if first is None:
                first = token.start[0]
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if first <= row <= token.start[0]:
                    return first, token.start[0]
                first = None
    except (tokenize.TokenError, SyntaxError):
        pass  # the text ends within a statement, or is not Python
    return None


def _that_computes(line: str) -> str:
    """Return the one of the statements of ``line`` that sends a graph; all if that is not clear."""
    if ";" not in line or len(line) > _MOST_TEXT:
        return line
    ends: list[int] = []
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.OP:
                depth += (token.string in _OPENS) - (token.string in _CLOSES)
                if token.string == ";" and not depth and token.start[0] == 1:
                    ends.append(token.start[1])
    except (tokenize.TokenError, SyntaxError):
        return line
    begins = [0, *(end + 1 for end in ends)]
    parts = [line[begin:end].strip() for begin, end in zip(begins, [*ends, len(line)], strict=True)]
    computes = [part for part in parts if _SENDS.search(part)]
    return computes[0] if len(computes) == 1 else line


def _joined(rows: list[str]) -> str:
    joined = ""
    for part in filter(None, (re.sub(r"\\$", "", row).strip() for row in rows)):
        tight = not joined or joined.endswith(_NO_SPACE_AFTER) or part.startswith(_NO_SPACE_BEFORE)
        joined += part if tight else f" {part}"
    return joined
