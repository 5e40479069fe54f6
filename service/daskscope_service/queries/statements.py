"""Reads the statements in which calls were made, from the code that clusters sent."""

from __future__ import annotations

from collections.abc import Iterable

from daskscope_service.db.schema import code
from daskscope_service.db.scope import Item, Scope, read_in_parts
from daskscope_service.insight.statement import statement_in

#: A line of stored code: the hash of the code, and the number of the line in its file.
Place = tuple[str, int]


def statements_at(
    scope: Scope, frames: Iterable[Item], most: int | None = None
) -> dict[Place, str]:
    """Return the statements at ``frames`` whose code is stored, cut to ``most`` characters.

    Only a part of the code, which may be large, is in memory at a time.
    """
    lines: dict[str, set[int]] = {}
    for frame in frames:
        if frame["code"] is not None:
            lines.setdefault(frame["code"], set()).add(frame["line"])
    by_place: dict[Place, str] = {}
    for _, sources in read_in_parts(
        sorted(lines),
        lambda some: scope.items(scope.select(code).where(code.c.hash.in_(some))),
    ):
        for source in sources:
            for line in lines[source["hash"]]:
                statement = statement_in(source, line)
                if statement is not None:
                    by_place[source["hash"], line] = cut(statement, most)
    return by_place


def cut(text: str, most: int | None) -> str:
    """Return ``text`` with at most ``most`` characters; None is no limit."""
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"
