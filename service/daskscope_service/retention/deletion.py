"""Deletes the data of a cluster or a user, on request; and clusters that are too old.

A deletion can be interrupted at any moment and started again: rows by which others are found are
deleted last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, Table, func, select, tuple_

from daskscope_service.accounts import audit
from daskscope_service.db import points, schema
from daskscope_service.db.data_ownership import TABLES, Whose, keys, needed, reading_order
from daskscope_service.db.engine import writing
from daskscope_service.retention.code import remove_unused_code
from daskscope_service.retention.removal import (
    remove,
    remove_keys,
    remove_points,
    remove_series,
    series_in,
)
from daskscope_service.retention.throttle import Removed, Throttle

#: Rows that are read together, to find out whose they are.
_ROWS = 1000


def count(engine: Engine, whose: Whose) -> dict[str, int]:
    """Return how many rows of each table belong to ``whose``; points are those of its series.

    Tables without such rows are left out.
    """
    counts: dict[str, int] = {}
    series = select(schema.series.c.id).where(whose.condition(schema.series))
    with engine.connect() as connection:
        for table in TABLES:
            query = select(func.count()).select_from(table).where(whose.condition(table))
            counts[table.name] = connection.execute(query).scalar_one()
        of_them = points.where(lambda table: table.c.series.in_(series)).subquery()
        number = select(func.count()).select_from(of_them)
        counts[schema.point.name] = connection.execute(number).scalar_one()
    for table in (schema.span, schema.log_record):
        if whose.user is not None:
            counts[table.name] = sum(len(keys) for keys in _keys_in_batches(engine, whose, table))
    return {name: number for name, number in counts.items() if number}


def running(engine: Engine, whose: Whose, since: float) -> list[str]:
    """Return the ids of clusters of ``whose`` that have not ended and reported after ``since``."""
    table = schema.cluster
    query = select(table.c.id).where(
        whose.condition(table), table.c.stopped_at.is_(None), table.c.last_seen_at >= since
    )
    with engine.connect() as connection:
        return list(connection.execute(query.order_by(table.c.id)).scalars())


def note(engine: Engine, whose: Whose, detail: str) -> None:
    """Log a deletion in the audit log: before it begins, because it may be interrupted."""
    with writing(engine) as connection:
        audit.write(connection, "data deleted", detail=detail, workspace=whose.workspace)


def delete(engine: Engine, whose: Whose, pace: Throttle) -> Iterator[Removed]:
    """Delete the rows of ``whose``, and code that no computation refers to any more."""
    yield from delete_rows(engine, whose, pace)
    yield from remove_unused_code(engine, whose.workspace, pace)


def delete_rows(engine: Engine, whose: Whose, pace: Throttle) -> Iterator[Removed]:
    """Delete the rows of ``whose``."""
    if (whose.cluster, whose.user, whose.unheard_since) == (None, None, None):
        raise ValueError("name a cluster, a user or a time: else all of the workspace would go")
    for table in TABLES:
        yield from _delete_from(engine, table, whose, pace)


def _delete_from(engine: Engine, table: Table, whose: Whose, pace: Throttle) -> Iterator[Removed]:
    if table is schema.series:
        for some in series_in(engine, whose.workspace, whose.condition(table)):
            ids = [row.id for row in some]
            yield from remove_points(engine, ids, pace)
            yield from remove_series(engine, whose.workspace, ids, unless_points=False)
    elif whose.unheard_since is not None:
        # A cluster that reports meanwhile stays: each step checks the condition again.
        yield from remove(engine, table, keys(whose, table), pace)
    else:
        # Finding a user's rows takes longer than removing them, so others can write meanwhile.
        for batch in _keys_in_batches(engine, whose, table):
            yield Removed(table.name, 0)
            while batch:
                some, batch = batch[: pace.rows], batch[pace.rows :]
                yield remove_keys(engine, table, some)


def _keys_in_batches(engine: Engine, whose: Whose, table: Table) -> Iterator[list[tuple[Any, ...]]]:
    # Yields the keys of the rows, some at a time.
    key, order = list(table.primary_key), reading_order(whose, table)
    columns = list(dict.fromkeys([*needed(table), *order]))
    query = select(*columns).where(whose.condition(table)).order_by(*order).limit(_ROWS)
    more = query
    while True:
        with engine.connect() as connection:
            rows = connection.execute(more).all()
            chosen = whose.sieve(connection, table, rows)
        if not rows:
            return
        yield [tuple(row[: len(key)]) for row in chosen]
        more = query.where(tuple_(*order) > tuple(getattr(rows[-1], c.name) for c in order))
