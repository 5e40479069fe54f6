"""The page that asks for confirmation before a cluster is shut down, and its buttons."""

from __future__ import annotations

from flask import Blueprint, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing
from daskscope_service.db.scope import reading
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown, NotPossible

blueprint = Blueprint("shutdown", __name__)

#: Characters of a reason; a longer one is cut.
LONGEST_REASON = 1000


@blueprint.get("/clusters/<cluster_id>/shutdown")
@acting_as("member")
def question(cluster_id: str) -> ResponseReturnValue:
    """Ask whether the cluster is really to be shut down."""
    return _question(cluster_id)


@blueprint.post("/clusters/<cluster_id>/shutdown")
@acting_as("member")
def answer(cluster_id: str) -> ResponseReturnValue:
    """Request the shutdown."""
    requested = NewShutdown(reason=_reason(), even_if_busy="even_if_busy" in request.form)
    try:
        with changing() as change:
            shutdowns.ask(change, cluster_id, requested)
    except NotPossible as error:
        return _question(cluster_id, 409, str(error))
    return _to_cluster(cluster_id)


@blueprint.post("/clusters/<cluster_id>/commands/<command_id>/call-off")
@acting_as("member")
def call_off(cluster_id: str, command_id: str) -> ResponseReturnValue:
    """Call a shutdown off."""
    try:
        with changing() as change:
            shutdowns.call_off(change, command_id, _reason())
    except NotPossible:
        pass  # the cluster's page shows its status
    return _to_cluster(cluster_id)


def _question(cluster_id: str, status: int = 200, wrong: str | None = None) -> tuple[str, int]:
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
    return render_template("shutdown.html", cluster=cluster, wrong=wrong), status


def _reason() -> str:
    return request.form.get("reason", "").replace("\0", "").strip()[:LONGEST_REASON]


def _to_cluster(cluster_id: str) -> ResponseReturnValue:
    return redirect(url_for("pages.cluster", cluster_id=cluster_id) + "#h-shutdowns", code=303)
