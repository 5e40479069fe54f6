"""Shutdowns: who requested them, and their status."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, and_

from daskscope_service.db.schema import cluster, command, shutdown
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.insight.verdict import OF_VERDICT, cluster_verdict
from daskscope_service.insight.views import ShutdownView
from daskscope_service.queries.events import MOST_SHUTDOWNS, list_shutdowns
from daskscope_service.shutdowns.verdict import is_over, shutdown_verdict
from daskscope_service.web.fields import Missing

#: The columns of ``command``, for a shutdown that the cluster decided on by itself.
_OWN: Item = {column.name: None for column in command.c} | {"even_if_busy": False}


def list_commands(scope: Scope, selection: Selection) -> Page[ShutdownView]:
    """Return the shutdowns that people and policies requested, by time of the request."""
    query = _asked_for(scope)
    query = query.where(scope.is_of(selection.cluster, command.c.cluster))
    if selection.user is not None:
        query = query.where(cluster.c.user == selection.user)
    listed = page(scope, query, selection, command.c.requested_at, "id")
    return Page([_view(scope, row) for row in listed.items], listed.next)


def one_command(scope: Scope, id: str) -> ShutdownView:
    """Return one shutdown that was requested. Raises Missing."""
    rows = scope.items(_asked_for(scope).where(command.c.id == id))
    if not rows:
        raise Missing("command", id)
    return _view(scope, rows[0])


def shutdowns_of(scope: Scope, cluster_id: str) -> list[ShutdownView]:
    """Return all shutdowns of a cluster, also those by its own settings, the newest first."""
    of_cluster = scope.select(cluster, *_cluster_columns()).where(cluster.c.id == cluster_id)
    known_cluster = scope.items(of_cluster)
    asked = list_commands(scope, Selection(cluster=cluster_id, limit=MOST_SHUTDOWNS)).items
    known = {one.id for one in asked}
    own = [
        _view(scope, _OWN | item | known_cluster[0] | {"requested_at": item["at"]})
        for item in list_shutdowns(scope, cluster_id)
        if item["id"] not in known and known_cluster
    ]
    together = sorted(asked + own, key=lambda one: float(one.requested_at), reverse=True)
    return together[:MOST_SHUTDOWNS]


def _asked_for(scope: Scope) -> Select[Any]:
    answer = (shutdown.c.state, shutdown.c.at, shutdown.c.closes_at, shutdown.c.detail)
    return (
        scope.select(command, *command.c, *answer, *_cluster_columns())
        .join(
            cluster,
            and_(cluster.c.workspace == command.c.workspace, cluster.c.id == command.c.cluster),
        )
        .outerjoin(
            shutdown,
            and_(
                shutdown.c.workspace == command.c.workspace,
                shutdown.c.cluster == command.c.cluster,
                shutdown.c.id == command.c.id,
            ),
        )
    )


def _cluster_columns() -> list[Any]:
    named = [cluster.c[name].label(f"cluster_{name}") for name in OF_VERDICT]
    return [*named, cluster.c.name.label("cluster_name")]


def _view(scope: Scope, row: Item) -> ShutdownView:
    its_cluster = {name: row[f"cluster_{name}"] for name in OF_VERDICT}
    of_cluster = cluster_verdict(its_cluster, scope.now, scope.silent_after)
    verdict = shutdown_verdict(row, of_cluster, scope.now)
    gone = of_cluster.status in ("stopped", "ended")
    # A shutdown by the cluster's own settings has no expiry; only work calls it off.
    over = gone or row["expires_at"] is None or is_over(row, scope.now)
    made = {"open": not over, "answered_at": row["at"]}
    return ShutdownView.of(row | made | {"status": verdict.status, "sentence": verdict.sentence})
