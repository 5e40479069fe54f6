"""The pages about clusters, computations and failures.

Each page is complete as the server sends it. Scripts only refresh it.
"""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Response, g, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import may_act, signed_in
from daskscope_service.costs.prices import THINGS
from daskscope_service.db.scope import Selection, encode_cursor, reading
from daskscope_service.findings.computation_parameters import OF_COMPUTATIONS, asked_computations
from daskscope_service.findings.rule_parameter import RULE_NAMES
from daskscope_service.insight.time import all_together, seconds_of
from daskscope_service.insight.verdict import why_running
from daskscope_service.pages.bars import state_bar, time_bar
from daskscope_service.pages.cluster_charts import over_time
from daskscope_service.pages.computation import computation_page
from daskscope_service.pages.source import sources
from daskscope_service.policies.queries import decisions_on, policies_for
from daskscope_service.queries.activities import list_activities
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.computation_filter import STATUSES
from daskscope_service.queries.computations import frames_of, list_computations, titles_of
from daskscope_service.queries.events import count_worker_losses, list_events, list_worker_losses
from daskscope_service.queries.failures import SORTS, list_exceptions, one_exception
from daskscope_service.queries.findings import explain_cluster
from daskscope_service.queries.profiles import has_profiles
from daskscope_service.services import services
from daskscope_service.shutdowns.queries import shutdowns_of
from daskscope_service.web import menus
from daskscope_service.web import template_filters as filters
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import ROWS_SHOWN, one_of, selection

blueprint = Blueprint(
    "pages",
    __name__,
    template_folder="templates",
    static_folder="static",
    static_url_path="/static",
)
filters.install(blueprint)
menus.install(blueprint)
blueprint.add_app_template_global(state_bar)
blueprint.add_app_template_global(time_bar)
blueprint.add_app_template_global(seconds_of)
blueprint.add_app_template_global(encode_cursor)

#: How many computations, failures, events and lost workers a cluster's page shows; the newest.
MOST_BESIDE = 20

#: The sections in the table of contents of a cluster's page: id and title. Some may be missing.
_CONTENTS = {
    "time": "Time",
    "computations": "Computations",
    "failures": "Failures",
    "losses": "Workers that left",
    "policies": "Idle policies",
    "shutdowns": "Shutdowns",
    "events": "Events",
    "environment": "Environment",
}


@blueprint.after_app_request
def keep_static(response: Response) -> Response:
    """Let browsers cache static files that have their hash in the address."""
    if request.endpoint == "pages.static" and "v" in request.args and response.status_code == 200:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


@blueprint.get("/clusters/<cluster_id>")
@signed_in
def cluster(cluster_id: str) -> ResponseReturnValue:
    """Show one cluster."""
    return cluster_page(cluster_id)


def cluster_page(cluster_id: str, span: str | None = None, most: int = MOST_BESIDE) -> str:
    """Return the page of one cluster, with at most ``most`` rows in each table.

    ``span`` is the default period of the charts: see :func:`.cluster_charts.over_time`.

    Raises
    ------
    Missing
        The workspace has no such cluster.
    """
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
        of_it = Selection(cluster=cluster_id, limit=most)
        explained = explain_cluster(scope, services().series, cluster)
        computations = list_computations(scope, of_it)
        failures = list_exceptions(scope, of_it)
        events = list_events(scope, of_it)
        losses = list_worker_losses(scope, cluster_id, most)
        lost = count_worker_losses(scope, cluster_id)
        titles = titles_of(
            scope, cluster_id, (id for loss in losses for id in loss["computations"])
        )
        shutdowns = shutdowns_of(scope, cluster_id)
        activities = list_activities(scope, cluster_id)
        profiled = has_profiles(scope, of_it)
        policies, decisions = policies_for(scope, cluster), decisions_on(scope, cluster_id)
        # htmx refreshes the page without the charts; their own script asks for new data.
        charted = None if "HX-Request" in request.headers else over_time(scope, cluster, span)
    shown = {
        "time": profiled or time_bar(all_together(activities)),
        "policies": decisions or any(one["outcome"] != "gone" for one in policies),
        "shutdowns": shutdowns,
    }
    return _page(
        "cluster.html",
        contents=[one for one in _CONTENTS.items() if shown.get(one[0], True)],
        things=THINGS,
        profiled=profiled,
        moving=cluster.status == "running",
        cluster=cluster,
        explained=explained,
        computations=computations,
        failures=failures,
        events=events,
        losses=losses,
        lost=lost,
        titles=titles,
        shutdowns=shutdowns,
        policies=policies,
        decisions=decisions,
        may_shut_down="report" not in g and may_act(g.caller, "member"),
        thread_seconds=all_together(activities),
        over_time=charted,
        why_running=why_running(cluster) if cluster.status == "running" else "",
    )


@blueprint.get("/computations")
@signed_in
def all_computations() -> ResponseReturnValue:
    """Show the computations of all clusters, page by page."""
    return _computation_list(None)


@blueprint.get("/clusters/<cluster_id>/computations")
@signed_in
def computations(cluster_id: str) -> ResponseReturnValue:
    """Show all computations of one cluster, page by page."""
    return _computation_list(cluster_id)


def _computation_list(cluster_id: str | None) -> ResponseReturnValue:
    if tidy := tidied():
        return redirect(tidy)
    beside = tuple(parameter.name for parameter in OF_COMPUTATIONS)
    which, chosen = (
        selection(cluster=cluster_id, beside=beside, rows=ROWS_SHOWN),
        asked_computations(),
    )
    with reading() as scope:
        of_cluster = None if cluster_id is None else one_cluster(scope, cluster_id)
        page = list_computations(scope, which, chosen)
    return _page(
        "computations.html",
        cluster=of_cluster,
        page=page,
        which=which,
        chosen=chosen,
        statuses=[(one, one) for one in STATUSES],
        rules=RULE_NAMES,
    )


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>")
@signed_in
def computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Show one computation."""
    return computation_page(cluster_id, computation_id)


@blueprint.get("/exceptions")
@signed_in
def exceptions() -> ResponseReturnValue:
    """Show the failures on all clusters, in groups of equal failures."""
    if tidy := tidied():
        return redirect(tidy)
    which, sort = selection(beside=("sort",), rows=ROWS_SHOWN), one_of("sort", tuple(SORTS))
    with reading() as scope:
        page = list_exceptions(scope, which, sort)
    return _page("exceptions.html", page=page, which=which, sort=sort)


@blueprint.get("/exceptions/<fingerprint>")
@signed_in
def exception(fingerprint: str) -> ResponseReturnValue:
    """Show one group of equal failures."""
    with reading() as scope:
        group = one_exception(scope, fingerprint)
        newest = group.samples[0]
        frames = frames_of(scope, newest["cluster"], newest["computation"])
    return _page(
        "exception.html",
        exception=group,
        frame=frames[-1] if frames else None,
        source=sources(frames)[-1] if frames else None,
    )


def _page(template: str, **values: Any) -> str:
    return render_template(template, now=time.time(), **values)
