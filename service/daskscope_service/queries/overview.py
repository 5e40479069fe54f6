"""The rows for the overview of a workspace."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Subquery,
    and_,
    bindparam,
    case,
    exists,
    func,
    not_,
    or_,
    select,
)

from daskscope_service.db.data_ownership import failure_notice, loss_notice
from daskscope_service.db.row_values import columns_in
from daskscope_service.db.schema import cluster, computation, failure, notice, worker_loss
from daskscope_service.db.scope import Item, Scope, total
from daskscope_service.db.statements import Lookup
from daskscope_service.insight.attention import (
    IDLE_AFTER,
    LAG_AFTER,
    LOST_WITHIN,
    MEMORY_OVER,
)
from daskscope_service.insight.findings.failures import KILLED_WORKER
from daskscope_service.insight.views import ClusterInQuestion, JudgedCluster
from daskscope_service.queries.causes import among
from daskscope_service.queries.cluster_filter import is_silent
from daskscope_service.queries.clusters import judged

_OF_CLUSTER = columns_in(cluster, JudgedCluster)

#: Fingerprints that are looked for with one statement.
_LOOKS = 50

#: Notices of a day that are put together to accidents.
MOST_NOTICES = 200
_FAILED, _LOST = "computation failed", "worker lost"

#: Computations of lost workers that are looked up.
_MOST_JOINED = 2_000

#: Notices of a day that are counted at most, the newest.
_MOST_COUNTED = 100_000

#: Clusters for which the page says why they should be looked at; those with most threads first.
MOST_LOOKED_AT = 200


def running_clusters(scope: Scope, limit: int) -> tuple[Item, list[JudgedCluster]]:
    """Return counts of all that runs, and the newest of it."""
    runs = (cluster.c.stopped_at.is_(None), not_(is_silent(scope)))
    counts = scope.items(
        scope.select(
            cluster,
            func.count().label("clusters"),
            func.count(cluster.c.idle_seconds).label("idle"),
            func.coalesce(total(cluster.c.workers), 0).label("workers"),
            func.coalesce(total(cluster.c.threads), 0).label("threads"),
        ).where(*runs)
    )[0]
    newest = scope.items(
        scope.select(cluster, *_OF_CLUSTER)
        .where(*runs)
        .order_by(cluster.c.started_at.desc(), cluster.c.id.desc())
        .limit(limit)
    )
    return counts, [JudgedCluster.of(row) for row in judged(scope, newest)]


def clusters_in_question(scope: Scope) -> list[ClusterInQuestion]:
    """Return the clusters that :mod:`daskscope_service.insight.attention` may draw attention to."""
    lost = _newest(scope, scope.now - LOST_WITHIN, notice.c.kind == _LOST)
    losses = {
        str(id): int(count)
        for id, count in scope.connection.execute(
            select(lost.c.cluster, func.count()).group_by(lost.c.cluster)
        )
    }
    held = cluster.c.held_by["unrunnable"].as_float()  # counts go to 2⁵³, INTEGER does not
    of_losses = cluster.c.id.in_(sorted(losses)[:MOST_LOOKED_AT])
    used = case((cluster.c.memory_limit > 0, cluster.c.memory_used), else_=0)
    questions: tuple[ColumnElement[bool], ...] = (
        cluster.c.idle_seconds >= IDLE_AFTER,
        used > MEMORY_OVER * cluster.c.memory_limit,
        held > 0,
        cluster.c.scheduler["lag"].as_float() >= LAG_AFTER,
        of_losses,
    )
    silent = is_silent(scope)
    rows, _ = scope.first_items(
        scope.select(cluster, *_OF_CLUSTER)
        .where(
            or_(
                # What has gone is remembered for what it left: workers that it lost in a day.
                of_losses,
                and_(
                    cluster.c.stopped_at.is_(None),
                    or_(
                        and_(not_(silent), or_(*questions)),
                        and_(
                            silent,
                            not_(cluster.c.may_end),
                            cluster.c.last_seen_at >= scope.now - LOST_WITHIN,
                        ),
                    ),
                ),
            )
        )
        .order_by(cluster.c.threads.desc(), cluster.c.id),
        MOST_LOOKED_AT,
    )
    return [
        ClusterInQuestion.of(row | {"losses": losses.get(row["id"], 0)})
        for row in judged(scope, rows)
    ]


def seen_before(scope: Scope, fingerprints: list[str], before: float) -> set[str]:
    """Return those ``fingerprints`` that have a failure last seen before then."""
    found: set[str] = set()
    for first in range(0, len(fingerprints), _LOOKS):
        some = fingerprints[first : first + _LOOKS]
        looked_for = some + [""] * (_LOOKS - len(some))
        [there] = _seen(scope.connection.dialect).within(
            scope.connection,
            workspace=scope.workspace,
            before=before,
            **{f"looked_for_{n}": fingerprint for n, fingerprint in enumerate(looked_for)},
        )
        found.update(itertools.compress(some, there))
    return found


@functools.cache
def _seen(dialect: Dialect) -> Lookup:
    # One look into an index for each, however often it failed.
    looks: list[Any] = [
        exists().where(
            failure.c.workspace == bindparam("workspace"),
            failure.c.fingerprint == bindparam(f"looked_for_{n}"),
            failure.c.last_at < bindparam("before"),
        )
        for n in range(_LOOKS)
    ]
    return Lookup(dialect, select(*looks))


def went_wrong(
    scope: Scope, since: float, fingerprints: Sequence[str]
) -> tuple[dict[str, int], list[Item]]:
    """Return how many computations failed and workers were lost since then, and the accidents.

    An accident is a row of a notice, the newest first, with ``count``: how many notices it stands
    for. Workers that one cluster lost are one; a computation that failed is none where the groups
    of exceptions with ``fingerprints``, which the page shows beside, have its failure or the one
    that it waited for, nor is a worker with which runs ended that Dask gave up for that, if they
    have that failure. Of very many notices, the newest :data:`MOST_NOTICES` are looked at.
    """
    kinds = (_FAILED, _LOST)
    chosen = (notice.c.found_at >= since, notice.c.kind.in_(kinds))
    counted = _newest(scope, since, notice.c.kind.in_(kinds))
    counts = scope.connection.execute(select(counted.c.kind, func.count()).group_by(counted.c.kind))
    newest = scope.items(
        scope.select(notice).where(*chosen).order_by(notice.c.found_at.desc()).limit(MOST_NOTICES)
    )
    shown = _shown_by_groups(scope, newest, fingerprints) | _given_up(scope, newest, fingerprints)
    accidents: dict[object, Item] = {}
    for item in newest:
        if item["id"] in shown:
            continue
        of = (item["cluster"], _LOST) if item["kind"] == _LOST else item["id"]
        accident = accidents.setdefault(of, item | {"count": 0})
        accident["count"] += 1
    return {str(kind): int(count) for kind, count in counts}, list(accidents.values())


def _newest(scope: Scope, since: float, which: ColumnElement[bool]) -> Subquery:
    """Return the kinds and clusters of notices since then: of very many, the newest."""
    query = scope.select(notice, notice.c.kind, notice.c.cluster).where(
        notice.c.found_at >= since, which
    )
    return query.order_by(notice.c.found_at.desc()).limit(_MOST_COUNTED).subquery("newest")


def _shown_by_groups(
    scope: Scope, notices: Sequence[Item], fingerprints: Sequence[str]
) -> set[str]:
    """Return the ids of notices of computations whose failure is in one of these groups."""
    ids = {
        (item["cluster"], item["id"].removeprefix(failure_notice(item["cluster"], ""))): item["id"]
        for item in notices
        if item["kind"] == _FAILED
    }
    # By its key alone: of a cluster that is up for long there are many.
    in_group = among(
        scope.select(failure, failure.c.cluster, failure.c.computation),
        (failure.c.cluster, failure.c.computation),
        ids,
    ).where(failure.c.fingerprint.in_(fingerprints))
    theirs = {(row[0], row[1]) for row in scope.connection.execute(in_group.distinct())}
    failed_on = {cluster for cluster, _ in theirs}
    others = [key for key in ids if key not in theirs and key[0] in failed_on]
    waited = among(
        scope.select(computation, computation.c.cluster, computation.c.id),
        (computation.c.cluster, computation.c.id),
        others,
    ).where(computation.c.erred == 0, computation.c.blamed > 0)
    theirs |= {(row[0], row[1]) for row in scope.connection.execute(waited)}
    return {ids[key] for key in theirs}


def _given_up(scope: Scope, notices: Sequence[Item], fingerprints: Sequence[str]) -> set[str]:
    """Return the ids of notices of workers for whose loss a computation in a group was given up."""
    ids = {
        (item["cluster"], item["id"].removeprefix(loss_notice(item["cluster"], ""))): item["id"]
        for item in notices
        if item["kind"] == _LOST
    }
    key = (worker_loss.c.cluster, worker_loss.c.id)
    losses = scope.connection.execute(
        among(scope.select(worker_loss, *key, worker_loss.c.computations), key, ids)
    ).all()
    of_failure = (failure.c.cluster, failure.c.computation)
    pairs = [(row[0], id) for row in losses for id in row[2]][:_MOST_JOINED]
    in_group = among(scope.select(failure, *of_failure), of_failure, pairs).where(
        failure.c.fingerprint.in_(fingerprints), failure.c.type.like(f"%{KILLED_WORKER}")
    )
    given_up = {(row[0], row[1]) for row in scope.connection.execute(in_group.distinct())}
    return {ids[row[0], row[1]] for row in losses if any((row[0], id) in given_up for id in row[2])}
