"""Filters by values that the database cannot search: encrypted ones, or without an index."""

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

#: Rows that one request looks through at most, and at a go.
MOST_SIFTED = 1000
_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class Sifted(Page[Item]):
    """A page of what fits, and how far was looked.

    ``reached`` is the time of the last row that was looked at where the search was given up, and
    goes on after ``next``; None where the page is full, or the list at its end.
    """

    reached: float | None = None


def sift(
    scope: Scope,
    read: Callable[[Scope, Selection], Page[Item]],
    selection: Selection,
    fits: Callable[[Item], bool],
    position: Callable[[Item], Position],
    most: int | None = None,
) -> Sifted:
    """Return a page of the rows of ``read`` that fit, out of the next ``most``.

    That is :data:`MOST_SIFTED`, unless it is said. There are fewer where they have more than
    :data:`~daskscope_service.db.scope.MOST_BYTES`. ``position`` says where a row stands in the
    list.
    """
    most = MOST_SIFTED if most is None else most
    found: list[Item] = []
    after, looked_at, size = selection.after, 0, 0
    while looked_at < most:
        some = read(scope, replace(selection, after=after, limit=_AT_ONCE))
        for item in some.items:
            if fits(item):
                if len(found) == selection.limit:
                    return Sifted(found, position(found[-1]))
                found.append(item)
                size += weight(item)
                if size > MOST_BYTES:
                    return Sifted(found, position(item))
        if some.next is None:
            return Sifted(found, None)
        after, looked_at = some.next, looked_at + _AT_ONCE
    assert after is not None
    return Sifted(found, after, after[0])
