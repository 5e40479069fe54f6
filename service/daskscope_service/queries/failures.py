"""Failures over all clusters, grouped by fingerprint."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Label, Select, Subquery, and_, func, literal, select, tuple_

from daskscope_service.db.schema import cluster, failure
from daskscope_service.db.scope import Page, Scope, Selection, first_page, total
from daskscope_service.insight.views import ExceptionDetail, ExceptionGroup
from daskscope_service.web.fields import Missing

#: Failures that the page and the API show of one group, the newest first.
MOST_SAMPLES = 20

#: Users that are named of one group, by their names. Whoever may send could make up any number, for
#: each of a thousand groups: their names were 45 MB of an answer after a minute's sending.
MOST_USERS = 20

#: Failures among which the groups that were seen last are looked for.
_NEWEST = 1_000

#: What a row has of which everything can be decrypted.
_READABLE: dict[str, Any] = {"unreadable": {}}

_ITS_CLUSTER = and_(cluster.c.workspace == failure.c.workspace, cluster.c.id == failure.c.cluster)


#: What groups can be sorted by, the most or newest first, each a column of a group.
SORTS = {"last": "last_at", "first": "first_at", "times": "count", "clusters": "clusters"}


def list_exceptions(scope: Scope, selection: Selection, sort: str = "last") -> Page[ExceptionGroup]:
    """Return groups of equal failures in the order that ``sort`` names, one of :data:`SORTS`.

    ``since`` and ``until`` choose by when a failure was last seen, and all numbers of a group are
    about the chosen ones: ``count`` sums exceptions, ``clusters`` counts clusters, ``users`` names
    :data:`MOST_USERS` at most, ``message`` is that of the last one, None where it was not sent.
    """
    last_at = func.max(failure.c.last_at)
    counted = {
        "count": total(failure.c.count),
        "clusters": func.count(failure.c.cluster.distinct()),
        "first_at": func.min(failure.c.first_at),
        "last_at": last_at,
    }
    by = SORTS[sort]
    # Only what is in an index: the rows themselves are large, and they are looked up for few.
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
        # Of one user or cluster there are few, and no index by time.
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
    found = first_page(scope, query, selection.limit, by, "fingerprint")
    users = _users(scope, selection, [row["fingerprint"] for row in found.items])
    items = [
        ExceptionGroup.of(_READABLE | row | {"users": users.get(row["fingerprint"], [])})
        for row in found.items
    ]
    return Page(items, found.next)


def one_exception(scope: Scope, fingerprint: str) -> ExceptionDetail:
    """Return one group with its newest ``samples``. Raises Missing.

    Each has the ``environment`` of its cluster.
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
    """Return groups among which those of the first page are; None where that takes all of them.

    Adding up all groups to show the newest took twice as long with 10,000 clusters. Where few
    groups have most of the failures the newest of these are too few, and all are added up.
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
    """Return the first users of each group that has some."""
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
