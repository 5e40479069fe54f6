"""Sums of ``usage`` over days and weeks that are over, so that no page adds them up again.

A sum that is there holds: who changes what it was made of removes it, in the same transaction.
Where there is none, readers add up for themselves.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Text, cast, delete, func, insert, select

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import usage_sum as table

#: Sums are a list. What was only announced is the text by which it is known again.
_IS_MADE = cast(table.c.sums, Text).like("[%")

#: The number of PostgreSQL's advisory lock.
_LOCK = 0x6461736B_75736167  # "daskusag"


def kept(
    connection: Connection, workspace: str, days: int, first: int, end: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the sums over ``days`` days that begin from day ``first`` to before ``end``.

    By their first day, of UTC since the Unix epoch.
    """
    query = select_in(workspace, table, table.c.first_day, table.c.sums).where(
        table.c.days == days, table.c.first_day >= first, table.c.first_day < end
    )
    return {row.first_day: row.sums for row in connection.execute(query.where(_IS_MADE))}


def days_kept(connection: Connection, workspace: str, days: int) -> set[int]:
    """Return the first days of all sums over ``days`` days."""
    query = select_in(workspace, table, table.c.first_day).where(table.c.days == days, _IS_MADE)
    return set(connection.execute(query).scalars())


def announce(connection: Connection, workspace: str, days: int, starts: Collection[int]) -> str:
    """Say which sums will be made, by their first days, once this transaction is over.

    What is announced is removed with sums. Returns by what :func:`keep` knows it again.
    """
    _lock(connection, shared=False)  # whoever changes usage is done, or will see this
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
    """Keep ``sums`` by their first day, which were made since they were announced.

    Those whose usage has changed since are left out. Returns how many are kept.
    """
    _lock(connection, shared=False)
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
    """Remove the sums that have one of the days from ``first`` to ``last`` in them."""
    _lock(connection, shared=True)
    mine = (table.c.workspace == workspace, table.c.first_day <= last)
    connection.execute(delete(table).where(*mine, table.c.first_day + table.c.days > first))


def _lock(connection: Connection, *, shared: bool) -> None:
    # Those who change usage share it. On SQLite, a transaction that writes is alone already.
    if connection.dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        connection.execute(select(lock(_LOCK)))
