"""Finds the clusters that a reader asks for, in the requested order, or by their name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    tuple_,
    union_all,
)

from daskscope.protocol import MAX_NAME
from daskscope_service.costs.prices import prices_of
from daskscope_service.costs.pricing import OPERATOR_COST, cost, reckonable, up
from daskscope_service.db.row_values import columns_in
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Item, Page, Scope, Selection, rows_in_order
from daskscope_service.insight.verdict import MISSED_BEATS
from daskscope_service.insight.views import ClusterView, ListedCluster
from daskscope_service.insight.wording import number
from daskscope_service.queries.causes import is_cause_of_cluster
from daskscope_service.queries.clusters import cluster_views, find_cluster
from daskscope_service.web.fields import Ambiguous

Status = Literal["running", "stopped", "lost", "ended"]
STATUSES: tuple[Status, ...] = get_args(Status)

#: What the list can be sorted by, the highest first; clusters without a value come last. "cost" is
#: that of clusters with prices of their own; :func:`find_clusters` adds the workspace's prices.
SORTS: dict[str, ColumnElement[Any]] = {
    "started": cluster.c.started_at,
    "up": up,
    "workers": cluster.c.peak_workers,
    "memory": cluster.c.peak_memory_used,
    "cost": cluster.c.cost,
    "idle": reckonable(cluster.c.thread_idle_seconds)
    / func.nullif(reckonable(cluster.c.thread_seconds), 0.0),
}


#: The most clusters that an error lists, if one of them must be chosen.
_MOST_LISTED = 10


@dataclass(frozen=True, slots=True)
class ClusterFilter:
    """Which clusters to list, in addition to a :class:`Selection`.

    ``name`` is a part of their name or id, ignoring case. ``tag`` is a tag's name, or
    ``name=value``. ``finding`` is the rule of a finding that they have. ``sort`` is one of
    :data:`SORTS`.
    """

    status: Status | None = None
    name: str | None = None
    kind: str | None = None
    tag: str | None = None
    finding: str | None = None
    sort: str = "started"


def find_clusters(scope: Scope, selection: Selection, which: ClusterFilter) -> Page[ListedCluster]:
    """Return a page of the clusters that fit. ``selection`` is about the time of their start."""
    key: ColumnElement[Any] = SORTS[which.sort]
    if which.sort == "cost":
        key = cost(prices_of(scope.connection, scope.workspace))
    if which.sort != "started":  # that is never NULL, and has an index
        key = func.coalesce(key, -1.0)
    key = key.label("sorted_by")
    # This query finds the ids; the whole rows are then read only for the clusters of the page.
    query = scope.select(cluster, cluster.c.id, key).where(*_conditions(scope, selection, which))
    if which.sort != "started" and selection.user is None:
        # Running clusters and the others are read apart, each by an index of its own. The values of
        # running ones change with every beat, so only the index of the others, which are many,
        # contains values. One user's clusters are found by the index of users.
        runs = cluster.c.stopped_at.is_(None)
        either = union_all(query.where(not_(runs)), query.where(runs)).subquery("either")
        query = select(either)
    id, by = query.selected_columns
    if selection.after is not None:
        query = query.where(tuple_(by, id) < tuple_(*map(literal, selection.after[:2])))
    chosen = scope.connection.execute(
        query.order_by(by.desc(), id.desc()).limit(selection.limit + 1)
    )
    places = [(row.sorted_by, row.id) for row in chosen]
    brief = scope.select(cluster, *columns_in(cluster, ListedCluster), *OPERATOR_COST)
    listed = rows_in_order(scope, brief, "id", places, selection.limit)
    return Page(cluster_views(scope, listed.items, ListedCluster), listed.next)


def cluster_called(scope: Scope, asked: str, *, to_close: bool = False) -> ClusterView | None:
    """Return the cluster whose id or name is ``asked``; None if the workspace has no such cluster.

    ``to_close``: clusters that do not run count only if none of that name runs.

    Raises
    ------
    Ambiguous
        Several clusters have this name.
    """
    by_id = find_cluster(scope, asked)
    if by_id is not None:
        return by_id
    named = scope.select(cluster, *columns_in(cluster, ClusterView), *OPERATOR_COST).where(
        cluster.c.name == asked
    )
    rows = []
    if to_close:
        runs = and_(cluster.c.stopped_at.is_(None), not_(is_silent(scope)))
        rows = _newest(scope, named.where(runs))
    rows = rows or _newest(scope, named)
    if len(rows) > 1:
        raise Ambiguous(_choice(asked, cluster_views(scope, rows, ClusterView)))
    return next(iter(cluster_views(scope, rows, ClusterView)), None)


def cluster_id_called(scope: Scope, asked: str) -> str:
    """Return the id of the cluster whose id or name is ``asked``; ``asked`` if there is none.

    Raises
    ------
    Ambiguous
        Several clusters have this name.
    """
    ids = scope.called(asked)
    if len(ids) > 1:
        cluster_called(scope, asked)  # raises: the message lists them
    return ids[0]


def _newest(scope: Scope, query: Select[Any]) -> list[Item]:
    return scope.items(query.order_by(cluster.c.started_at.desc()).limit(_MOST_LISTED + 1))


def _choice(name: str, clusters: list[ClusterView]) -> str:
    """Return in words that one of the clusters named ``name`` must be chosen by its id."""
    many = f"more than {_MOST_LISTED}" if len(clusters) > _MOST_LISTED else number(len(clusters))
    times = [datetime.fromtimestamp(one.started_at, UTC) for one in clusters[:_MOST_LISTED]]
    each = "; ".join(
        f"{one.id} ({one.status}, started {at:%Y-%m-%d %H:%M} UTC)"
        for one, at in zip(clusters, times, strict=False)
    )
    more = "; …" if len(clusters) > _MOST_LISTED else ""
    return f"There are {many} clusters named {name!r}. Choose one by its id: {each}{more}"


def is_silent(scope: Scope) -> ColumnElement[bool]:
    """Return the condition that a cluster that has not stopped is silent.

    Its verdict is then ``lost``, or ``ended`` if it may end without reporting that.
    """
    silence = scope.now - cluster.c.last_seen_at
    return and_(silence > scope.silent_after, silence > MISSED_BEATS * cluster.c.interval)


def is_tag(text: str) -> bool:
    """Return whether ``text`` can be :attr:`ClusterFilter.tag`."""
    return not ('"' in text or "\\" in text or text.startswith("="))


def tag_filter(name: str, value: str) -> str | None:
    """Return the :attr:`ClusterFilter.tag` for exactly this tag; None if that cannot be written."""
    text = f"{name}={value}"
    return text if "=" not in name and is_tag(text) else None


def _conditions(
    scope: Scope, selection: Selection, which: ClusterFilter
) -> list[ColumnElement[bool]]:
    conditions = [scope.is_of(selection.cluster, cluster.c.id)]
    for value, column in (
        (selection.user, cluster.c.user),
        (which.kind, cluster.c.kind),
    ):
        if value is not None:
            conditions.append(column == value)
    if which.name is not None and len(which.name) > MAX_NAME:
        conditions.append(false())  # no name is so long, and SQLite refuses such a pattern
    elif which.name is not None:
        texts = (cluster.c.name, cluster.c.id)
        conditions.append(or_(*(text.icontains(which.name, autoescape=True) for text in texts)))
    # Even if this excludes no row: it makes SQLite use the index by time, in whose order the rows
    # are stored. With another index, reading all rows takes four times as long.
    conditions.append(cluster.c.started_at >= (selection.kept_since or 0.0))
    if selection.kept_until is not None:
        conditions.append(cluster.c.started_at < selection.kept_until)
    if which.status == "stopped":
        conditions.append(cluster.c.stopped_at.is_not(None))
    elif which.status is not None:
        silent = is_silent(scope)
        conditions.append(cluster.c.stopped_at.is_(None))
        conditions.append(not_(silent) if which.status == "running" else silent)
        if which.status != "running":
            conditions.append(cluster.c.may_end.is_(which.status == "ended"))
    if which.tag is not None:
        name, equals, value = which.tag.partition("=")
        value_of = cluster.c.tags[name].as_string()
        conditions.append(value_of == value if equals else value_of.is_not(None))
    if which.finding is not None:
        conditions.append(is_cause_of_cluster(scope, which.finding))
    return conditions
