"""What the next round would remove, told before it does: how many rows, and about how many bytes.

A look must not take long, however much there is: rows are counted up to a bound, sizes are those of
a few rows, and what is found by its cluster is looked for on a few of the clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Select,
    Subquery,
    Table,
    and_,
    cast,
    func,
    literal,
    select,
)

from daskscope_service.db import schema
from daskscope_service.db.belonging import Whose, keys
from daskscope_service.db.rows import select_in
from daskscope_service.db.space import row_bytes
from daskscope_service.retention.ageing import old_computations
from daskscope_service.retention.kinds import Periods
from daskscope_service.retention.removal import keys_of

_DAY = 86_400.0

#: Rows that are counted at most, and those of which the size is looked at.
MOST_COUNTED = 10_000
_MEASURED = 30

#: Clusters that are asked whether they may have old points, and those on which points are counted,
#: so many at most.
_CLUSTERS_ASKED, _CLUSTERS_LOOKED_AT, _POINTS_COUNTED = 200, 10, 100_000

#: Bytes that a point takes on the disk (docs/operations.md), and how much the indexes add to rows.
_POINT_BYTES = 26
_WITH_INDEXES = 1.3

#: The kinds of series, each with the one whose points it takes over.
_FINER = {"series-full": None, "series-5min": "series-full", "series": "series-5min"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many ``rows`` go, or more where ``more`` says so, and about how many ``bytes`` with them.

    Of the kind ``clusters``, rows are clusters, and the bytes are theirs alone.
    """

    rows: int = 0
    bytes: float = 0.0
    more: bool = False

    def __add__(self, other: Forecast) -> Forecast:
        return Forecast(self.rows + other.rows, self.bytes + other.bytes, self.more or other.more)


def forecast(
    connection: Connection, workspace: str, kept: Periods, at: float
) -> dict[str, Forecast]:
    """Return what goes of each kind in ``workspace`` in a round at ``at``, seconds since the epoch.

    ``kept`` says for how long each is kept.
    """
    before = {kind: at - days * _DAY for kind, days in kept.items() if days is not None}
    found = {kind: Forecast() for kind in kept}
    for kind in before.keys() - _FINER.keys():
        for table, chosen in _chosen(workspace, kind, before[kind]):
            found[kind] += _of_rows(connection, table, chosen)
    mark = schema.retention_mark
    done = connection.execute(select_in(workspace, mark, mark.c.kind, mark.c.until))
    marks = {row.kind: row.until for row in done}
    clusters, every = _some_clusters(connection, workspace)
    for kind in before.keys() & _FINER.keys():
        since = max(marks.get(kind, 0.0), _from(before, kind))
        until = before[kind] // _DAY * _DAY
        found[kind] = _of_points(connection, workspace, clusters, every, since, until)
    return found


def _chosen(workspace: str, kind: str, before: float) -> list[tuple[Table, Select[Any]]]:
    def old(table: Table, at: str) -> tuple[Table, Select[Any]]:
        return table, keys_of(table, workspace).where(table.c[at] < before)

    def of_old_clusters(table: Table, at: str) -> tuple[Table, Select[Any]]:
        # Whose index by time is one for each cluster.
        cluster = schema.cluster
        its = and_(cluster.c.workspace == workspace, cluster.c.id == table.c.cluster)
        return table, old(table, at)[1].join(cluster, its).where(cluster.c.started_at < before)

    match kind:
        case "clusters":
            chosen = keys(Whose(workspace, unheard_since=before), schema.cluster)
            # Which there is an index of, and none of when it was last heard of.
            return [(schema.cluster, chosen.where(schema.cluster.c.started_at < before))]
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
            return [old(schema.profile, "started_at")]
        case "logs":
            return [old(schema.log_record, "at")]
        case "spans":
            return [of_old_clusters(schema.span, "started_at")]
    raise AssertionError(f"say here what goes of {kind}")


def _of_rows(connection: Connection, table: Table, chosen: Select[Any]) -> Forecast:
    some = chosen.with_only_columns(literal(1)).limit(MOST_COUNTED + 1).subquery()
    rows = connection.execute(select(func.count()).select_from(some)).scalar_one()
    if not rows:
        return Forecast()
    measured = chosen.limit(_MEASURED).subquery()
    taken = _bytes_of(connection, table, [column.name for column in table.primary_key], measured)
    if table is schema.computation:
        named = ["workspace", "cluster", "computation"]
        taken += _bytes_of(connection, schema.task_group, named, measured)
    counted = min(rows, MOST_COUNTED)
    of_one = _WITH_INDEXES * taken / min(rows, _MEASURED)
    return Forecast(counted, of_one * counted, rows > counted)


def _bytes_of(connection: Connection, table: Table, columns: list[str], some: Subquery) -> float:
    # Of the rows whose ``columns`` are a row of ``some``. Joined, their key is looked up for each;
    # with IN, SQLite goes through all of the workspace.
    same = (table.c[name] == key for name, key in zip(columns, some.c, strict=True))
    query = (
        select(func.sum(row_bytes(connection.dialect.name, table)))
        .select_from(some)
        .join(table, and_(*same))
    )
    return float(connection.execute(query).scalar() or 0)


def _from(before: Mapping[str, float], kind: str) -> float:
    # Points of a width become those of the next: what is older than that is of the next kind.
    coarser = next((name for name, finer in _FINER.items() if finer == kind), None)
    return before.get(coarser, 0.0) if coarser is not None else 0.0


def _some_clusters(connection: Connection, workspace: str) -> tuple[list[Row[Any]], int]:
    """Return about ``_CLUSTERS_ASKED`` clusters of all times, and how many each stands for."""
    cluster = schema.cluster
    number = select_in(workspace, cluster, func.count())
    every = -(-int(connection.execute(number).scalar_one()) // _CLUSTERS_ASKED)
    # By the second in which they began, which an index has. Not every tenth or sixtieth second:
    # many a cluster begins on the minute.
    while math.gcd(every, 60) > 1:
        every += 1
    query = select_in(
        workspace, cluster, cluster.c.started_at, cluster.c.last_seen_at, cluster.c.id
    )
    if every > 1:
        query = query.where(cast(cluster.c.started_at, BigInteger) % every == 0)
    return list(connection.execute(query.order_by(cluster.c.started_at, cluster.c.id))), every


def _of_points(
    connection: Connection,
    workspace: str,
    clusters: Sequence[Row[Any]],
    every: int,
    since: float,
    until: float,
) -> Forecast:
    # How many points a cluster has, some of those tell that were heard of since then.
    found = [row.id for row in clusters if row.started_at < until and row.last_seen_at >= since]
    if until <= since or not found:
        return Forecast()
    series, point = schema.series, schema.point
    looked_at = found[:: -(-len(found) // _CLUSTERS_LOOKED_AT)]
    ids = select_in(workspace, series, series.c.id).where(series.c.cluster.in_(looked_at))
    some = (
        select(point.c.time)
        .where(
            point.c.series.in_(ids),
            point.c.time >= int(since * 1000),
            point.c.time < int(until * 1000),
        )
        .limit(_POINTS_COUNTED + 1)
        .subquery()
    )
    rows = connection.execute(select(func.count()).select_from(some)).scalar_one()
    more = rows > _POINTS_COUNTED
    points = min(rows, _POINTS_COUNTED) * every * len(found) // len(looked_at)
    return Forecast(points, float(_POINT_BYTES * points), more)
