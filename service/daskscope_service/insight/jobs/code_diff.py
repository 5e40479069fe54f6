"""Makes unified diffs of the code around calls of two runs, at a bounded cost."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import accumulate

#: The most pairs of equal lines that all diffs of a comparison visit together: at most a second of
#: a core. Usual code needs some thousands; lines that repeat in a certain pattern would take days.
_MOST_PAIRS = 3_000_000
#: Unchanged lines shown around a difference.
_CONTEXT = 3

#: Returned instead of a diff that would cost too much.
TOO_DIFFERENT = "The code differs in too many lines to be compared line by line."


class CodeDiffer:
    """Makes the diffs of one comparison, which share one bound of their cost."""

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def diff(self, before: str, after: str) -> list[str]:
        """Return the lines of a unified diff, [] for equal texts, or only ``TOO_DIFFERENT``."""
        a, b = before.splitlines(), after.splitlines()
        matcher = _Bounded(a, b, self._left)
        try:
            groups = list(matcher.get_grouped_opcodes(_CONTEXT))
        except _TooMany:
            return [TOO_DIFFERENT]
        finally:
            self._left = matcher.left
        return ["--- first run", "+++ second run", *_lines(groups, a, b)] if groups else []


class _TooMany(Exception):
    """The diff would visit more pairs than it may."""


class _Bounded(difflib.SequenceMatcher[str]):
    """A matcher that counts the pairs of equal lines that it visits, because these are its cost.

    See ``find_longest_match`` in Python's difflib: for each line of a part of the one text, it
    visits all equal lines of the whole other text.
    """

    a: Sequence[str]
    b2j: dict[str, list[int]]

    def __init__(self, a: Sequence[str], b: Sequence[str], most: int) -> None:
        super().__init__(None, a, b)
        self.left = most
        pairs = (1 + len(self.b2j.get(line, ())) for line in a)
        self._up_to = [0, *accumulate(pairs)]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        end = len(self.a) if ahi is None else ahi
        self.left -= self._up_to[end] - self._up_to[alo]
        if self.left < 0:
            raise _TooMany
        return super().find_longest_match(alo, ahi, blo, bhi)


def _lines(
    groups: list[list[tuple[str, int, int, int, int]]], a: Sequence[str], b: Sequence[str]
) -> Iterator[str]:
    for group in groups:
        (_, first, _, other_first, _), (_, _, last, _, other_last) = group[0], group[-1]
        yield f"@@ -{_place(first, last)} +{_place(other_first, other_last)} @@"
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                yield from (f" {line}" for line in a[i1:i2])
            else:
                yield from (f"-{line}" for line in a[i1:i2])
                yield from (f"+{line}" for line in b[j1:j2])


def _place(first: int, last: int) -> str:
    """Return a range of lines as unified diffs write it; lines count from 1."""
    lines = last - first
    if lines == 1:
        return str(first + 1)
    return f"{first + (1 if lines else 0)},{lines}"
