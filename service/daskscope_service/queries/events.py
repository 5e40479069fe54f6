"""What happened on clusters: allow-listed events, workers that left, shutdowns."""

from __future__ import annotations

from sqlalchemy import and_, func

from daskscope_service.db.schema import cluster, event, shutdown, worker_loss
from daskscope_service.db.scope import Item, Page, Scope, Selection, page, rows_in_order
from daskscope_service.queries.scan_filter import Scanned, scan

_OF_EVENT = [column for column in event.c if column is not event.c.user]

_OF_LOSS = [column for column in worker_loss.c if column is not worker_loss.c.log]

#: The most worker losses of one cluster that are shown at once, the newest first.
MOST_LOSSES = 200
#: How many of a cluster's worker losses, the newest, are searched for those of a computation.
_MOST_LOOKED_AT = 2_000
#: The most shutdowns of one cluster that are shown, the newest first.
MOST_SHUTDOWNS = 50


def list_events(scope: Scope, selection: Selection) -> Page[Item]:
    """Return events by time. ``message`` is JSON text, "" if it cannot be decrypted."""
    query = scope.select(event, *_OF_EVENT, cluster.c.name.label("cluster_name")).join(
        cluster,
        and_(cluster.c.workspace == event.c.workspace, cluster.c.id == event.c.cluster),
    )
    if selection.user is not None:
        query = query.where(event.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, event.c.cluster))
    listed = page(scope, query, selection, event.c.at, "id", "cluster")
    return Page([row | {"message": row["message"] or ""} for row in listed.items], listed.next)


def list_worker_losses(scope: Scope, cluster_id: str, limit: int = MOST_LOSSES) -> list[Item]:
    """Return the workers that left a cluster, the newest first; fewer if rows are very large."""
    return page_of_losses(scope, Selection(cluster=cluster_id, limit=limit)).items


def page_of_losses(scope: Scope, selection: Selection) -> Page[Item]:
    """Return a page of the workers that left the cluster whose id is ``selection.cluster``."""
    of_it = worker_loss.c.cluster == selection.cluster
    keys = scope.select(worker_loss, worker_loss.c.at, worker_loss.c.id).where(of_it)
    listed = page(scope, keys, selection, worker_loss.c.at, "id")
    places = [(item["at"], item["id"]) for item in listed.items]
    rows = rows_in_order(
        scope, scope.select(worker_loss).where(of_it), "id", places, selection.limit
    )
    return Page(rows.items, rows.next or listed.next)


def losses_of_computation(
    scope: Scope, cluster_id: str, id: str, since: float, until: float
) -> list[Item]:
    """Return the lost workers that ran tasks of a computation, the oldest loss first.

    ``runs`` is how many of its task runs ended with the worker. The workers' log lines are left
    out: the cluster's page shows them.
    """
    query = (
        scope.select(worker_loss, *_OF_LOSS)
        .where(worker_loss.c.cluster == cluster_id, worker_loss.c.at.between(since, until))
        .order_by(worker_loss.c.at.desc(), worker_loss.c.id)
    )
    rows, _ = scope.first_items(query, _MOST_LOOKED_AT)
    losses = [row | {"runs": row["computations"][id]} for row in rows if id in row["computations"]]
    return losses[:MOST_LOSSES][::-1]


def count_worker_losses(scope: Scope, cluster_id: str) -> int:
    """Return how many workers left a cluster."""
    query = scope.select(worker_loss, func.count()).where(worker_loss.c.cluster == cluster_id)
    return int(scope.connection.execute(query).scalar_one())


def list_shutdowns(scope: Scope, cluster_id: str) -> list[Item]:
    """Return the announced shutdowns of a cluster, the newest first."""
    return scope.items(
        scope.select(shutdown)
        .where(shutdown.c.cluster == cluster_id)
        .order_by(shutdown.c.at.desc())
        .limit(MOST_SHUTDOWNS)
    )


def find_events(scope: Scope, selection: Selection, topic: str | None) -> Scanned:
    """Return events by time whose topic contains ``topic``, ignoring case; None is any topic.

    Only the next :data:`~daskscope_service.queries.scan_filter.MOST_SCANNED` events are searched.
    """
    if topic is None:
        page = list_events(scope, selection)
        return Scanned(page.items, page.next)
    part = topic.lower()
    return scan(
        scope,
        list_events,
        selection,
        lambda item: part in item["topic"].lower(),
        lambda item: (item["at"], item["id"], item["cluster"]),
    )
