"""Removes old data: one round in one workspace, in small steps.

Clusters that report stay, and so do the computations that run on them, whatever their age.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, Select, Table, and_, exists, func, select

from daskscope_service.db import points, schema
from daskscope_service.db.data_ownership import Whose, keys
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.statements import Upsert
from daskscope_service.retention.code import remove_unused_code
from daskscope_service.retention.deletion import delete_rows
from daskscope_service.retention.policy import periods
from daskscope_service.retention.removal import (
    clusters_in,
    keys_of,
    remove,
    remove_points,
    remove_series,
    series_in,
)
from daskscope_service.retention.thinning import thin
from daskscope_service.retention.throttle import Removed, Throttle

_DAY = 86_400.0

#: When points of a kind are too old, one point per so many milliseconds replaces them.
_WIDTHS = {"series-full": 5 * 60_000, "series-5min": 60 * 60_000}


def remove_old_data(
    engine: Engine, workspace: str, now: float, pace: Throttle
) -> Iterator[Removed]:
    """Remove the data of ``workspace`` that is too old at ``now``, in seconds since the epoch."""
    before = {
        kind: now - days * _DAY
        for kind, days in periods(engine, workspace).items()
        if days is not None
    }
    if "clusters" in before:
        yield from _clusters(engine, workspace, before["clusters"], pace)
    if "computations" in before:
        chosen = old_computations(workspace, before["computations"])
        yield from remove(engine, schema.computation, chosen, pace)
    if "failures" in before:
        yield from _old(engine, workspace, schema.failure, "last_at", before["failures"], pace)
        yield from _by_cluster(
            engine, workspace, schema.worker_loss, "at", before["failures"], pace
        )
    if "events" in before:
        yield from _old(engine, workspace, schema.event, "at", before["events"], pace)
    if "profiles" in before:
        yield from _old(engine, workspace, schema.profile, "started_at", before["profiles"], pace)
        yield from _by_cluster(
            engine, workspace, schema.task_stream, "started_at", before["profiles"], pace
        )
    for kind, table, at in (
        ("spans", schema.span, "started_at"),
        ("logs", schema.log_record, "at"),
    ):
        if kind in before:
            yield from _by_cluster(engine, workspace, table, at, before[kind], pace)
    yield from _once_a_day(engine, workspace, now, before, pace)


def _once_a_day(
    engine: Engine, workspace: str, now: float, before: dict[str, float], pace: Throttle
) -> Iterator[Removed]:
    # These steps read all series, or all computations.
    marks = _marks(engine, workspace)
    moved = False
    for kind in ("series", *_WIDTHS):
        # Whole days, so that each day is thinned once, and no bucket is cut in two.
        until = before.get(kind, 0.0) // _DAY * _DAY
        since = marks.get(kind, 0.0)
        if until <= since:
            continue
        if not moved:  # some recent points may not have been moved yet
            yield from _move_points(engine, pace)
            moved = True
        if kind == "series":
            yield from _series(engine, workspace, now, until, pace)
        else:
            times = (int(since * 1000), int(until * 1000))
            yield from thin(engine, workspace, _WIDTHS[kind], *times, pace)
        _mark(engine, workspace, kind, until)
    today = now // _DAY * _DAY
    if marks.get("code", 0.0) < today:
        yield from remove_unused_code(engine, workspace, pace)
        _mark(engine, workspace, "code", today)


def _move_points(engine: Engine, pace: Throttle) -> Iterator[Removed]:
    if points.written_to(engine) is schema.point:
        return
    place = points.BEFORE_ALL
    while True:
        with writing(engine) as connection:
            _, place = points.move(connection, place, pace.rows)
        yield Removed(schema.recent_point.name, 0)
        if place == points.BEFORE_ALL:
            return


def _clusters(engine: Engine, workspace: str, before: float, pace: Throttle) -> Iterator[Removed]:
    # A cluster that reports meanwhile keeps the rows that it still has.
    whose = Whose(workspace, unheard_since=before)
    with engine.connect() as connection:
        some = connection.execute(keys(whose, schema.cluster).limit(1)).first()
    if some is not None:
        yield from delete_rows(engine, whose, pace)


def old_computations(workspace: Any, before: Any) -> Select[Any]:
    """Return a query of the keys of the computations that ended before ``before``.

    ``workspace`` and ``before`` are a workspace's id and a time, or bind parameters for them.
    """
    table, cluster = schema.computation, schema.cluster
    goes_on = (
        exists()
        .where(cluster.c.workspace == table.c.workspace, cluster.c.id == table.c.cluster)
        .where(cluster.c.stopped_at.is_(None), cluster.c.last_seen_at >= before)
        .correlate(table)
    )
    return keys_of(table, workspace).where(
        table.c.started_at < before,  # this column has an index
        func.coalesce(table.c.stopped_at, table.c.started_at) < before,
        ~and_(table.c.status == "running", goes_on),
    )


def _old(
    engine: Engine, workspace: str, table: Table, at: str, before: float, pace: Throttle
) -> Iterator[Removed]:
    yield from remove(engine, table, keys_of(table, workspace).where(table.c[at] < before), pace)


def _by_cluster(
    engine: Engine, workspace: str, table: Table, at: str, before: float, pace: Throttle
) -> Iterator[Removed]:
    # The index of this table by time begins with the cluster.
    for cluster in clusters_in(engine, table, workspace):
        chosen = keys_of(table, workspace).where(table.c.cluster == cluster, table.c[at] < before)
        yield from remove(engine, table, chosen, pace)
        yield Removed(table.name, 0)  # lets the throttle pause: the search takes time, too


def _series(
    engine: Engine, workspace: str, now: float, before: float, pace: Throttle
) -> Iterator[Removed]:
    cluster = schema.cluster
    heard = exists().where(
        cluster.c.workspace == schema.series.c.workspace,
        cluster.c.id == schema.series.c.cluster,
        cluster.c.last_seen_at > now - _DAY,
    )
    for some in series_in(engine, workspace):
        ids = [row.id for row in some]
        yield from remove_points(engine, ids, pace, before=int(before * 1000))
        yield Removed(schema.point.name, 0)
    # The series of a cluster that still reports are needed again soon.
    for some in series_in(engine, workspace, ~heard):
        ids = [row.id for row in some]
        yield from remove_series(engine, workspace, ids, unless_points=True)
        yield Removed(schema.series.name, 0)


def _marks(engine: Engine, workspace: str) -> dict[str, float]:
    table = schema.retention_mark
    with engine.connect() as connection:
        rows = connection.execute(select_in(workspace, table, table.c.kind, table.c.until))
        return {row.kind: row.until for row in rows}


def _mark(engine: Engine, workspace: str, kind: str, until: float) -> None:
    upsert = Upsert(engine, schema.retention_mark, replace=["until"])
    with writing(engine) as connection:
        upsert.run(connection, [(workspace, kind, until)])


def workspaces(engine: Engine) -> list[str]:
    """Return the ids of all workspaces, sorted."""
    table = schema.workspace
    with engine.connect() as connection:
        return list(connection.execute(select(table.c.id).order_by(table.c.id)).scalars())
