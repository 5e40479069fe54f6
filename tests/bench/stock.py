"""A database as full as DESIGN promises to be quick with, made in minutes.

The service stores one beat, and the database multiplies its rows: what is stored looks as the
service stores it, and no million beats need be sent.

Time is data here: a cluster starts every minute, so ten times the clusters are ten times the time.
Each reports for 15 minutes, but for one, which lives all the while and computes once a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

from daskscope import names
from daskscope.protocol import Activity, CodeFrame, Heartbeat
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_event,
    make_failure,
    make_profile,
    make_shutdown,
    make_task_group,
    make_worker_loss,
    post,
)
from tests.service_process import ServiceProcess

#: Seconds from one cluster's start to the next one's, and what each has in its life.
EVERY, LIFE, COMPUTATIONS, POINTS = 60, 900, 100, 90

#: How many computations there are for one that has task groups, a failure, an event and so on.
GROUPED, FAILED, EVENTS, LOSSES, PROFILES = 10, 100, 9, 5, 30

USERS, BUGS = 8, 50
LINES = tuple(
    (metric, value)
    for metric, values in (
        (names.WORKER_COUNT, ("running", "paused")),
        (names.MEMORY_USED, ("managed", "unmanaged", "spilled")),
        (names.TASK_COUNT, ("processing", "memory", "waiting", "queued", "erred")),
    )
    for value in values
)

_MODEL = "model"
_FIRST_SERIES = 2_000_000_000  # above what the service hands out by itself
_ROWS_AT_ONCE = 250_000

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stock:
    """What is in ``workspace`` at ``now``, in whole seconds since the Unix epoch."""

    workspace: str
    clusters: int
    now: int

    @property
    def of_short_lived(self) -> int:
        """Computations of all clusters but the long-lived one."""
        return (self.clusters - 1) * COMPUTATIONS

    @property
    def computations(self) -> int:
        """Computations of all clusters."""
        return self.of_short_lived + self.long_life // EVERY

    @property
    def long_life(self) -> int:
        """Seconds that the long-lived cluster is up."""
        return self.clusters * EVERY

    @property
    def points(self) -> int:
        """Points of all series."""
        return len(LINES) * ((self.clusters - 1) * POINTS + self.long_life * POINTS // LIFE)


def cluster_id(number: int) -> str:
    """Return a cluster's id: 0 is the long-lived one, 1 the newest."""
    return f"Scheduler-{number}"


