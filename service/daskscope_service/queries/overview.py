"""Reads the rows of a workspace's overview."""

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

from daskscope_service.costs.pricing import OPERATOR_COST
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
from daskscope_service.queries.among import among
from daskscope_service.queries.cluster_filter import is_silent
from daskscope_service.queries.clusters import judged

_OF_CLUSTER = [*columns_in(cluster, JudgedCluster), *OPERATOR_COST]

#: How many fingerprints one statement looks up.
_LOOKS = 50

#: The most notices of a day, the newest, that are grouped into accidents.
MOST_NOTICES = 200
_FAILED, _LOST = "computation failed", "worker lost"

#: The most computations of lost workers that are looked up.
_MOST_JOINED = 2_000

#: The most notices of a day, the newest, that are counted.
_MOST_COUNTED = 100_000

#: The most clusters that the page shows as worth a look: those with the most threads.
MOST_LOOKED_AT = 200


def running_clusters(scope: Scope, limit: int) -> tuple[Item, list[JudgedCluster]]:
    """Return counts over all running clusters, and the newest ``limit`` of these clusters."""
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


def clusters_to_look_at(scope: Scope) -> list[ClusterInQuestion]:
    """Return the clusters that :mod:`daskscope_service.insight.attention` may draw attention to."""
    lost = _newest(scope, scope.now - LOST_WITHIN, notice.c.kind == _LOST)
    losses = {
        str(id): int(count)
        for id, count in scope.connection.execute(
            select(lost.c.cluster, func.count()).group_by(lost.c.cluster)
        )
    }
    # Counts reach 2⁵³, too much for INTEGER.
    held, queued = (cluster.c.held_by[kind].as_float() for kind in ("unrunnable", "queued"))
    of_losses = cluster.c.id.in_(sorted(losses)[:MOST_LOOKED_AT])
    used = case((cluster.c.memory_limit > 0, cluster.c.memory_used), else_=0)
    questions: tuple[ColumnElement[bool], ...] = (
        cluster.c.idle_seconds >= IDLE_AFTER,
        used > MEMORY_OVER * cluster.c.memory_limit,
        held > 0,
        and_(queued > 0, cluster.c.workers == 0),
        cluster.c.scheduler["lag"].as_float() >= LAG_AFTER,
        of_losses,
    )
    silent = is_silent(scope)
    rows, _ = scope.first_items(
        scope.select(cluster, *_OF_CLUSTER)
        .where(
            or_(
                # Clusters that are gone are shown only if they lost workers in the last day.
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
    """Return the ``fingerprints`` of which a failure was last seen before ``before``."""
    seen: set[str] = set()
    for first in range(0, len(fingerprints), _LOOKS):
        some = fingerprints[first : first + _LOOKS]
        looked_for = some + [""] * (_LOOKS - len(some))
        [there] = _seen(scope.connection.dialect).within(
            scope.connection,
            workspace=scope.workspace,
            before=before,
            **{f"looked_for_{n}": fingerprint for n, fingerprint in enumerate(looked_for)},
        )
        seen.update(itertools.compress(some, there))
    return seen


@functools.cache
def _seen(dialect: Dialect) -> Lookup:
    # One look-up in an index for each fingerprint, however many failures it has.
    looks: list[Any] = [
        exists().where(
            failure.c.workspace == bindparam("workspace"),
            failure.c.fingerprint == bindparam(f"looked_for_{n}"),
            failure.c.last_at < bindparam("before"),
        )
        for n in range(_LOOKS)
    ]
    return Lookup(dialect, select(*looks))


def count_incidents(
    scope: Scope, since: float, fingerprints: Sequence[str]
) -> tuple[dict[str, int], list[Item]]:
    """Return how many computations failed and workers were lost since ``since``, and the accidents.

    An accident is the row of a notice with ``count``, the number of notices that it stands for; the
    newest come first. All workers that one cluster lost are one accident. Notices are left out if
    the page already shows their failure in the groups of exceptions with ``fingerprints``: failed
    computations whose failure, or the failure that they waited for, is in a group, and lost workers
    for which Dask gave up a task with a failure in a group. Only the newest :data:`MOST_NOTICES`
    are read.
    """
    kinds = (_FAILED, _LOST)
    chosen = (notice.c.found_at >= since, notice.c.kind.in_(kinds))
    counted = _newest(scope, since, notice.c.kind.in_(kinds))
    counts = scope.connection.execute(select(counted.c.kind, func.count()).group_by(counted.c.kind))
    newest = scope.items(
        scope.select(notice).where(*chosen).order_by(notice.c.found_at.desc()).limit(MOST_NOTICES)
    )
    shown = _shown_by_groups(scope, newest, fingerprints) | _given_up(scope, newest, fingerprints)
    notices: dict[object, list[Item]] = {}
    for item in newest:
        if item["id"] not in shown:
            of = (item["cluster"], _LOST) if item["kind"] == _LOST else item["id"]
            notices.setdefault(of, []).append(item)
    accidents = [some[0] | {"count": len(some)} for some in notices.values()]
    return {str(kind): int(count) for kind, count in counts}, accidents


def _newest(scope: Scope, since: float, which: ColumnElement[bool]) -> Subquery:
    """Return kind and cluster of the notices since ``since``, at most :data:`_MOST_COUNTED`."""
    query = scope.select(notice, notice.c.kind, notice.c.cluster).where(
        notice.c.found_at >= since, which
    )
    return query.order_by(notice.c.found_at.desc()).limit(_MOST_COUNTED).subquery("newest")


def _shown_by_groups(
    scope: Scope, notices: Sequence[Item], fingerprints: Sequence[str]
) -> set[str]:
    """Return the ids of notices of failed computations that one of these groups explains."""
    ids = {
        (item["cluster"], item["id"].removeprefix(failure_notice(item["cluster"], ""))): item["id"]
        for item in notices
        if item["kind"] == _FAILED
    }
    # Looked up by key, because a cluster that is up for long has many failures.
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
    """Return the ids of notices of lost workers that led to a KilledWorker in one of the groups."""
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
