"""Clusters with their verdicts, their costs, and counts of what happened on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, Table, func

from daskscope_service.costs.pricing import OPERATOR_COST, price_clusters
from daskscope_service.db.row_values import columns_in
from daskscope_service.db.schema import cluster, computation, failure, worker_loss
from daskscope_service.db.scope import Item, Page, Scope, Selection, page, total
from daskscope_service.insight.lifetime import Lifetime
from daskscope_service.insight.verdict import cluster_verdict
from daskscope_service.insight.views import ClusterView, ListedCluster
from daskscope_service.queries.causes import causes_of, is_cause_of_cluster
from daskscope_service.web.fields import Missing

Cluster = TypeVar("Cluster", ClusterView, ListedCluster)


def list_clusters(scope: Scope, selection: Selection, rule: str | None = None) -> Page[ClusterView]:
    """Return clusters by the time they started; with ``rule``, only those with its finding."""
    query = scope.select(cluster, *columns_in(cluster, ClusterView), *OPERATOR_COST)
    if rule is not None:
        query = query.where(is_cause_of_cluster(scope, rule))
    if selection.user is not None:
        query = query.where(cluster.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, cluster.c.id))
    listed = page(scope, query, selection, cluster.c.started_at, "id")
    return Page(cluster_views(scope, listed.items, ClusterView), listed.next)


def find_cluster(scope: Scope, id: str) -> ClusterView | None:
    """Return one cluster, or None if the workspace has no such cluster."""
    query = scope.select(cluster, *columns_in(cluster, ClusterView), *OPERATOR_COST).where(
        cluster.c.id == id
    )
    rows = cluster_views(scope, scope.items(query), ClusterView)
    return rows[0] if rows else None


def cluster_of(scope: Scope, selection: Selection) -> ClusterView | None:
    """Return the cluster that ``selection`` chooses by id or name; None for none or several."""
    ids = () if selection.cluster is None else scope.called(selection.cluster)
    return find_cluster(scope, ids[0]) if len(ids) == 1 else None


def one_cluster(scope: Scope, id: str) -> ClusterView:
    """Return one cluster. Raises Missing."""
    row = find_cluster(scope, id)
    if row is None:
        raise Missing("cluster", id)
    return row


def lifetime_of(scope: Scope, id: str) -> Lifetime:
    """Return counts of a cluster's computations and lost workers, as far as they are stored."""
    query = scope.select(computation, computation.c.status, func.count())
    by_status = query.where(computation.c.cluster == id).group_by(computation.c.status)
    lost = scope.select(worker_loss, func.count()).where(
        worker_loss.c.cluster == id, worker_loss.c.expected.is_(False)
    )
    return Lifetime(
        {str(row[0]): int(row[1]) for row in scope.connection.execute(by_status)},
        int(scope.connection.execute(lost).scalar_one()),
    )


def cluster_views(scope: Scope, rows: list[Item], kind: type[Cluster]) -> list[Cluster]:
    """Return ``rows`` with verdict, cost and counts, with one query per count for all together."""
    ids = [row["id"] for row in rows]
    computations = _counts(scope, computation, func.count(), ids)
    failures = _counts(scope, failure, total(failure.c.count), ids)
    causes = causes_of(scope, [(id, "") for id in ids])
    return [
        kind.of(
            row
            | {
                "computations": computations.get(row["id"], 0),
                "failures": failures.get(row["id"], 0),
                "cause": causes.get((row["id"], "")),
            }
        )
        for row in judged(scope, rows)
    ]


def judged(scope: Scope, rows: Iterable[Item]) -> list[Item]:
    """Return ``rows`` of clusters with the fields of a :class:`JudgedCluster`."""
    items = []
    for row in price_clusters(scope, rows):
        verdict = cluster_verdict(row, scope.now, scope.silent_after)
        items.append(row | {"status": verdict.status, "sentence": verdict.sentence})
    return items


def _counts(
    scope: Scope, table: Table, count: ColumnElement[int], ids: Sequence[str]
) -> dict[str, int]:
    query = scope.select(table, table.c.cluster, count).where(table.c.cluster.in_(ids))
    rows = scope.connection.execute(query.group_by(table.c.cluster))
    return {row[0]: int(row[1]) for row in rows}
