"""The reading endpoints: clusters, computations, exceptions, events, time series."""

from __future__ import annotations

import time
from dataclasses import asdict, replace

from flask import Blueprint, current_app, g, request

from daskscope import api_types as types
from daskscope_service.accounts.access import require
from daskscope_service.costs.spending import first_monday
from daskscope_service.costs.usage import list_usage
from daskscope_service.db.scope import Item, reading
from daskscope_service.findings.computation_parameters import OF_COMPUTATIONS, asked_computations
from daskscope_service.findings.rule_parameter import FINDING, asked_rule
from daskscope_service.insight.views import (
    ClusterView,
    ComputationView,
    ExceptionDetail,
    ExceptionGroup,
)
from daskscope_service.queries.activities import list_activities, list_profiles, one_profile
from daskscope_service.queries.cluster_filter import cluster_id_called
from daskscope_service.queries.clusters import list_clusters, one_cluster
from daskscope_service.queries.computations import list_computations, one_computation
from daskscope_service.queries.events import list_events, list_shutdowns, list_worker_losses
from daskscope_service.queries.failures import SORTS, list_exceptions, one_exception
from daskscope_service.queries.findings import explain_cluster, explain_computation
from daskscope_service.queries.logs import LEVELS, LogFilter, list_logs
from daskscope_service.queries.task_streams import list_task_streams
from daskscope_service.services import services
from daskscope_service.telemetry.store import Unavailable, rate
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import (
    LIST,
    OF_CLUSTER,
    SINCE,
    TEXT,
    UNTIL,
    Parameter,
    bad,
    number,
    one_of,
    optional,
    period,
    required,
    selection,
)
from daskscope_service.web.representation import as_item, away, page_answer, page_url

blueprint = Blueprint("reads", __name__, url_prefix="/api/v1")

#: How far back a time series goes if the request does not say.
DEFAULT_SERIES_SECONDS = 3600.0

#: A step of more than a century is a mistake.
_MOST_STEP = 4e9

_WEEKS = Parameter(
    "weeks",
    "How many weeks, starting on Monday in UTC, this week included.",
    {"type": "integer", "minimum": 1, "maximum": 104, "default": 8},
)

_SERIES = (
    Parameter(
        "cluster",
        "The cluster's id or name. A name selects the newest cluster with that name.",
        {"type": "string", "minLength": 1},
        required=True,
    ),
    Parameter(
        "metric",
        "The metric's name, for example dask.worker.count.",
        {"type": "string", "minLength": 1},
        required=True,
    ),
    SINCE,
    UNTIL,
    Parameter(
        "step",
        "The minimum number of seconds between two points. Over a long time the service uses "
        "a larger step.",
        {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_STEP, "default": 1},
    ),
    Parameter(
        "rate",
        "Return counters as their increase per second.",
        {"type": "boolean", "default": False},
    ),
)

_SORT = Parameter(
    "sort",
    "The order: by when a group was last or first seen, the newest first; or by how often, or on "
    "how many clusters, the most first.",
    {"enum": list(SORTS), "default": "last"},
)

_FILTERS = tuple(parameter.name for parameter in OF_COMPUTATIONS)

_OF_LOGS = (
    Parameter("level", "Only records of this level or above.", {"enum": list(LEVELS)}),
    Parameter("text", "Only records that contain this text, in upper or lower case.", TEXT),
    Parameter("computation", "Only records of the computation with this id.", TEXT),
)


@blueprint.get("/clusters")
@require("read")
@answers(types.Page[types.Cluster], *LIST, FINDING)
def clusters() -> Item:
    """Answer with clusters by the time they started."""
    which, rule = selection(beside=(FINDING.name,)), asked_rule()
    with reading() as scope:
        return page_answer(list_clusters(scope, which, rule), _cluster_url)


@blueprint.get("/clusters/<cluster_id>")
@require("read")
@answers(types.ClusterDetail, problems=(409,))
def cluster(cluster_id: str) -> Item:
    """Answer with one cluster: workers that left it, its threads' time, and what stands out.

    In this and all addresses below `/clusters/`, a cluster's name will do instead of its id, if
    only one cluster has it.
    """
    with reading() as scope:
        cluster_id = cluster_id_called(scope, cluster_id)
        view = one_cluster(scope, cluster_id)
        return {
            **as_item(view),
            "worker_losses": list_worker_losses(scope, cluster_id),
            "shutdowns": list_shutdowns(scope, cluster_id),
            "activities": list_activities(scope, cluster_id),
            **as_item(explain_cluster(scope, services().series, view)),
            "url": _cluster_url(view),
        }


@blueprint.get("/clusters/<cluster_id>/computations")
@require("read")
@answers(types.Page[types.Computation], *OF_CLUSTER, *OF_COMPUTATIONS, problems=(409,))
def cluster_computations(cluster_id: str) -> Item:
    """Answer with a cluster's computations, by default by the time they started."""
    which, some = selection(cluster=cluster_id, beside=_FILTERS), asked_computations()
    with reading() as scope:
        which = replace(which, cluster=one_cluster(scope, cluster_id_called(scope, cluster_id)).id)
        return page_answer(list_computations(scope, which, some), _computation_url)


@blueprint.get("/computations")
@require("read")
@answers(types.Page[types.Computation], *LIST, *OF_COMPUTATIONS)
def computations() -> Item:
    """Answer with computations of all clusters, by default by the time they started."""
    which, some = selection(beside=_FILTERS), asked_computations()
    with reading() as scope:
        return page_answer(list_computations(scope, which, some), _computation_url)


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>")
@require("read")
@answers(types.ComputationDetail, problems=(409,))
def computation(cluster_id: str, computation_id: str) -> Item:
    """Answer with one computation: its task groups, failures, code, and what stands out."""
    with reading() as scope:
        view = one_computation(scope, cluster_id_called(scope, cluster_id), computation_id)
        explained = explain_computation(scope, services().series, view)
        return {**as_item(view), **as_item(explained), "url": _computation_url(view)}


