"""Estimates what the next round will remove: how many rows, and about how many bytes.

This must be quick, however much data there is: rows are counted up to a limit, the sizes of a few
rows are measured, and points are counted on a few days of clusters.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Float,
    Integer,
    Select,
    String,
    Subquery,
    Table,
    and_,
    bindparam,
    func,
    literal,
    select,
)

from daskscope_service.db import schema
from daskscope_service.db.rows import select_in
from daskscope_service.db.space import row_bytes
from daskscope_service.db.statements import Lookup
from daskscope_service.retention.expiry import old_computations
from daskscope_service.retention.policy import Periods
from daskscope_service.retention.removal import keys_of

_DAY = 86_400.0

#: How many rows, or days of clusters, are counted at most; and how many rows are measured.
MOST_COUNTED = 1_000
_MEASURED = 8

#: On how many days of clusters points are counted, and how many at most on one day.
_DAYS_LOOKED_AT, _POINTS_COUNTED = 5, 50_000

#: Bytes of a point on the disk (docs/operations.md), and the factor that indexes add to rows.
_POINT_BYTES = 26
_WITH_INDEXES = 1.3

#: The kinds of series, each with the finer kind whose points become its points.
_FINER = {"series-full": None, "series-5min": "series-full", "series": "series-5min"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """``rows`` will be removed, with about ``bytes``; ``more``: there are more than that.

    For the kind ``clusters``, only the clusters themselves are counted, not their other data.
    """

    rows: int = 0
    bytes: float = 0.0
    more: bool = False

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(self.rows + other.rows, self.bytes + other.bytes, self.more or other.more)


def forecast(
    connection: Connection, workspace: str, kept: Periods, at: float
) -> dict[str, Forecast]:
    """Return what a round at ``at``, in seconds since the epoch, removes of each kind.

    ``kept``: for how many days each kind is kept.
    """
    before = {kind: at - days * _DAY for kind, days in kept.items() if days is not None}
    forecasts = {kind: Forecast() for kind in kept}
    for kind in before.keys() - _FINER.keys():
        for look in _looks(connection.dialect, kind):
            forecasts[kind] += look.of(connection, workspace, before[kind])
    mark = schema.retention_mark
    done = connection.execute(select_in(workspace, mark, mark.c.kind, mark.c.until))
    marks = {row.kind: row.until for row in done}
    for kind in before.keys() & _FINER.keys():
        since = max(marks.get(kind, 0.0), _from(before, kind))
        until = before[kind] // _DAY * _DAY
        forecasts[kind] = _of_points(connection, workspace, since, until)
    return forecasts


class _Look:
    """Counts and measures the rows that a query with binds ``workspace``, ``before`` selects."""

    def __init__(self, dialect: Dialect, table: Table, chosen: Select[Any]) -> None:
        some = chosen.with_only_columns(literal(1)).limit(MOST_COUNTED + 1).subquery()
        self._count = Lookup(dialect, select(func.count()).select_from(some))
        measured = chosen.limit(_MEASURED).subquery()
        sizes = [(table, [column.name for column in table.primary_key])]
        if table is schema.computation:
            sizes.append((schema.task_group, ["workspace", "cluster", "computation"]))
        self._sizes = [
            Lookup(dialect, _bytes_of(dialect, table, columns, measured))
            for table, columns in sizes
        ]

    def of(self, connection: Connection, workspace: str, before: float) -> Forecast:
        bound = {"workspace": workspace, "before": before}
        ((rows,),) = self._count.within(connection, **bound)
        if not rows:
            return Forecast()
        taken = [size.within(connection, **bound)[0][0] for size in self._sizes]
        counted = min(rows, MOST_COUNTED)
        of_one = _WITH_INDEXES * sum(float(some or 0) for some in taken) / min(rows, _MEASURED)
        return Forecast(counted, of_one * counted, rows > counted)


@functools.cache
def _looks(dialect: Dialect, kind: str) -> list[_Look]:
    # Cached: building and compiling these queries takes longer than running them.
    return [_Look(dialect, table, chosen) for table, chosen in _chosen(kind)]


def _chosen(kind: str) -> list[tuple[Table, Select[Any]]]:
    workspace, before = bindparam("workspace", type_=String), bindparam("before", type_=Float)

    def old(table: Table, at: str) -> tuple[Table, Select[Any]]:
        return table, keys_of(table, workspace).where(table.c[at] < before)

    def of_old_clusters(table: Table, at: str) -> tuple[Table, Select[Any]]:
        # The index of these tables by time begins with the cluster.
        cluster = schema.cluster
        its = and_(cluster.c.workspace == workspace, cluster.c.id == table.c.cluster)
        return table, old(table, at)[1].join(cluster, its).where(cluster.c.started_at < before)

    match kind:
        case "clusters":
            table, chosen = old(schema.cluster, "last_seen_at")
            # This column has an index, unlike the time of the last heartbeat.
            return [(table, chosen.where(table.c.started_at < before))]
        case "computations":
            return [(schema.computation, old_computations(workspace, before))]
        case "failures":
            return [
                old(schema.failure, "last_at"),
                of_old_clusters(schema.worker_loss, "at"),
            ]
        case "events":
            return [old(schema.event, "at")]
        case "profiles":
            return [
                old(schema.profile, "started_at"),
                of_old_clusters(schema.task_stream, "started_at"),
            ]
        case "logs":
            return [old(schema.log_record, "at")]
        case "spans":
            return [of_old_clusters(schema.span, "started_at")]
    raise AssertionError(f"there is no forecast for the kind {kind}")


def _bytes_of(
    dialect: Dialect, table: Table, columns: list[str], some: Subquery
) -> Select[tuple[Any]]:
    # Measures the rows whose ``columns`` are a row of ``some``. The join looks up each key; with
    # IN, SQLite would read all rows of the workspace.
    same = (table.c[name] == key for name, key in zip(columns, some.c, strict=True))
    size = func.sum(row_bytes(dialect.name, table))
    return select(size).select_from(some).join(table, and_(*same))


def _from(before: Mapping[str, float], kind: str) -> float:
    # Points that are older than the limit of the coarser kind already are of that kind.
    coarser = next((name for name, finer in _FINER.items() if finer == kind), None)
    return before.get(coarser, 0.0) if coarser is not None else 0.0


def _days_of_clusters() -> Select[Any]:
    usage = schema.usage
    query = select_in(bindparam("workspace"), usage, usage.c.day, usage.c.cluster)
    return query.where(usage.c.day >= bindparam("first"), usage.c.day < bindparam("end"))


@functools.cache
def _number_of_days(dialect: Dialect) -> Lookup:
    some = _days_of_clusters().with_only_columns(literal(1)).limit(MOST_COUNTED + 1).subquery()
    return Lookup(dialect, select(func.count()).select_from(some))


@functools.cache
def _day_of_cluster(dialect: Dialect) -> Lookup:
    query = _days_of_clusters().order_by(schema.usage.c.day, schema.usage.c.cluster)
    return Lookup(dialect, query.limit(1).offset(bindparam("number", type_=Integer)))


@functools.cache
def _points_between(dialect: Dialect) -> Lookup:
    series, point = schema.series, schema.point
    ids = select_in(bindparam("workspace"), series, series.c.id)
    some = (
        select(literal(1))
        .select_from(point)
        .where(
            point.c.series.in_(ids.where(series.c.cluster == bindparam("cluster"))),
            point.c.time >= bindparam("since"),
            point.c.time < bindparam("until"),
        )
        .limit(_POINTS_COUNTED)
        .subquery()
    )
    return Lookup(dialect, select(func.count()).select_from(some))


def _of_points(connection: Connection, workspace: str, since: float, until: float) -> Forecast:
    # The table of usage holds on which days each cluster ran. The points are counted for some of
    # these days, and estimated for the others.
    between = {"workspace": workspace, "first": int(since // _DAY), "end": int(until // _DAY)}
    dialect = connection.dialect
    ((days,),) = _number_of_days(dialect).within(connection, **between)
    if not days:
        return Forecast()
    counted = min(days, MOST_COUNTED)
    numbers = range(0, counted, -(-counted // _DAYS_LOOKED_AT))
    count = 0
    for number in numbers:
        ((day, cluster),) = _day_of_cluster(dialect).within(connection, number=number, **between)
        at = {"since": int(day * _DAY * 1000), "until": int((day + 1) * _DAY * 1000)}
        ((points,),) = _points_between(dialect).within(
            connection, workspace=workspace, cluster=cluster, **at
        )
        count += points
    points = count * counted // len(numbers)
    return Forecast(points, float(_POINT_BYTES * points), days > counted)
