"""Clusters, with what became of them and counts of what happened on them."""

from __future__ import annotations

from sqlalchemy import func

from daskscope_service.costs.pricing import price_clusters
from daskscope_service.db.schema import cluster, computation, failure, worker_loss
from daskscope_service.db.scope import Item, Page, Scope, Selection, page, total
from daskscope_service.insight.lifetime import Lifetime
from daskscope_service.insight.verdict import cluster_seconds, cluster_verdict
from daskscope_service.queries.causes import add_causes, is_cause_of_cluster
from daskscope_service.web.fields import Missing

#: What is there to sort by, and shown in another form.
_TO_SORT_BY = ("thread_seconds", "thread_idle_seconds")

#: The columns of a list of many: without what is large, and not shown there.
BRIEF = [
    column
    for column in cluster.c
    if column.name not in ("environment", "deployment", "drops", "settings", *_TO_SORT_BY)
]


def list_clusters(scope: Scope, selection: Selection, rule: str | None = None) -> Page:
    """Return clusters by the time they started; with ``rule``, those that have its finding."""
    query = scope.select(cluster)
    if rule is not None:
        query = query.where(is_cause_of_cluster(scope, rule))
    if selection.user is not None:
        query = query.where(cluster.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, cluster.c.id))
    found = page(scope, query, selection, cluster.c.started_at, "id")
    return Page(completed(scope, found.items), found.next)


def find_cluster(scope: Scope, id: str) -> Item | None:
    """Return one cluster, or None if the workspace has no such cluster."""
    rows = completed(scope, scope.items(scope.select(cluster).where(cluster.c.id == id)))
    return rows[0] if rows else None


def cluster_of(scope: Scope, selection: Selection) -> Item | None:
    """Return the cluster that ``selection`` chooses by id or name; None for none or several."""
    ids = () if selection.cluster is None else scope.called(selection.cluster)
    return find_cluster(scope, ids[0]) if len(ids) == 1 else None


def one_cluster(scope: Scope, id: str) -> Item:
    """Return one cluster. Raises Missing."""
    row = find_cluster(scope, id)
    if row is None:
        raise Missing("cluster", id)
    return row


def lifetime_of(scope: Scope, id: str) -> Lifetime:
    """Return what a cluster ran and lost, as far as it is known."""
    query = scope.select(computation, computation.c.status, func.count())
    by_status = query.where(computation.c.cluster == id).group_by(computation.c.status)
    lost = scope.select(worker_loss, func.count()).where(
        worker_loss.c.cluster == id, worker_loss.c.expected.is_(False)
    )
    return Lifetime(
        {str(row[0]): int(row[1]) for row in scope.connection.execute(by_status)},
        int(scope.connection.execute(lost).scalar_one()),
    )


def completed(scope: Scope, items: list[Item]) -> list[Item]:
    """Add verdict, cost and counts, with one query per count for all clusters together."""
    ids = [item["id"] for item in items]
    computations = scope.select(computation, computation.c.cluster, func.count())
    failures = scope.select(failure, failure.c.cluster, total(failure.c.count))
    by_cluster = {
        name: {
            row[0]: int(row[1])
            for row in scope.connection.execute(
                query.where(table.c.cluster.in_(ids)).group_by(table.c.cluster)
            )
        }
        for name, table, query in (
            ("computations", computation, computations),
            ("failures", failure, failures),
        )
    }
    for item in items:
        verdict = cluster_verdict(item, scope.now, scope.silent_after)
        item["status"], item["sentence"] = verdict.status, verdict.sentence
        item["duration"] = cluster_seconds(item)
        for name, counts in by_cluster.items():
            item[name] = counts.get(item["id"], 0)
    return price_clusters(scope, add_causes(scope, items, of_clusters=True))
