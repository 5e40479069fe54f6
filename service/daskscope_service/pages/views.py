"""The pages. Each is complete as the server sends it; scripts only keep it fresh."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Response, current_app, g, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import may_act, signed_in
from daskscope_service.api.parameters import one_of, selection
from daskscope_service.insight.time import all_together, seconds_of
from daskscope_service.insight.verdict import last_known
from daskscope_service.pages import charts, filters
from daskscope_service.pages.bars import state_bar, time_bar
from daskscope_service.pages.graph import layout
from daskscope_service.problems import Problem
from daskscope_service.reads.activities import list_activities
from daskscope_service.reads.clusters import list_clusters, one_cluster
from daskscope_service.reads.computations import list_computations, one_computation
from daskscope_service.reads.events import list_events, list_worker_losses
from daskscope_service.reads.failures import list_exceptions, one_exception
from daskscope_service.reads.policies import decisions_on, policies_for
from daskscope_service.reads.scope import Item, Selection, encode_cursor, reading
from daskscope_service.reads.shutdowns import shutdowns_of
from daskscope_service.settings import Settings

blueprint = Blueprint(
    "pages",
    __name__,
    template_folder="templates",
    static_folder="static",
    static_url_path="/static",
)
filters.install(blueprint)
blueprint.add_app_template_global(state_bar)
blueprint.add_app_template_global(time_bar)
blueprint.add_app_template_global(seconds_of)
blueprint.add_app_template_global(encode_cursor)

#: Failures, events and the like that a cluster's page shows; the newest first.
MOST_BESIDE = 20

#: How far back the charts go, by the word in the address.
SPANS = {"hour": 3600.0, "day": 86400.0, "life": None}


@blueprint.after_app_request
def keep_static(response: Response) -> Response:
    """Let browsers keep what has its own hash in its address."""
    if request.endpoint == "pages.static" and "v" in request.args and response.status_code == 200:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


@blueprint.get("/")
@signed_in
def clusters() -> ResponseReturnValue:
    """Show the clusters of the workspace, or how to report the first one."""
    which = selection()
    with reading() as scope:
        page = list_clusters(scope, which)
    if not page.items and which == Selection():
        return _page("first_run.html", url=_settings().url)
    return _page("clusters.html", page=page, which=which)


@blueprint.get("/clusters/<cluster_id>")
@signed_in
def cluster(cluster_id: str) -> ResponseReturnValue:
    """Show one cluster."""
    span = one_of("span", tuple(SPANS))
    with reading() as scope:
        found = one_cluster(scope, cluster_id)
        if found is None:
            raise _missing("cluster", cluster_id)
        of_it = Selection(cluster=cluster_id, limit=MOST_BESIDE)
        computations = list_computations(scope, of_it)
        failures = list_exceptions(scope, of_it)
        events = list_events(scope, of_it)
        losses = list_worker_losses(scope, cluster_id)
        shutdowns = shutdowns_of(scope, cluster_id)
        activities = list_activities(scope, cluster_id)
        policies, decisions = policies_for(scope, found), decisions_on(scope, cluster_id)
    since, until = _charted(found, SPANS[span])
    store = current_app.extensions["daskscope.series"]
    return _page(
        "cluster.html",
        moving=found["status"] == "running",
        cluster=found,
        computations=computations,
        failures=failures,
        events=events,
        losses=losses,
        shutdowns=shutdowns,
        policies=policies,
        decisions=decisions,
        may_shut_down=may_act(g.session, "member"),
        thread_seconds=all_together(activities),
        span=span,
        spans=SPANS,
        sparklines=charts.sparklines(store, g.workspace, cluster_id, since, until),
        chart_data={
            "cluster": cluster_id,
            "charts": charts.for_script(),
            "since": since,
            "until": until,
            "started_at": found["started_at"],
            "span": SPANS[span],
            "live": found["status"] == "running",
        },
    )


@blueprint.get("/clusters/<cluster_id>/computations")
@signed_in
def computations(cluster_id: str) -> ResponseReturnValue:
    """Show all computations of one cluster, page by page."""
    which = selection(cluster=cluster_id)
    with reading() as scope:
        found = one_cluster(scope, cluster_id)
        if found is None:
            raise _missing("cluster", cluster_id)
        page = list_computations(scope, which)
    return _page("computations.html", cluster=found, page=page, which=which)


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>")
@signed_in
def computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Show one computation."""
    with reading() as scope:
        found = one_computation(scope, cluster_id, computation_id)
    if found is None:
        raise _missing("computation", computation_id)
    return _page(
        "computation.html",
        moving=found["status"] == "running",
        computation=found,
        graph=layout(found["task_groups"]),
    )


@blueprint.get("/exceptions")
@signed_in
def exceptions() -> ResponseReturnValue:
    """Show failures over all clusters, equal ones together."""
    which = selection()
    with reading() as scope:
        page = list_exceptions(scope, which)
    return _page("exceptions.html", page=page, which=which)


@blueprint.get("/exceptions/<fingerprint>")
@signed_in
def exception(fingerprint: str) -> ResponseReturnValue:
    """Show one group of equal failures."""
    with reading() as scope:
        found = one_exception(scope, fingerprint)
    if found is None:
        raise _missing("exception", fingerprint)
    return _page("exception.html", exception=found)


def _page(template: str, **values: Any) -> str:
    return render_template(template, now=time.time(), **values)


def _settings() -> Settings:
    settings: Settings = current_app.config["SETTINGS"]
    return settings


def _missing(what: str, id: str) -> Problem:
    return Problem(
        404,
        f"This workspace has no {what} {id}. Perhaps it belongs to another workspace.",
        title="Not found",
    )


def _charted(found: Item, seconds: float | None) -> tuple[float, float]:
    """Return the time that a cluster's charts show: its last ``seconds``, or all of its life."""
    until = time.time() if found["status"] == "running" else last_known(found)
    since = found["started_at"]
    if seconds is not None:
        since = max(since, until - seconds)
    return since, max(until, since + 1)