def fill(service: ServiceProcess, stock: Stock, tell: Tell) -> None:
    """Fill ``stock.workspace`` of ``service``. ``tell`` hears how far it is."""
    token = service.token(workspace=stock.workspace)
    post(service.url, token, _model()).raise_for_status()
    for rows, table, numbers, values in _multiplied(stock):
        began = time.monotonic()
        for first in range(0, rows, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, rows) - 1
            with writing(service.engine) as connection:
                _multiply(connection, table, _numbers(connection, numbers, first, last), values)
        tell(f"{table.name}: {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    _add_series(service, stock)
    tell(f"point: {time.monotonic() - began:.0f} s")
    with writing(service.engine) as connection:
        for table in _TABLES:
            column = table.c.id if table is schema.cluster else table.c.cluster
            connection.execute(delete(table).where(column == _MODEL))
    _settle(service)


_TABLES = (
    schema.cluster,
    schema.computation,
    schema.task_group,
    schema.failure,
    schema.event,
    schema.worker_loss,
    schema.profile,
    schema.activity,
    schema.shutdown,
)


def _model() -> Heartbeat:
    code = make_code()
    return make_beat(
        make_cluster(_MODEL),
        computations=(
            make_computation(status="finished", frames=(CodeFrame(code.file, 12, code.hash),)),
        ),
        task_groups=tuple(make_task_group(name=f"group-{n}") for n in range(5)),
        failures=(make_failure(traceback="  File run.py, line 12, in divide\n" * 20),),
        worker_losses=(make_worker_loss(),),
        events=(make_event(),),
        activities=tuple(Activity(f"group-{n}", {"thread-cpu": 3.5}) for n in range(5)),
        profiles=(make_profile(),),
        shutdowns=(make_shutdown(),),
        code=(code,),
    )


def _multiplied(stock: Stock) -> Iterator[tuple[int, Table, str, dict[str, str]]]:
    """Return how many rows to make, of which table, out of which numbers, with which values."""
    life, short, now = stock.long_life, stock.of_short_lived, stock.now
    ends = f"CASE WHEN k > {LIFE // EVERY} THEN {now} - k * {EVERY} END"
    clusters = (
        f"SELECT i, i AS k, {now} - CASE i WHEN 0 THEN {life} ELSE i * {EVERY} + {LIFE} END AS at "
        "FROM n"
    )
    cluster = {
        "id": "'Scheduler-' || k",
        "name": "'nightly-' || (k % 7)",
        "user": f"'user-' || (k % {USERS})",
        "started_at": "n.at",
        "stopped_at": ends,
        # Later than any look at it, so that those that did not stop do not fall silent.
        "last_seen_at": f"COALESCE({ends}, {now + 86_400})",
        "status_at": f"COALESCE({ends}, {now})",
    }
    yield stock.clusters, schema.cluster, clusters, cluster
    of_cluster = {"cluster": "'Scheduler-' || k"}
    yield stock.clusters, schema.activity, clusters, of_cluster
    yield stock.clusters, schema.shutdown, clusters, of_cluster | {"at": "n.at"}

    def numbers(step: int) -> str:
        placed = (
            f"SELECT i * {step} AS i, CASE WHEN i * {step} < {short} "
            f"THEN 1 + i * {step} / {COMPUTATIONS} ELSE 0 END AS k FROM n"
        )
        return (
            f"SELECT i, k, CASE k WHEN 0 THEN {now - life} + "
            f"(i - {short}) * {EVERY} ELSE {now - LIFE} - k * {EVERY} + "
            f"i % {COMPUTATIONS} * {LIFE // COMPUTATIONS} END AS at FROM ({placed}) AS placed"
        )

    both = {"started_at": "n.at", "stopped_at": "n.at + 5"}
    parts: tuple[tuple[Table, int, dict[str, str]], ...] = (
        (schema.computation, 1, {"id": "'c' || i", "user": f"'user-' || (k % {USERS})", **both}),
        (schema.task_group, GROUPED, {"computation": "'c' || i", **both}),
        (
            schema.failure,
            FAILED,
            {
                "computation": "'c' || i",
                # Half are of bugs that never go away, and the others are seen four times.
                "fingerprint": f"CASE i / {FAILED} % 2 WHEN 0 THEN '1:bug' || "
                f"(i / {2 * FAILED} % {BUGS}) ELSE '1:rare' || (i / {8 * FAILED}) END",
                "first_at": "n.at",
                "last_at": "n.at + 4",
            },
        ),
        (schema.event, EVENTS, {"id": "'e' || i", "at": "n.at"}),
        (schema.worker_loss, LOSSES, {"id": "'w' || i", "at": "n.at"}),
        (schema.profile, PROFILES, {"id": "'p' || i", **both}),
    )
    for table, step, values in parts:
        yield stock.computations // step, table, numbers(step), of_cluster | values


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
    of_model = (model.c.id if table is schema.cluster else model.c.cluster) == _MODEL
    query = select(*chosen).select_from(numbers).join(model, of_model)
    connection.execute(insert(table).from_select([c.name for c in table.columns], query))


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
    # In the order of the table, which is the quickest.
    of_long, began = stock.long_life * POINTS // LIFE, f"{stock.now - stock.long_life}"
    _add_points(service, number * of_long, of_long, f"{_FIRST_SERIES} + s", began)
    points = number * (stock.clusters - 1) * POINTS
    began = f"{stock.now - LIFE} - (1 + s / {number}) * {EVERY}"
    _add_points(service, points, POINTS, f"{_FIRST_SERIES + number} + s", began)


def _add_points(
    service: ServiceProcess, points: int, of_each: int, series: str, began: str
) -> None:
    """Add ``points``, ``of_each`` series numbered ``s``; ``series`` and ``began`` are SQL."""
    placed = f"SELECT i, i / {of_each} AS s FROM n"
    numbers = (
        f"SELECT i, {series} AS k, ({began} + i % {of_each} * {LIFE // POINTS}) * 1000 AS at "
        f"FROM ({placed}) AS placed"
    )
    for first in range(0, points, 4 * _ROWS_AT_ONCE):
        last = min(first + 4 * _ROWS_AT_ONCE, points) - 1
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
