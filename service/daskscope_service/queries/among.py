"""Selects the rows of many keys of two columns, such as those of computations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Column, Select, String, and_, column, values


def among(
    query: Select[Any], key: tuple[Column[Any], Column[Any]], pairs: Iterable[tuple[str, str]]
) -> Select[Any]:
    """Return ``query`` for the rows whose ``key`` is one of ``pairs``, each looked up in an index.

    With IN, SQLite would read the whole table.
    """
    columns = (column("first", String), column("second", String))
    wanted = values(*columns).data(list(pairs) or [("", "")]).cte("wanted")
    return query.join(wanted, and_(key[0] == wanted.c.first, key[1] == wanted.c.second))
