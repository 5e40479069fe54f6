"""Finds regular expressions that may be slow: those that can match a text in too many ways.

Python tries one way after another, and meanwhile its whole process waits, including the event loop.
A choice (to repeat or to go on, one branch or another) counts if both alternatives may continue
with the same character. The numbers of ways of consecutive choices multiply. Choices inside a
repeat multiply with each round, so none is allowed there.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

#: Characters of a text that are searched at once.
WINDOW = 2_000
#: The most ways in which a pattern may match at one position.
MAX_WAYS = 5 * WINDOW

try:
    # Python's own parser of patterns. It is private; its only public name, ``sre_parse``, is
    # deprecated. A parser of our own would have to follow each version of Python.
    _parser: Any = importlib.import_module("re._parser")
except ImportError:  # a later Python may lack it: then _by_text judges the pattern's text
    _parser = None
# Escapes and sets, which are removed first, and repeats and choices in the text of a pattern.
_ESCAPED, _SETS, _CHOICES = (
    re.compile(each, re.DOTALL) for each in (r"\\.", r"\[\^?\]?[^]]*\]", r"[*+?{|]")
)

# Sample characters by which character sets are compared.
_ALPHABET = (*map(chr, range(128)), "é", "ß", "\u2028", "日")
_ALL = frozenset(_ALPHABET)
_NONE: frozenset[str] = frozenset()

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class _Seen(NamedTuple):
    """Properties of a part of a pattern: the characters with which it may begin, whether it may be
    empty, the number of ways in which it matches, and whether its match may be long.
    """

    first: frozenset[str]
    empty: bool
    ways: float
    long: bool


def why_slow(pattern: str) -> str | None:
    """Return why a search for ``pattern`` may take too long, or None if it does not.

    Raises
    ------
    re.error
        ``pattern`` is no regular expression.
    """
    if _parser is None:
        return _by_text(pattern)
    parsed = _parser.parse(pattern)
    seen = _sequence(tuple(parsed), _NONE, bool(parsed.state.flags & re.IGNORECASE), last=True)
    if seen.ways <= MAX_WAYS:
        return None
    if seen.ways == float("inf"):
        return "within a repeat it can match the same text in several ways"
    return "it has several repeats that can divide a text among them in too many ways"


def _by_text(pattern: str) -> str | None:
    """Return why a pattern may take too long, if it cannot be parsed: it has several choices."""
    re.compile(pattern)
    choices = _CHOICES.findall(_SETS.sub("", _ESCAPED.sub("x", pattern)))
    return (
        "it has more than one repeat or choice, and this Python does not say how they go together"
        if len(choices) > 1
        else None
    )


def _sequence(
    items: Sequence[Any], follow: frozenset[str], fold: bool, *, last: bool = False
) -> _Seen:
    """Return the properties of consecutive items. ``follow`` are the characters that may come
    behind them; nothing comes behind if ``last``.
    """
    first, empty, ways, is_long = follow, True, 1.0, False
    for item in reversed(items):
        seen = _item(item, first, fold, last=last)
        # A long match behind a choice is repeated for each way of the choice.
        ways *= seen.ways * (WINDOW if seen.ways > 1 and is_long and ways <= 1 else 1)
        # The last repeat of a pattern causes no backtracking.
        is_long |= seen.long and not last
        last = False
        first = seen.first | first if seen.empty else seen.first
        empty = empty and seen.empty
    return _Seen(first, empty, ways, is_long)


def _item(item: Any, follow: frozenset[str], fold: bool, *, last: bool) -> _Seen:
    name, argument = str(item[0]), item[1]
    if name in _REPEATS:
        return _repeat(name, argument, follow, fold, last=last)
    if name == "BRANCH":
        branches = [_sequence(branch, follow, fold, last=last) for branch in argument[1]]
        firsts = [seen.first for seen in branches]
        overlap = sum(map(len, firsts)) > len(frozenset().union(*firsts))
        ways = max(seen.ways for seen in branches) * (len(branches) if overlap else 1)
        empty = any(seen.empty for seen in branches)
        return _Seen(frozenset().union(*firsts), empty, ways, any(s.long for s in branches))
    if name == "SUBPATTERN":
        _, added, removed, inner = argument
        fold = (fold or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
        return _sequence(tuple(inner), follow, fold, last=last)
    if name == "ATOMIC_GROUP":
        return _sequence(tuple(argument), _NONE, fold)
    if name in ("ASSERT", "ASSERT_NOT"):
        seen = _sequence(tuple(argument[1]), _NONE, fold)
        # A long assertion must not run at each position where a repeat may end.
        return _Seen(_ALL if seen.long else _NONE, True, seen.ways, seen.long)
    if name == "AT":
        return _Seen(_NONE, True, 1.0, False)
    if name in ("GROUPREF", "GROUPREF_EXISTS"):
        return _Seen(_ALL, True, 2.0, True)
    return _Seen(_characters(name, _hashable(argument), fold), False, 1.0, False)


def _repeat(name: str, argument: Any, follow: frozenset[str], fold: bool, *, last: bool) -> _Seen:
    least, most, inner = argument
    most = min(int(most), WINDOW)
    many = most > 1
    body_first = _sequence(tuple(inner), _NONE, fold).first
    body = _sequence(tuple(inner), body_first | follow if many else follow, fold)
    if name == "POSSESSIVE_REPEAT":
        ways = 1.0 if body.ways < float("inf") else body.ways
    elif many and least == most:
        ways = body.ways ** min(most, 60)
        ways = float("inf") if ways > MAX_WAYS else ways
    elif many and (body.ways > 1 or body.empty):
        ways = float("inf")
    elif not last and body_first & follow:
        ways = (most - least + 1) * body.ways
    else:
        ways = body.ways
    return _Seen(body_first, least == 0 or body.empty, ways, body.long or most > 10)


def _hashable(argument: Any) -> Any:
    return tuple(map(_hashable, argument)) if isinstance(argument, list | tuple) else argument


@lru_cache(maxsize=1_024)
def _characters(name: str, argument: Any, fold: bool) -> frozenset[str]:
    if name == "ANY":
        return _ALL
    if name == "IN":
        negated = str(argument[0][0]) == "NEGATE"
        parts = argument[1:] if negated else argument
        characters = frozenset().union(*(_characters(str(op), value, fold) for op, value in parts))
        return _ALL - characters if negated else characters
    if name in ("LITERAL", "NOT_LITERAL"):
        character = chr(argument)
        same = {character, *(character.lower(), character.upper())} if fold else {character}
        # A character outside the samples counts like any non-ASCII sample.
        characters = frozenset(same & _ALL) or _ALL - frozenset(map(chr, range(128)))
        return _ALL - characters if name == "NOT_LITERAL" else characters
    if name == "RANGE":
        low, high = argument
        characters = frozenset(c for c in _ALPHABET if low <= ord(c) <= high)
        if fold:
            characters |= {c for c in _ALPHABET if {c.lower(), c.upper()} & characters}
        return characters
    if name == "CATEGORY":
        matches = _CATEGORIES[str(argument).removeprefix("CATEGORY_").removeprefix("NOT_")]
        wanted = "_NOT_" not in str(argument)
        return frozenset(c for c in _ALPHABET if bool(matches.match(c)) == wanted)
    return _ALL


_CATEGORIES = {
    "DIGIT": re.compile(r"\d"),
    "SPACE": re.compile(r"\s"),
    "WORD": re.compile(r"\w"),
}
