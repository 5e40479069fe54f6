"""Reports: the page of a cluster or of a computation as one file, to send to someone.

A report is the page's own template on the base ``report.html``, so it contains all that the page
shows without JavaScript. Each report is recorded in the audit log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from flask import Blueprint, Response, current_app, g, render_template, url_for
from flask.typing import ResponseReturnValue

from daskscope.version import __version__
from daskscope_service.accounts import audit
from daskscope_service.accounts.access import signed_in
from daskscope_service.db.engine import writing
from daskscope_service.db.scope import reading
from daskscope_service.insight.views import ClusterView, ComputationDetail
from daskscope_service.pages.computation import computation_page
from daskscope_service.pages.views import cluster_page
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.computations import one_computation
from daskscope_service.services import services
from daskscope_service.web.downloads import attach
from daskscope_service.web.parameters import one_of, refuse_unknown

blueprint = Blueprint("report", __name__)

#: How many computations, failures and events a cluster's report shows; the newest ones.
MOST_ROWS = 100

_STYLE = Path(__file__).with_name("static") / "app.css"


@dataclass(frozen=True, slots=True)
class Report:
    """What a report states about itself. ``code``: it contains users' code."""

    what: str
    cluster: ClusterView
    made_at: float
    made_by: str
    service: str
    code: bool
    style: str
    version: str = __version__


@blueprint.get("/clusters/<cluster_id>/report")
@signed_in
def of_cluster(cluster_id: str) -> ResponseReturnValue:
    """Ask whether the report of a cluster may contain users' code."""
    return _question(_cluster(cluster_id), None)


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/report")
@signed_in
def of_computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Ask whether the report of a computation may contain users' code."""
    cluster = _cluster(cluster_id)
    with reading() as scope:
        computation = one_computation(scope, cluster_id, computation_id)
    return _question(cluster, computation)


@blueprint.get("/clusters/<cluster_id>/report.html")
@signed_in
def cluster_file(cluster_id: str) -> ResponseReturnValue:
    """Answer with the report of a cluster as a file."""
    return cluster_report(cluster_id)


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/report.html")
@signed_in
def computation_file(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Answer with the report of a computation as a file."""
    return computation_report(cluster_id, computation_id)


def cluster_report(cluster_id: str) -> Response:
    """Return the report of a cluster; the address says whether with code, and for which ``span``.

    Raises
    ------
    Missing
        The workspace has no such cluster.
    """
    refuse_unknown("code", "span")
    cluster = _cluster(cluster_id)
    return _report("cluster", cluster, "", lambda: cluster_page(cluster_id, "life", MOST_ROWS))


def computation_report(cluster_id: str, computation_id: str) -> Response:
    """Return the report of a computation; the address says whether with code.

    Raises
    ------
    Missing
        The workspace has no such computation.
    """
    refuse_unknown("code")
    return _report(
        "computation",
        _cluster(cluster_id),
        computation_id,
        lambda: computation_page(cluster_id, computation_id),
    )


def _report(
    what: str, cluster: ClusterView, computation_id: str, page: Callable[[], str]
) -> Response:
    """Return the report that ``page`` renders, and record in the audit log who asked for it."""
    code = one_of("code", ("false", "true")) == "true"
    settings = current_app.config["SETTINGS"]
    now = time.time()
    g.without_code = not code
    g.report = Report(what, cluster, now, g.caller.name, settings.url, code, _style())
    html = _lead_to_service(page(), settings.url, _path(cluster.id, computation_id))
    with writing(services().engine) as connection:
        audit.write_hourly(
            connection,
            "report made",
            actor=g.caller.name,
            detail=f"of {what} {computation_id + ' of ' if computation_id else ''}{cluster['id']}, "
            f"{'with' if code else 'without'} users' code",
            workspace=g.workspace,
            address=g.caller.address,
        )
    response = Response(html, content_type="text/html; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    at = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%MZ}"
    return attach(response, "daskscope", what, cluster.name, computation_id, at, ending="html")


def _question(cluster: ClusterView, computation: ComputationDetail | None) -> str:
    refuse_unknown()
    if computation is None:
        file = url_for(".cluster_file", cluster_id=cluster.id)
    else:
        file = url_for(".computation_file", cluster_id=cluster.id, computation_id=computation.id)
    return render_template(
        "report_question.html", cluster=cluster, computation=computation, file=file
    )


def _cluster(cluster_id: str) -> ClusterView:
    with reading() as scope:
        return one_cluster(scope, cluster_id)


def _path(cluster_id: str, computation_id: str) -> str:
    if computation_id:
        return url_for("pages.computation", cluster_id=cluster_id, computation_id=computation_id)
    return url_for("pages.cluster", cluster_id=cluster_id)


def _lead_to_service(html: str, url: str, path: str) -> str:
    """Return ``html`` with absolute links, which lead to the service wherever it is opened.

    ``path`` is that of the page.
    """
    # This matches no text from users, because quotation marks in it are escaped.
    # The replacements are functions, because re would interpret backslashes in a string.
    html = re.sub(r'(\s(?:href|action)=")/', lambda match: f"{match[1]}{url}/", html)
    page = f"{url}{path}?"
    return re.sub(r'(\shref=")\?', lambda match: f"{match[1]}{page}", html)


@cache
def _style() -> str:
    return f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>"
