"""Reads task streams: the runs of tasks, interval by interval."""

from __future__ import annotations

from dataclasses import replace

from daskscope_service.db.schema import cluster, task_stream
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.insight.task_stream import unpacked

#: The most runs, or merged runs, in one answer: some five megabytes of JSON.
MOST_ENTRIES = 50_000
#: The most rows that are read for it, each of up to 200,000 bytes.
_MOST_ROWS = 100


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
    found = page(scope, query, selection, task_stream.c.started_at, "id", "cluster")
    items: list[Item] = []
    entries = 0
    for row in found.items:
        items.append(unpacked(row))
        entries += len(items[-1]["count"])
        if entries >= MOST_ENTRIES and len(items) < len(found.items):
            return Page(items, (row["started_at"], row["id"], row["cluster"]))
    return Page(items, found.next)
