"""Stores sums of ``usage`` over past days and weeks, so that no page adds them up again.

A stored sum is valid: whoever changes the usage in it removes the sum, in the same transaction. If
a sum is missing, readers compute it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, insert, select

from daskscope_service.db.engine import lock_until_end
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import usage_sum as table

#: Stored sums are a list. An announcement is a text, by which it is recognized.
_IS_MADE = cast(table.c.sums, Text).like("[%")

#: The number of the lock that transactions share which change usage.
_LOCK = 0x6461736B_75736167  # "daskusag"


def kept(
    connection: Connection, workspace: str, days: int, first: int, end: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the stored sums over ``days`` days that begin from day ``first`` to before ``end``.

    The keys are their first days, in days since the Unix epoch, in UTC.
    """
    query = select_in(workspace, table, table.c.first_day, table.c.sums).where(
        table.c.days == days, table.c.first_day >= first, table.c.first_day < end
    )
    return {row.first_day: row.sums for row in connection.execute(query.where(_IS_MADE))}


def days_kept(connection: Connection, workspace: str, days: int) -> set[int]:
    """Return the first days of all stored sums over ``days`` days."""
    query = select_in(workspace, table, table.c.first_day).where(table.c.days == days, _IS_MADE)
    return set(connection.execute(query).scalars())


def announce(connection: Connection, workspace: str, days: int, starts: Collection[int]) -> str:
    """Announce which sums, by their first days, will be computed after this transaction.

    Whoever removes sums also removes announcements. Return the text by which :func:`keep`
    recognizes this one.
    """
    lock_until_end(connection, _LOCK, shared=False)  # changes of usage end first, or see this
    name = secrets.token_hex(8)
    mine = (table.c.workspace == workspace, table.c.days == days)
    connection.execute(delete(table).where(*mine, table.c.first_day.in_(starts)))
    connection.execute(insert(table), [_row(workspace, days, first, name) for first in starts])
    return name


def keep(
    connection: Connection,
    workspace: str,
    days: int,
    announced: str,
    sums: Mapping[int, list[dict[str, Any]]],
) -> int:
    """Store ``sums``, by their first days, which were computed after they were announced.

    Sums whose usage has changed since are left out. Return how many are stored.
    """
    lock_until_end(connection, _LOCK, shared=False)
    mine = (table.c.workspace == workspace, table.c.days == days)
    query = select(table.c.first_day, table.c.sums).where(*mine, table.c.first_day.in_(list(sums)))
    starts = [row.first_day for row in connection.execute(query) if row.sums == announced]
    if starts:
        connection.execute(delete(table).where(*mine, table.c.first_day.in_(starts)))
        rows = [_row(workspace, days, first, sums[first]) for first in starts]
        connection.execute(insert(table), rows)
    return len(starts)


def _row(workspace: str, days: int, first: int, sums: object) -> dict[str, object]:
    return {"workspace": workspace, "days": days, "first_day": first, "sums": sums}


def forget_before(connection: Connection, workspace: str, days: int, first: int) -> None:
    """Remove the sums over ``days`` days that begin before the day ``first``."""
    mine = (table.c.workspace == workspace, table.c.days == days)
    connection.execute(delete(table).where(*mine, table.c.first_day < first))


def forget(connection: Connection, workspace: str, first: int, last: int) -> None:
    """Remove the stored sums that include one of the days from ``first`` to ``last``."""
    lock_until_end(connection, _LOCK, shared=True)
    mine = (table.c.workspace == workspace, table.c.first_day <= last)
    connection.execute(delete(table).where(*mine, table.c.first_day + table.c.days > first))
