"""Failures over all clusters, grouped by fingerprint."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Label, Select, Subquery, and_, func, literal, select, tuple_

from daskscope_service.db.schema import cluster, failure
from daskscope_service.db.scope import Page, Scope, Selection, first_page, total
from daskscope_service.insight.views import ExceptionDetail, ExceptionGroup
from daskscope_service.web.fields import Missing

#: The most failures of one group that the page and the API show, the newest first.
MOST_SAMPLES = 20

#: The most users of one group that are named, in the order of their names. A sender could invent
#: any number for each of a thousand groups: after a minute of that, an answer had 45 MB of names.
MOST_USERS = 20

#: How many of the newest failures are searched for the groups that were seen last.
_NEWEST = 1_000

#: The value of ``unreadable`` in a row of which every column can be decrypted.
_READABLE: dict[str, Any] = {"unreadable": {}}

_ITS_CLUSTER = and_(cluster.c.workspace == failure.c.workspace, cluster.c.id == failure.c.cluster)


#: What groups can be sorted by, the highest or newest first; each value is a column of a group.
SORTS = {"last": "last_at", "first": "first_at", "times": "count", "clusters": "clusters"}


def list_exceptions(scope: Scope, selection: Selection, sort: str = "last") -> Page[ExceptionGroup]:
    """Return groups of equal failures in the order that ``sort`` names, one of :data:`SORTS`.

    ``since`` and ``until`` select failures by when they were last seen. All fields of a group are
    about the selected failures: ``count`` sums exceptions, ``clusters`` counts clusters, ``users``
    names at most :data:`MOST_USERS`, and ``message`` is that of the last failure, None if it was
    not sent.
    """
    last_at = func.max(failure.c.last_at)
    counted = {
        "count": total(failure.c.count),
        "clusters": func.count(failure.c.cluster.distinct()),
        "first_at": func.min(failure.c.first_at),
        "last_at": last_at,
    }
    by = SORTS[sort]
    # Only columns of an index: the rows are large, and are read only for the groups of the page.
    query = _chosen(
        scope,
        scope.select(
            failure,
            failure.c.fingerprint,
            *(column.label(name) for name, column in counted.items()),
        ),
        selection,
    ).group_by(failure.c.fingerprint)
    if selection.after is not None:
        at, fingerprint, _ = selection.after
        query = query.having(
            tuple_(counted[by], failure.c.fingerprint) < tuple_(literal(at), literal(fingerprint))
        )
    elif sort == "last" and selection.user is None and selection.cluster is None:
        # One user or cluster has few failures, and no index by time.
        newest = _seen_last(scope, selection)
        if newest is not None:
            query = query.where(failure.c.fingerprint.in_(newest))
    groups = (
        query.order_by(counted[by].desc(), failure.c.fingerprint.desc())
        .limit(selection.limit + 1)
        .subquery("groups")
    )
    of_last = (
        _of_the_last(scope, column, groups)
        for column in ("type", "function", "message", "traceback")
    )
    query = select(groups, *of_last).order_by(groups.c[by].desc(), groups.c.fingerprint.desc())
    listed = first_page(scope, query, selection.limit, by, "fingerprint")
    users = _users(scope, selection, [row["fingerprint"] for row in listed.items])
    items = [
        ExceptionGroup.of(_READABLE | row | {"users": users.get(row["fingerprint"], [])})
        for row in listed.items
    ]
    return Page(items, listed.next)


def one_exception(scope: Scope, fingerprint: str) -> ExceptionDetail:
    """Return one group with its newest failures as ``samples``. Raises Missing.

    Each sample has the ``environment`` of its cluster.
    """
    samples = scope.items(
        scope.select(
            failure, *failure.c, cluster.c.name.label("cluster_name"), cluster.c.environment
        )
        .join(cluster, _ITS_CLUSTER)
        .where(failure.c.fingerprint == fingerprint)
        .order_by(failure.c.last_at.desc())
        .limit(MOST_SAMPLES)
    )
    if not samples:
        raise Missing("exception", fingerprint)
    totals = scope.items(
        scope.select(
            failure,
            total(failure.c.count).label("count"),
            func.count(failure.c.cluster.distinct()).label("clusters"),
            func.min(failure.c.first_at).label("first_at"),
            func.max(failure.c.last_at).label("last_at"),
        ).where(failure.c.fingerprint == fingerprint)
    )[0]
    users = _users(scope, Selection(), [fingerprint]).get(fingerprint, [])
    made = {"samples": samples, "users": users}
    return ExceptionDetail.of(_READABLE | samples[0] | totals | made)


def _seen_last(scope: Scope, selection: Selection) -> list[str] | None:
    """Return the fingerprints of the newest groups, enough for a first page; None if too few.

    Summing up all groups to show the newest ones took twice as long with 10,000 clusters. If few
    groups have most of the failures, the :data:`_NEWEST` failures contain too few groups: then all
    groups must be summed up.
    """
    newest = (
        _chosen(scope, scope.select(failure, failure.c.fingerprint), selection)
        .order_by(failure.c.last_at.desc(), failure.c.fingerprint.desc())
        .limit(_NEWEST)
        .subquery("newest")
    )
    rows = scope.connection.execute(select(newest.c.fingerprint).distinct()).scalars().all()
    return list(rows) if len(rows) > selection.limit else None


def _of_the_last(scope: Scope, column: str, groups: Subquery) -> Label[Any]:
    return (
        scope.select(failure, failure.c[column])
        .where(failure.c.fingerprint == groups.c.fingerprint, failure.c.last_at == groups.c.last_at)
        .limit(1)
        .correlate(groups)
        .scalar_subquery()
        .label(column)
    )


def _chosen(scope: Scope, query: Select[Any], selection: Selection) -> Select[Any]:
    if selection.user is not None:
        query = query.where(failure.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, failure.c.cluster))
    if selection.kept_since is not None:
        query = query.where(failure.c.last_at >= selection.kept_since)
    if selection.kept_until is not None:
        query = query.where(failure.c.last_at < selection.kept_until)
    return query


def _users(scope: Scope, selection: Selection, fingerprints: list[str]) -> dict[str, list[str]]:
    """Return the users of each group, in the order of their names, at most :data:`MOST_USERS`."""
    pairs = (
        _chosen(scope, scope.select(failure, failure.c.fingerprint, failure.c.user), selection)
        .where(failure.c.fingerprint.in_(fingerprints))
        .distinct()
        .subquery()
    )
    place = func.row_number().over(partition_by=pairs.c.fingerprint, order_by=pairs.c.user)
    numbered = select(pairs, place.label("place")).subquery()
    query = (
        select(numbered.c.fingerprint, numbered.c.user)
        .where(numbered.c.place <= MOST_USERS)
        .order_by(numbered.c.user)
    )
    users: dict[str, list[str]] = {}
    for fingerprint, user in scope.connection.execute(query):
        users.setdefault(fingerprint, []).append(user)
    return users