@blueprint.get("/exceptions")
@require("read")
@answers(types.Page[types.ExceptionGroup], *LIST, _SORT)
def exceptions() -> Item:
    """Answer with groups of equal failures, by default by the time they were last seen."""
    which, sort = selection(beside=(_SORT.name,)), one_of(_SORT.name, tuple(SORTS))
    with reading() as scope:
        return page_answer(list_exceptions(scope, which, sort), _exception_url)


@blueprint.get("/exceptions/<fingerprint>")
@require("read")
@answers(types.ExceptionDetail)
def exception(fingerprint: str) -> Item:
    """Answer with one group of equal failures and its newest samples."""
    with reading() as scope:
        group = one_exception(scope, fingerprint)
        return as_item(group) | {"url": _exception_url(group)}


@blueprint.get("/events")
@require("read")
@answers(types.Page[types.Event], *LIST)
def events() -> Item:
    """Answer with allow-listed events by time."""
    which = selection()
    with reading() as scope:
        return page_answer(list_events(scope, which))


@blueprint.get("/logs")
@require("read")
@answers(types.Page[types.LogRecord], *LIST, *_OF_LOGS, problems=(503,))
def logs() -> Item:
    """Answer with log records by time.

    With a level, a text, a computation or a user, some thousands of records are searched at a time,
    so a page may have few records, or none, and still a ``next``.
    """
    which = selection(beside=tuple(parameter.name for parameter in _OF_LOGS))
    level = optional("level", tuple(LEVELS))
    sought = LogFilter(level, request.args.get("text"), request.args.get("computation"))
    read = services().read_logs
    with reading() as scope:
        try:
            return page_answer(list_logs(scope, which, sought, read))
        except Unavailable as error:
            raise away("log records", error) from None


@blueprint.get("/profiles")
@require("read")
@answers(types.Page[types.ProfileSummary], *LIST)
def profiles() -> Item:
    """Answer with profiles by the time they began, without their trees."""
    which = selection()
    with reading() as scope:
        return page_answer(list_profiles(scope, which))


@blueprint.get("/clusters/<cluster_id>/profiles/<profile_id>")
@require("read")
@answers(types.ProfileDetail, problems=(409,))
def profile(cluster_id: str, profile_id: str) -> Item:
    """Answer with one profile: a tree in columns, see ``daskscope.protocol.Profile``."""
    with reading() as scope:
        return one_profile(scope, cluster_id_called(scope, cluster_id), profile_id)


@blueprint.get("/clusters/<cluster_id>/stream")
@require("read")
@answers(types.Page[types.TaskStream], *OF_CLUSTER, problems=(409,))
def task_stream(cluster_id: str) -> Item:
    """Answer with the runs of a cluster's tasks, interval by interval, the newest first.

    A page may have fewer intervals than asked for, if they have many runs, and still a ``next``.
    """
    which = selection(cluster=cluster_id)
    with reading() as scope:
        which = replace(which, cluster=one_cluster(scope, cluster_id_called(scope, cluster_id)).id)
        return page_answer(list_task_streams(scope, which))


@blueprint.get("/usage")
@require("read")
@answers(types.Page[types.Usage], _WEEKS)
def usage() -> Item:
    """Answer with the usage and cost of each user's clusters in each of the last weeks.

    For a running cluster, the last minute may be missing.
    """
    weeks = _WEEKS.whole_number()
    first = first_monday(time.time(), weeks)
    with reading() as scope:
        used = list_usage(scope, first, weeks, 7)
    starts = [86400.0 * (first + 7 * week) for week in range(weeks)]
    items = [as_item(one) | {"week_started_at": starts[one.period]} for one in used]
    return {"items": items, "next": None}


@blueprint.get("/series")
@require("read")
@answers(types.Lines, *_SERIES, problems=(503,))
def series() -> Item:
    """Answer with the lines of one metric of one cluster, by default for the last hour."""
    called = required("cluster", "a cluster's id or name")
    metric = required("metric", "a metric's name, for example dask.worker.count")
    since, until = period()
    until = time.time() if until is None else until
    since = until - DEFAULT_SERIES_SECONDS if since is None else since
    step = number("step", 1.0)
    if not 0 < step <= _MOST_STEP:
        raise bad("step", f"must be a number of seconds above 0 and at most {_MOST_STEP:g}")
    as_rate = one_of("rate", ("false", "true")) == "true"
    with reading() as scope:
        cluster_id = scope.called(called)[0]
    store = services().series
    try:
        lines = store.query(g.workspace, cluster_id, [metric], since, until, step)[metric]
    except Unavailable as error:
        raise away("time series", error) from None
    return {"items": [asdict(rate(line) if as_rate else line) for line in lines]}


def _cluster_url(view: ClusterView) -> str:
    return _url("cluster", cluster_id=view.id)


def _computation_url(view: ComputationView) -> str:
    return _url("computation", cluster_id=view.cluster, computation_id=view.id)


def _exception_url(group: ExceptionGroup | ExceptionDetail) -> str:
    return _url("exception", fingerprint=group.fingerprint)


def _url(endpoint: str, **values: str) -> str:
    return page_url(current_app.config["SETTINGS"], endpoint, **values)
