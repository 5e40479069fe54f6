"""Reads task streams: the runs of tasks, interval by interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import tuple_

from daskscope_service.db.schema import cluster, task_stream
from daskscope_service.db.scope import Item, Page, Position, Scope, Selection, first_page, page
from daskscope_service.insight.task_stream import unpacked

#: The most runs, or merged runs, in one answer: some five megabytes of JSON.
MOST_ENTRIES = 50_000
#: The most rows that are read for it, each of up to 200,000 bytes.
_MOST_ROWS = 100

#: How many packed rows are read at once to be answered, and to be added up, which takes long.
_AT_ONCE, _FEW = 32, 8
#: How many rows, the newest, a reader sees who names no time: those of an hour of work.
_NEWEST = 360


def list_task_streams(scope: Scope, selection: Selection) -> Page[Item]:
    """Return task streams by the time their first run began, newest first.

    There are at most 100, and fewer if they have more than :data:`MOST_ENTRIES` entries.
    """
    selection = replace(selection, limit=min(selection.limit, _MOST_ROWS))
    columns = [column for column in task_stream.c if column.name not in ("workspace", "seq")]
    query = scope.select(task_stream, *columns)
    query = query.where(scope.is_of(selection.cluster, task_stream.c.cluster))
    if selection.user is not None:
        theirs = scope.select(cluster, cluster.c.id).where(cluster.c.user == selection.user)
        query = query.where(task_stream.c.cluster.in_(theirs))
    listed = page(scope, query, selection, task_stream.c.started_at, "id", "cluster")
    items: list[Item] = []
    entries = 0
    for row in listed.items:
        items.append(unpacked(row))
        entries += len(items[-1]["count"])
        if entries >= MOST_ENTRIES and len(items) < len(listed.items):
            return Page(items, (row["started_at"], row["id"], row["cluster"]))
    return Page(items, listed.next)


def packed_streams(
    scope: Scope,
    cluster: str,
    since: float,
    until: float,
    after: Position | None = None,
    limit: int = _AT_ONCE,
) -> Page[Item]:
    """Return rows of a cluster's task stream that overlap a time, packed, the newest first.

    They are those of some intervals; the page's ``next`` is the ``after`` of the others.
    """
    columns = [column for column in task_stream.c if column.name not in ("workspace", "seq")]
    query = scope.select(task_stream, *columns).where(
        task_stream.c.cluster == cluster,
        task_stream.c.started_at < until,
        task_stream.c.stopped_at >= since,
    )
    at = (task_stream.c.started_at, task_stream.c.id)
    if after is not None:
        query = query.where(tuple_(*at) < tuple_(*after[:2]))
    query = query.order_by(*(column.desc() for column in at))
    return first_page(scope, query, limit, "started_at", "id")


def all_packed_streams(scope: Scope, cluster: str, since: float, until: float) -> Iterator[Item]:
    """Yield the rows of :func:`packed_streams`, reading as many as the caller takes."""
    after = None
    while True:
        streams = packed_streams(scope, cluster, since, until, after, _FEW)
        yield from streams.items
        after = streams.next
        if after is None:
            return


def newest_streamed(scope: Scope, cluster: str) -> tuple[float, float] | None:
    """Return the time of the newest rows of a cluster's task stream, None if there are none."""
    query = scope.select(task_stream, task_stream.c.started_at, task_stream.c.stopped_at)
    query = query.where(task_stream.c.cluster == cluster)
    newest = query.order_by(task_stream.c.started_at.desc(), task_stream.c.id.desc())
    rows = scope.connection.execute(newest.limit(_NEWEST)).all()
    return (min(row[0] for row in rows), max(row[1] for row in rows)) if rows else None
