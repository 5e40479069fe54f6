"""Reads the stored data for an export: table by table, and in parts that fit into memory.

Each part is a query of its own that continues by the table's key, because one long query would keep
SQLite from resetting its write-ahead log, and PostgreSQL from vacuuming. A row that changes during
the export may be exported as it was before or after. A row that exists all the time is read once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Engine,
    Table,
    and_,
    exists,
    func,
    select,
    true,
    tuple_,
)

from daskscope_service.db import points, schema
from daskscope_service.db.data_ownership import TABLES, Whose, reading_order
from daskscope_service.db.rows import select_in
from daskscope_service.db.unreadable import Unreadable
from daskscope_service.retention.removal import series_in

#: How many rows, or points of series, one part has. A profile may have a hundred kilobytes.
_ROWS = 200
_POINTS = 5_000

#: The columns that can hold the time of a row. The first one that a table has counts.
_TIMES = ("started_at", "last_at", "at", "requested_at", "found_at")

#: The tables that are exported, by the name of the file.
NAMES: dict[str, Table] = {table.name: table for table in sorted(TABLES, key=lambda t: t.name)}
NAMES |= {"code": schema.code, "series": schema.point}

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What to export: whose data, and from which time, in seconds since the Unix epoch."""

    whose: Whose
    since: float = 0.0
    until: float = float("inf")


#: Columns that are not exported: they hold the service's own state, such as work that is due.
_OURS = frozenset({"seq", "unused_since", "judge_at", "job_due_at"})


def columns(name: str) -> dict[str, Any]:
    """Return the columns of an export and their types."""
    if name == "series":
        series = {c.name: c.type for c in schema.series.c if c.name != "id"}
        return {**series, "at": schema.event.c.at.type, "value": schema.point.c.value.type}
    return {c.name: c.type for c in NAMES[name].c if c.name not in _OURS}


def parts(engine: Engine, name: str, choice: Choice) -> Iterator[Rows]:
    """Yield the rows of the export ``name``, some at a time. Times are seconds since the epoch."""
    wanted = columns(name)
    reader = {"series": _points, "code": _code}.get(name)
    for rows in reader(engine, choice) if reader else _rows(engine, NAMES[name], choice):
        yield [{column: row[column] for column in wanted} for row in rows]


def blank_unreadable(rows: Rows) -> Counter[str]:
    """Replace values that cannot be decrypted by None; return how many there are by reason."""
    why: Counter[str] = Counter()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, Unreadable):
                row[name] = None
                why[value] += 1
    return why


def _rows(engine: Engine, table: Table, choice: Choice, *only: Any) -> Iterator[Rows]:
    order = reading_order(choice.whose, table)
    query = select(*(only or (table,))).where(choice.whose.condition(table), _when(table, choice))
    query = query.order_by(*order).limit(_ROWS)
    more = query
    while True:
        with engine.connect() as connection:
            rows = connection.execute(more).all()
            chosen = choice.whose.sieve(connection, table, rows)
        if not rows:
            return
        yield [dict(row._mapping) for row in chosen]
        more = query.where(tuple_(*order) > tuple(getattr(rows[-1], c.name) for c in order))


def _when(table: Table, choice: Choice) -> ColumnElement[bool]:
    # A cluster counts from its start to its last heartbeat. A row without a time of its own is
    # exported if the cluster or the computation to which it belongs is.
    cluster, computation = schema.cluster, schema.computation
    if (choice.since, choice.until) == (0.0, float("inf")):
        return true()
    if table is cluster:
        return and_(table.c.started_at < choice.until, table.c.last_seen_at >= choice.since)
    if table in (schema.activity, schema.usage):
        return exists().where(
            cluster.c.workspace == table.c.workspace,
            cluster.c.id == table.c.cluster,
            _when(cluster, choice),
        )
    if table is schema.task_group:
        return exists().where(
            computation.c.workspace == table.c.workspace,
            computation.c.cluster == table.c.cluster,
            computation.c.id == table.c.computation,
            _when(computation, choice),
        )
    at: ColumnElement[float] | None
    at = next((table.c[name] for name in _TIMES if name in table.c), None)
    if at is None:
        return true()
    if at not in reading_order(choice.whose, table):
        # coalesce keeps the database from using an index on this column, because it would then
        # have to sort the rows again for each part.
        at = func.coalesce(at, 0.0)
    return and_(at >= choice.since, at < choice.until)


def _code(engine: Engine, choice: Choice) -> Iterator[Rows]:
    # Only the code to which exported computations refer.
    code, computation = schema.code, schema.computation
    written: set[str] = set()
    key = list(computation.primary_key)
    for rows in _rows(engine, computation, choice, *key, computation.c.frames):
        named = {frame.get("code") for row in rows for frame in row["frames"] or ()}
        new = sorted(hash for hash in named - written if hash is not None)
        written.update(new)
        if new:
            query = select_in(choice.whose.workspace, code).where(code.c.hash.in_(new))
            with engine.connect() as connection:
                yield [dict(row) for row in connection.execute(query).mappings()]


def _points(engine: Engine, choice: Choice) -> Iterator[Rows]:
    whose = choice.whose
    since = int(choice.since * 1000)
    until = 2**62 if choice.until == float("inf") else int(choice.until * 1000)
    part: Rows = []
    for some in series_in(engine, whose.workspace, whose.condition(schema.series)):
        for series in some:
            names = {name: value for name, value in series._mapping.items() if name != "id"}
            names["attributes"] = json.loads(series.attributes)
            last: int | None = since - 1
            while last is not None:
                more = _points_of(series.id, last, until).order_by("time").limit(_POINTS)
                with engine.connect() as connection:
                    rows = connection.execute(more).all()
                part += [{**names, "at": time / 1000, "value": value} for _, time, value in rows]
                last = rows[-1].time if len(rows) == _POINTS else None
                if len(part) >= _POINTS:
                    yield part
                    part = []
    yield part


def _points_of(series: int, after: int, before: int) -> CompoundSelect[Any]:
    return points.where(
        lambda table: and_(table.c.series == series, table.c.time > after, table.c.time < before)
    )
