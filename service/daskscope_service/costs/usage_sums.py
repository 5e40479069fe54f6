"""Sums of ``usage`` over days and weeks that are over, so that no page adds them up again.

A sum that is there holds: who changes what it was made of removes it, in the same transaction.
Where there is none, readers add up for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import usage_sum as table

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
    return {row.first_day: row.sums for row in connection.execute(query)}


def days_kept(connection: Connection, workspace: str, days: int) -> set[int]:
    """Return the first days of all sums over ``days`` days."""
    query = select_in(workspace, table, table.c.first_day).where(table.c.days == days)
    return set(connection.execute(query).scalars())


def let_usage_stand(connection: Connection) -> None:
    """Let no one change the usage of days that are over until the transaction ends."""
    _lock(connection, shared=False)


def keep(
    connection: Connection, workspace: str, days: int, sums: Mapping[int, list[dict[str, Any]]]
) -> None:
    """Keep ``sums`` by their first day, made in this transaction, in which usage stands."""
    rows = [
        {"workspace": workspace, "days": days, "first_day": first, "sums": items}
        for first, items in sums.items()
    ]
    connection.execute(insert(table), rows)


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
