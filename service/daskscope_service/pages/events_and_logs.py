"""The lists of events and of log records. The address holds their filters."""

from __future__ import annotations

import time

from flask import Blueprint, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope import names
from daskscope_service.accounts.access import signed_in
from daskscope_service.db.scope import reading
from daskscope_service.queries.clusters import cluster_of
from daskscope_service.queries.computations import titles_of
from daskscope_service.queries.events import find_events
from daskscope_service.queries.logs import LEVELS, LogFilter, list_logs
from daskscope_service.queries.scan_filter import Scanned
from daskscope_service.services import services
from daskscope_service.telemetry.store import Unavailable
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import ROWS_SHOWN, optional, selection

blueprint = Blueprint("records", __name__)


@blueprint.get("/events")
@signed_in
def events() -> ResponseReturnValue:
    """Show allow-listed events of all clusters, the newest first."""
    if tidy := tidied():
        return redirect(tidy)
    which = selection(beside=("topic",), rows=ROWS_SHOWN)
    topic = request.args.get("topic")
    with reading() as scope:
        page = find_events(scope, which, topic)
        cluster = cluster_of(scope, which)
    return render_template(
        "events.html", now=time.time(), page=page, which=which, topic=topic, cluster=cluster
    )


@blueprint.get("/logs")
@signed_in
def logs() -> ResponseReturnValue:
    """Show log records of all clusters, the newest first."""
    if tidy := tidied():
        return redirect(tidy)
    which = selection(beside=("level", "text", "computation"), rows=ROWS_SHOWN)
    level = optional("level", tuple(LEVELS))
    sought = LogFilter(level, request.args.get("text"), request.args.get("computation"))
    read = services().read_logs
    no_logs = ""
    with reading() as scope:
        try:
            page = list_logs(scope, which, sought, read)
        except Unavailable as error:
            page, no_logs = Scanned([], None), str(error)
        cluster = cluster_of(scope, which)
        titles = {}
        if cluster is not None and sought.computation:
            titles = titles_of(scope, cluster.id, [sought.computation])
    return render_template(
        "logs.html",
        title=titles.get(sought.computation or "", "one computation"),
        now=time.time(),
        page=page,
        no_logs=no_logs,
        which=which,
        sought=sought,
        levels=tuple(LEVELS),
        names=names,
        cluster=cluster,
    )
