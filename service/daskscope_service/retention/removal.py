"""Removes rows in steps; everything that removes data uses this module."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Engine,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    select,
)

from daskscope_service.costs import usage_sums
from daskscope_service.db import schema, series_generation
from daskscope_service.db.data_ownership import failure_notice
from daskscope_service.db.engine import writing_again
from daskscope_service.db.rows import select_in
from daskscope_service.queries.among import among
from daskscope_service.queries.job_runs import sum_up_jobs_of
from daskscope_service.retention.throttle import Removed, Throttle

#: Series that are read together: databases limit the number of parameters.
_SERIES_AT_ONCE = 500

_EVER = 2**62

_POINTS = (schema.point, schema.recent_point)

#: The columns with a computation's key in its task groups and in its findings, and those of the
#: notice that it failed.
_GROUPS_OF = [schema.task_group.c[name] for name in ("workspace", "cluster", "computation")]
_FINDINGS_OF = [schema.finding.c[name] for name in ("workspace", "cluster", "computation")]
_RUNS_OF = [schema.group_run.c[name] for name in ("workspace", "cluster", "computation")]
_NOTICE_OF = list(schema.notice.primary_key)


def remove(engine: Engine, table: Table, chosen: Select[Any], pace: Throttle) -> Iterator[Removed]:
    """Remove the rows of ``table`` that ``chosen`` selects by their primary key.

    With a computation, this removes its task groups, their repeats, its findings and the notice
    that it failed, which names its user.
    """
    while True:
        with engine.connect() as connection:
            if connection.execute(chosen.limit(1)).first() is None:
                return
        yield Removed(
            table.name, writing_again(engine, partial(_delete_some, table, chosen, pace.rows))
        )


def remove_keys(engine: Engine, table: Table, keys: Sequence[Sequence[Any]]) -> Removed:
    """Remove the rows of ``table`` that have these primary keys, in one transaction.

    With a computation, this removes the same other rows as :func:`remove`.
    """
    writing_again(engine, lambda connection: _delete_keys(connection, table, keys))
    return Removed(table.name, len(keys))


def keys_of(table: Table, workspace: Any) -> Select[Any]:
    """Return a query of the primary keys of ``table`` in ``workspace``, to add conditions to.

    ``workspace`` is its id, or a bind parameter for it.
    """
    return select_in(workspace, table, *table.primary_key)


def clusters_in(engine: Engine, table: Table, workspace: str) -> Iterator[str]:
    """Yield the clusters that rows of ``table`` refer to, one after the other, by its index."""
    query = select_in(workspace, table, func.min(table.c.cluster))
    last: str | None = None
    while True:
        with engine.connect() as connection:
            more = query if last is None else query.where(table.c.cluster > last)
            last = connection.execute(more).scalar()
        if last is None:
            return
        yield last


def series_in(engine: Engine, workspace: str, *conditions: Any) -> Iterator[list[Any]]:
    """Yield the rows of the series of ``workspace``, some at a time, in the order of their ids."""
    table, last = schema.series, -1
    while True:
        query = select_in(workspace, table).where(table.c.id > last, *conditions)
        with engine.connect() as connection:
            rows = connection.execute(query.order_by(table.c.id).limit(_SERIES_AT_ONCE)).all()
        if not rows:
            return
        yield list(rows)
        last = rows[-1].id


def remove_points(
    engine: Engine, series: Sequence[int], pace: Throttle, *, before: int = _EVER
) -> Iterator[Removed]:
    """Remove the points of ``series`` from before the time ``before``, in milliseconds."""
    point = schema.point
    chosen = select(point.c.series, point.c.time).where(
        point.c.series.in_(series), point.c.time < before
    )
    up_to = delete(point).where(
        point.c.series == bindparam("id"), point.c.time <= bindparam("last")
    )
    while True:
        with engine.connect() as connection:
            some = chosen.order_by(*point.primary_key).limit(pace.rows).subquery()
            rows = connection.execute(
                select(some.c.series, func.max(some.c.time)).group_by(some.c.series)
            ).all()
        if not rows:
            return
        last_of = [{"id": id, "last": last} for id, last in rows]
        gone = writing_again(engine, partial(_execute, up_to, last_of))
        yield Removed(point.name, gone)


def remove_series(
    engine: Engine, workspace: str, series: Sequence[int], *, unless_points: bool
) -> Iterator[Removed]:
    """Remove ``series`` and their points; ``unless_points``: only those without any."""
    table = schema.series
    chosen = select_in(workspace, table, table.c.id).where(table.c.id.in_(series))
    if unless_points:
        chosen = chosen.where(*(~exists().where(point.c.series == table.c.id) for point in _POINTS))
    with engine.connect() as connection:
        if connection.execute(chosen.limit(1)).first() is None:
            return

    def removed(connection: Connection) -> int:
        series_generation.begin_next(connection)  # from here on, no process writes points
        ids = connection.execute(chosen).scalars().all()
        for point in _POINTS:
            connection.execute(delete(point).where(point.c.series.in_(ids)))
        connection.execute(delete(table).where(table.c.id.in_(ids)))
        return len(ids)

    yield Removed(table.name, writing_again(engine, removed))


def _execute(statement: Delete, rows: Sequence[Mapping[str, Any]], connection: Connection) -> int:
    return connection.execute(statement, rows).rowcount


def _delete_some(table: Table, chosen: Select[Any], most: int, connection: Connection) -> int:
    # Locked, so that no upsert renews a selected row before it is deleted. Rows that an upsert has
    # locked are left for the next step.
    some = chosen.limit(most).with_for_update(skip_locked=True, of=table)
    keys = connection.execute(some).all()
    _delete_keys(connection, table, keys)
    return len(keys)


def _delete_keys(connection: Connection, table: Table, keys: Sequence[Sequence[Any]]) -> None:
    ran = []
    if table in (schema.computation, schema.group_run):
        ran = _groups_that_ran(connection, _by_workspace(keys))
    if table is schema.computation:
        _delete(connection, _GROUPS_OF, keys)
        _delete(connection, _FINDINGS_OF, keys)
        _delete(connection, _RUNS_OF, keys)
        notices = [(workspace, failure_notice(*of)) for workspace, *of in keys]
        _delete(connection, _NOTICE_OF, notices)
        for workspace, runs in _by_workspace(keys).items():
            # Before all others; and at another time at each removal: see sum_up_jobs.
            sum_up_jobs_of(connection, workspace, sorted(runs), -time.time())
    if table is schema.usage:
        days: dict[str, list[int]] = {}
        for workspace, day, _ in keys:
            days.setdefault(workspace, []).append(day)
        for workspace, some in days.items():
            usage_sums.forget(connection, workspace, min(some), max(some))
    _delete(connection, list(table.primary_key), keys)
    _delete_repeats(connection, ran)
    if table is schema.computation:
        _delete_empty_jobs(connection, {workspace for workspace, *_ in keys})


def _groups_that_ran(
    connection: Connection, runs: Mapping[str, Iterable[tuple[str, str]]]
) -> list[dict[str, Any]]:
    """Return the groups of these computations, and when they ran."""
    ran = schema.group_run
    key = (ran.c.cluster, ran.c.computation)
    groups = []
    for workspace, some in runs.items():
        query = among(select_in(workspace, ran, ran.c.name, ran.c.at), key, some)
        groups += [
            {"of_workspace": workspace, "of_name": name, "ran_at": at}
            for name, at in connection.execute(query)
        ]
    return groups


def _delete_repeats(connection: Connection, ran: Sequence[Mapping[str, Any]]) -> None:
    """Delete what groups come to, unless the run that is removed was too old to count.

    It names users. The next run of a group adds up the rest.
    """
    repeat = schema.repeat
    if ran:
        counts = and_(
            repeat.c.workspace == bindparam("of_workspace"),
            repeat.c.name == bindparam("of_name"),
            repeat.c.first_at <= bindparam("ran_at"),
        )
        connection.execute(delete(repeat).where(counts), ran)


def _by_workspace(keys: Sequence[Sequence[Any]]) -> dict[str, set[tuple[str, str]]]:
    """Return the computations (cluster, id) of keys that begin with the workspace and theirs."""
    by_workspace: dict[str, set[tuple[str, str]]] = {}
    for workspace, cluster, id, *_ in keys:
        by_workspace.setdefault(workspace, set()).add((cluster, id))
    return by_workspace


def _delete_empty_jobs(connection: Connection, workspaces: Iterable[str]) -> None:
    """Delete the jobs whose last run was removed: users gave them their names."""
    job, run = schema.job, schema.computation
    has_runs = exists().where(run.c.workspace == job.c.workspace, run.c.job == job.c.id)
    for workspace in workspaces:
        empty = (job.c.workspace == workspace, job.c.due_at < 0.0, ~has_runs)
        connection.execute(delete(job).where(*empty))


def _delete(
    connection: Connection, columns: Sequence[Column[Any]], keys: Sequence[Sequence[Any]]
) -> None:
    # Deletes all rows whose ``columns`` are one of ``keys``.
    if keys:
        names = [f"key_{column.name}" for column in columns]
        same = (
            column == bindparam(name, type_=column.type)
            for column, name in zip(columns, names, strict=True)
        )
        connection.execute(
            delete(columns[0].table).where(and_(*same)),
            [dict(zip(names, key, strict=True)) for key in keys],
        )
