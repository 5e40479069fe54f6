"""The list of clusters in a workspace. The address holds its filters, its order and the page."""

from __future__ import annotations

import dataclasses
import time

from flask import Blueprint, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.accounts.first_run import first_run
from daskscope_service.db.scope import Selection, reading
from daskscope_service.findings.rule_parameter import RULE_NAMES, asked_rule
from daskscope_service.insight.views import idle_share
from daskscope_service.pages.csv_downloads import CAUSE
from daskscope_service.queries.cluster_filter import (
    SORTS,
    STATUSES,
    ClusterFilter,
    find_clusters,
    is_tag,
    tag_filter,
)
from daskscope_service.web.downloads import csv_list, make_columns
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import ROWS_SHOWN, bad, one_of, optional, selection

blueprint = Blueprint("cluster_list", __name__)

#: The values of the parameter ``within``: clusters that started in the last so many seconds.
WITHIN = {"day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0}

_OURS = ("status", "name", "kind", "tag", "finding", "sort", "within")

_CSV = make_columns(
    "id name status user kind host started_at stopped_at up_seconds=duration workers peak_workers",
    "threads peak_threads peak_memory_bytes=peak_memory_used memory_limit_bytes=memory_limit",
    "computations failures cost idle_cost",
    {"currency": lambda item: (item["prices"] or {}).get("currency")},
    "price_source",
    {"idle_share": lambda item: idle_share(item["worker_seconds"])},
    "tags",
    CAUSE,
    "peak_memory_limit_bytes=peak_memory_limit",
)


@blueprint.get("/clusters")
@signed_in
def clusters() -> ResponseReturnValue:
    """Show the clusters that match the filters, or how to report the first one."""
    if tidy := tidied():
        return redirect(tidy)
    selected, which = _asked_for()
    with reading() as scope:
        page = find_clusters(scope, selected, which)
    if not page.items and not request.args:
        return first_run()
    filtered = (*_OURS, "since", "until", "user", "cluster")
    return render_template(
        "clusters.html",
        now=time.time(),
        page=page,
        selected=selected,
        which=which,
        within=WITHIN,
        statuses=STATUSES,
        rules=RULE_NAMES,
        filters=[name for name in filtered if name != "sort" and name in request.args],
        query=request.query_string.decode(),
        tag_filter=tag_filter,
    )


@blueprint.get("/clusters.csv")
@signed_in
def clusters_csv() -> ResponseReturnValue:
    """Answer with the clusters that match the filters, as CSV."""
    selected, which = _asked_for()
    return csv_list(
        _CSV, lambda scope, some: find_clusters(scope, some, which), selected, "clusters"
    )


def _asked_for() -> tuple[Selection, ClusterFilter]:
    selected = selection(beside=_OURS, rows=ROWS_SHOWN)
    if "within" in request.args and selected.since is None:
        seconds = WITHIN[one_of("within", tuple(WITHIN))]
        selected = dataclasses.replace(selected, since=time.time() - seconds)
    tag = request.args.get("tag")
    if tag is not None and not is_tag(tag):
        raise bad("tag", "must be a tag's name, or name=value, without quotes and backslashes")
    return selected, ClusterFilter(
        status=optional("status", STATUSES),
        name=request.args.get("name"),
        kind=request.args.get("kind"),
        tag=tag,
        finding=asked_rule(),
        sort=one_of("sort", tuple(SORTS)),
    )
