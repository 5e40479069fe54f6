"""Fills a database with a stock, in minutes.

The service stores one cluster, and the database multiplies its rows: what is stored looks as the
service stores it, and no million beats need be sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import (
    ColumnClause,
    Connection,
    Subquery,
    Table,
    column,
    delete,
    insert,
    literal,
    literal_column,
    select,
    text,
)

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.bench.stock import EVERY, LIFE, LINES, LONG_STEP, POINTS, STEP, Stock
from tests.bench.stock_model import MODEL, send_model
from tests.bench.stock_rows import parts
from tests.service_process import ServiceProcess

_FIRST_SERIES = 2_000_000_000  # above what the service hands out by itself
_ROWS_AT_ONCE = 250_000
#: How often each group of tasks ran that ran more than once, and of how many users.
_RUNS, _REPEATERS = 33, 40

Tell = Callable[[str], None]


def fill(service: ServiceProcess, stock: Stock, tell: Tell, token: str = "") -> None:
    """Fill ``stock.workspace`` of ``service``, as if ``token`` had reported all its clusters.

    Without one it makes one. ``tell`` hears how far it is.
    """
    send_model(service.url, token or service.token(workspace=stock.workspace))
    tables = set()
    for part in parts(stock):
        began = time.monotonic()
        tables.add(part.table)
        for first, last in _spans(part.rows, _ROWS_AT_ONCE):
            with writing(service.engine) as connection:
                rows = _numbers(connection, part.numbers, first, last)
                _multiply(connection, part.table, rows, part.values)
        tell(f"{part.table.name}: {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    _add_repeats(service, stock)
    tell(f"group_run and repeat: {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    _add_series(service, stock)
    tell(f"point: {time.monotonic() - began:.0f} s")
    with writing(service.engine) as connection:
        for table in tables:
            connection.execute(delete(table).where(table.c[_key(table)] == MODEL))
    _settle(service)


def size_of(service: ServiceProcess) -> int:
    """Return how many bytes the database has on the disk."""
    connection = service.engine.raw_connection()
    cursor = connection.cursor()
    if service.engine.dialect.name == "postgresql":
        cursor.execute("SELECT pg_database_size(current_database())")
    else:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    size: int = cursor.fetchone()[0]  # type: ignore[index]
    connection.close()
    return size


def _spans(rows: int, most: int) -> Iterator[tuple[int, int]]:
    for first in range(0, rows, most):
        yield first, min(first + most, rows) - 1


def _key(table: Table) -> str:
    return "id" if table is schema.cluster else "cluster"


def _numbers(connection: Connection, query: str, first: int, last: int) -> Subquery:
    """Return ``query`` as rows of i, k (a cluster's number) and at, out of whole numbers ``n``."""
    if connection.dialect.name == "postgresql":
        numbers = f"n(i) AS (SELECT * FROM generate_series({first}::bigint, {last}))"
    else:
        numbers = (
            f"RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
        )
    numbered = text(f"WITH {numbers} {query}".replace("::", r"\:\:"))  # SQLAlchemy's own colons
    return numbered.columns(column("i"), column("k"), column("at")).subquery("n")


def _multiply(
    connection: Connection, table: Table, numbers: Subquery, values: dict[str, str]
) -> None:
    model = table.alias("m")
    chosen = [
        literal_column(values[c.name]) if c.name in values else model.c[c.name]
        for c in table.columns
    ]
    query = select(*chosen).select_from(numbers).join(model, model.c[_key(table)] == MODEL)
    connection.execute(insert(table).from_select([c.name for c in table.columns], query))


def _add_repeats(service: ServiceProcess, stock: Stock) -> None:
    """Note one group for each computation; each ran :data:`_RUNS` times, and is one repeat."""
    groups = max(stock.computations // _RUNS, 1)
    shared: dict[str, Any] = {
        "workspace": literal(stock.workspace),
        "prefix": literal("read-parquet"),
        "currency": literal("USD"),
        "output_bytes": literal(2**30),
    }
    of_run: dict[str, Any] = shared | {
        "cluster": literal_column("'Scheduler-' || (i % 1000)"),
        "computation": literal_column("'c-' || i"),
        "name": literal_column(f"'read-parquet-' || (i % {groups})"),
        "user": literal_column(f"'user-' || (i % {_REPEATERS})"),
        "at": literal_column(f"{stock.now} - i * 2.5"),
        "ended_at": literal_column(f"{stock.now} - i * 2.5 + 60"),
        "tasks": literal(100),
        "seconds": literal_column("1.0 + (i * 7919 % 100000) / 9.0"),
        "cost": literal(0.1),
        "began": literal_column(f"{stock.now} - i * 2.5 + 1"),
    }
    of_repeat: dict[str, Any] = shared | {
        "name": literal_column("'read-parquet-' || i"),
        "runs": literal(_RUNS),
        "users": literal(["ada", "bob"], schema.repeat.c.users.type),
        "people": literal(2),
        "clusters": literal(3),
        "seconds_again": literal_column("1.0 + (i * 7919 % 100000) / 0.3"),
        "cost_again": literal(3.2),
        "first_at": literal_column(f"{stock.now} - 2500000"),
        "last_at": literal_column(f"{stock.now} - i * 2.5"),
        "last_cluster": literal_column("'Scheduler-' || (i % 1000)"),
        "last_computation": literal_column("'c-' || i"),
        "instead": literal("file"),
        # Two steps of each work.
        "together": literal_column("'t-' || (i / 2)"),
        "step": literal_column("1.0 + i % 2"),
    }
    for table, rows, values in (
        (schema.group_run, stock.computations, of_run),
        (schema.repeat, groups, of_repeat),
    ):
        for first, last in _spans(rows, _ROWS_AT_ONCE):
            with writing(service.engine) as connection:
                numbers = _numbers(connection, "SELECT i, 0 AS k, 0 AS at FROM n", first, last)
                query = select(*values.values()).select_from(numbers)
                connection.execute(insert(table).from_select(list(values), query))


def _add_series(service: ServiceProcess, stock: Stock) -> None:
    number = len(LINES)
    with writing(service.engine) as connection:
        every = _numbers(connection, "SELECT i, i AS k, 0 AS at FROM n", 0, stock.clusters - 1)
        for index, (metric, value) in enumerate(LINES):
            values: dict[str, Any] = {
                "id": literal_column(f"{_FIRST_SERIES} + k * {number} + {index}"),
                "workspace": literal(stock.workspace),
                "cluster": literal_column("'Scheduler-' || k"),
                "metric": literal(metric.name),
                "field": literal("value"),
                "kind": literal("gauge"),
                "unit": literal(metric.unit),
                "attributes": literal(f'{{"{metric.attributes[0]}":"{value}"}}'),
            }
            query = select(*values.values()).select_from(every)
            connection.execute(insert(schema.series).from_select(list(values), query))
    # As nearly in the order of the table as can be, which is the quickest.
    full, thinned = stock.of_first
    until, every_first = stock.now, f"{_FIRST_SERIES} + s"
    old = until - full * STEP - thinned * LONG_STEP

    _add_points(service, number * thinned, thinned, every_first, f"{old}", LONG_STEP)
    _add_points(service, number * full, full, every_first, f"{until - full * STEP}", STEP)
    points = number * (stock.clusters - 1) * POINTS
    k = f"(1 + s / {number})"
    # Of those that go on, the last of it is enough: what is older looks as in the first of all.
    began = f"{stock.now - LIFE} - CASE {k} % {stock.standing} WHEN 1 THEN 0 ELSE {k} * {EVERY} END"
    _add_points(service, points, POINTS, f"{_FIRST_SERIES + number} + s", began, STEP)


def _add_points(
    service: ServiceProcess, points: int, of_each: int, series: str, began: str, step: int
) -> None:
    """Add ``points``, ``of_each`` series numbered ``s``; ``series`` and ``began`` are SQL."""
    placed = f"SELECT i, i / {max(of_each, 1)} AS s FROM n"
    numbers = (
        f"SELECT i, {series} AS k, ({began} + i % {max(of_each, 1)} * {step}) * 1000 AS at "
        f"FROM ({placed}) AS placed"
    )
    for first, last in _spans(points, 4 * _ROWS_AT_ONCE):
        with writing(service.engine) as connection:
            rows = _numbers(connection, numbers, first, last)
            value: ColumnClause[float] = literal_column("(i * 7919 % 100000) / 9.0")
            query = select(rows.c.k, rows.c.at, value)
            connection.execute(insert(schema.point).from_select(["series", "time", "value"], query))


def _settle(service: ServiceProcess) -> None:
    """Do now what either database would do by itself, at a moment of its own choice."""
    on_postgresql = service.engine.dialect.name == "postgresql"
    connection = service.engine.raw_connection()  # none of these may be part of a transaction
    for statement in (
        ("VACUUM ANALYZE", "CHECKPOINT") if on_postgresql else ("PRAGMA wal_checkpoint(TRUNCATE)",)
    ):
        connection.cursor().execute(statement)
    connection.close()
