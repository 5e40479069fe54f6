"""Which regular expressions may take long: those that can match a text in too many ways.

Python tries one way after another, and while it does all of its process waits, the event loop
included. A choice counts where both ways of it may go on with the same character: to repeat once
more or to go on, one branch or the other. The ways of choices that follow each other multiply;
those within a repeat multiply with each round, so there is to be none.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

#: Characters that are searched at once.
WINDOW = 2_000
#: Ways that there may be to match at one place.
MAX_WAYS = 5 * WINDOW

try:
    # How Python itself reads a pattern. It is private; its only public name, ``sre_parse``, is
    # deprecated. A reader of our own would have to follow each Python, and be wrong until it does.
    _parser: Any = importlib.import_module("re._parser")
except ImportError:  # some day: without it a pattern goes by its text, see _by_text
    _parser = None
# What repeats, or is a choice, in the text of a pattern, without what is escaped or in a set.
_ESCAPED, _SETS, _CHOICES = (
    re.compile(each, re.DOTALL) for each in (r"\\.", r"\[\^?\]?[^]]*\]", r"[*+?{|]")
)

# Characters by which sets of characters are compared.
_ALPHABET = (*map(chr, range(128)), "é", "ß", "\u2028", "日")
_ALL = frozenset(_ALPHABET)
_NONE: frozenset[str] = frozenset()

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


class _Seen(NamedTuple):
    """Part of a pattern: what it may begin with, whether it may be empty, in how many ways it
    matches, and whether it may be long.
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
        It is no regular expression.
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
    """Return why a pattern may take too long that nobody can read: it has more than one choice."""
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
    """Look at items in a row. ``follow`` may come behind them; nothing does if ``last``."""
    first, empty, ways, is_long = follow, True, 1.0, False
    for item in reversed(items):
        seen = _item(item, first, fold, last=last)
        # What takes long behind a choice does so for each way of it.
        ways *= seen.ways * (WINDOW if seen.ways > 1 and is_long and ways <= 1 else 1)
        # Whatever it is, the last repeat of a pattern has matched as soon as it ends.
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
        # What takes long is not to be done at each place that a repeat may end.
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
        found = frozenset().union(*(_characters(str(op), value, fold) for op, value in parts))
        return _ALL - found if negated else found
    if name in ("LITERAL", "NOT_LITERAL"):
        character = chr(argument)
        same = {character, *(character.lower(), character.upper())} if fold else {character}
        # One that is not among those counts as any that is not ASCII.
        found = frozenset(same & _ALL) or _ALL - frozenset(map(chr, range(128)))
        return _ALL - found if name == "NOT_LITERAL" else found
    if name == "RANGE":
        low, high = argument
        found = frozenset(c for c in _ALPHABET if low <= ord(c) <= high)
        if fold:
            found |= {c for c in _ALPHABET if {c.lower(), c.upper()} & found}
        return found
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
