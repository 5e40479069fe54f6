"""Filters rows by values that the database cannot search: they are encrypted, or have no index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from daskscope_service.db.scope import (
    MOST_BYTES,
    Item,
    Page,
    Position,
    Scope,
    Selection,
    weight,
)

#: The most rows that one request searches, and how many are read together.
MOST_SCANNED = 1000
_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class Scanned(Page[Item]):
    """A page of the rows that fit, and how far the search went.

    ``reached`` is the time of the last searched row, if the search stopped after a number of rows;
    it can go on after ``next``. It is None if the page is full or the list ended.
    """

    reached: float | None = None


def scan(
    scope: Scope,
    read: Callable[[Scope, Selection], Page[Item]],
    selection: Selection,
    fits: Callable[[Item], bool],
    position: Callable[[Item], Position],
    most: int | None = None,
) -> Scanned:
    """Return a page of the rows of ``read`` that fit, out of the next ``most``.

    ``most`` is :data:`MOST_SCANNED` by default. The page ends earlier if its rows take more than
    :data:`~daskscope_service.db.scope.MOST_BYTES`. ``position`` returns the position of a row.
    """
    most = MOST_SCANNED if most is None else most
    matches: list[Item] = []
    after, looked_at, size = selection.after, 0, 0
    while looked_at < most:
        some = read(scope, replace(selection, after=after, limit=_AT_ONCE))
        for item in some.items:
            if fits(item):
                if len(matches) == selection.limit:
                    return Scanned(matches, position(matches[-1]))
                matches.append(item)
                size += weight(item)
                if size > MOST_BYTES:
                    return Scanned(matches, position(item))
        if some.next is None:
            return Scanned(matches, None)
        after, looked_at = some.next, looked_at + _AT_ONCE
    assert after is not None
    return Scanned(matches, after, after[0])
