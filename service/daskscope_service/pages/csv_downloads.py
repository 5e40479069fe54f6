"""The pages' tables as CSV files. Each takes the filters of its page; its address ends in .csv."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, request
from flask.typing import ResponseReturnValue

from daskscope import names, protocol
from daskscope_service.accounts.access import signed_in
from daskscope_service.db.scope import Item, Page, Scope, Selection, reading
from daskscope_service.findings.computation_parameters import OF_COMPUTATIONS, asked_computations
from daskscope_service.insight.time import seconds_of
from daskscope_service.insight.views import ComputationDetail
from daskscope_service.policies.queries import list_decisions
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.computations import list_computations, one_computation
from daskscope_service.queries.events import find_events, page_of_losses
from daskscope_service.queries.failures import SORTS, list_exceptions, one_exception
from daskscope_service.queries.logs import LEVELS, LogFilter, list_logs
from daskscope_service.services import services
from daskscope_service.shutdowns.queries import shutdowns_of
from daskscope_service.telemetry.store import Unavailable
from daskscope_service.web.downloads import CsvColumns, csv_list, csv_table, make_columns
from daskscope_service.web.parameters import one_of, optional, refuse_unknown, selection
from daskscope_service.web.representation import away

blueprint = Blueprint("tables", __name__)


def _seconds(*activities: str) -> Callable[[Item], object]:
    return lambda item: seconds_of(item["seconds"], *activities)


def _joined(name: str) -> Callable[[Item], object]:
    return lambda item: ", ".join(item[name])


def _attribute(name: str) -> Callable[[Item], object]:
    return lambda item: (item["attributes"] or {}).get(name)


#: The columns for the most important finding about a computation or a cluster.
CAUSE: CsvColumns = {
    "finding": lambda item: (item["cause"] or {}).get("rule"),
    "finding_severity": lambda item: (item["cause"] or {}).get("severity"),
    "finding_sentence": lambda item: (item["cause"] or {}).get("sentence"),
}

_TASKS = make_columns("tasks tasks_done=done tasks_erred=erred task_runs_completed=completed")

_SECONDS: CsvColumns = {
    "compute_seconds": _seconds("compute"),
    "transfer_seconds": _seconds("transfer"),
    "disk_seconds": _seconds("disk-read", "disk-write"),
    "seconds_by_activity": "seconds",
}

COMPUTATIONS = make_columns(
    "id cluster cluster_name user status title call started_at stopped_at took_seconds=duration",
    _TASKS,
    "tasks_tried_again=retried tasks_cancelled=cancelled",
    _SECONDS,
    "graph_bytes annotations",
    CAUSE,
    "job",
    of=protocol.Computation,
    without="states frames spans trace_id",
)

WORKERS = make_columns(
    "worker task_runs=runs compute_seconds=seconds usual_seconds longest_run_seconds=longest"
)

TASK_GROUPS = make_columns(
    "name prefix",
    _TASKS,
    "tasks_by_state=states",
    _SECONDS,
    "output_bytes shortest_task_seconds=shortest longest_task_seconds=longest",
    "started_at stopped_at",
    {"needs": _joined("dependencies")},
    of=protocol.TaskGroup,
    without="computation durations dependencies types retried",
)

EXCEPTIONS = make_columns(
    "fingerprint type function message count clusters",
    {"users": _joined("users")},
    "first_at last_at",
)

FAILURES = make_columns(
    "fingerprint cluster cluster_name computation user type function message count",
    "first_at last_at first_on_worker=worker traceback",
    of=protocol.Failure,
    without="retried",
)

LOSSES = make_columns(
    "worker=name address at reason expected lifetime_seconds=lifetime",
    "tasks=processing tasks_by_prefix=tasks memory_used_bytes=memory_used",
    "memory_limit_bytes=memory_limit nanny_memory_bytes=nanny_memory last_seen_at",
    of=protocol.WorkerLoss,
    without="id log",
)

DECISIONS = make_columns("at cluster policy decision=outcome why=sentence")

SHUTDOWNS = make_columns(
    "id cluster status requested_by reason requested_at delivered_at closes_at",
    "called_off_by called_off_at what_became_of_it=sentence",
)

EVENTS = make_columns(
    "id at topic message message_cut=cut cluster cluster_name",
    of=protocol.Event,
)

LOGS = make_columns(
    "id at level record=body event=event_name",
    {
        "logger": _attribute(names.LOGGER),
        "worker": _attribute(names.WORKER_ADDRESS),
        "computation": _attribute(names.COMPUTATION_ID),
    },
    "cluster cluster_name user",
)


@blueprint.get("/computations.csv")
@signed_in
def computations() -> ResponseReturnValue:
    """Answer with computations, filtered and sorted as the address asks."""
    which = selection(beside=tuple(parameter.name for parameter in OF_COMPUTATIONS))
    chosen = asked_computations()
    return csv_list(
        COMPUTATIONS,
        lambda scope, some: list_computations(scope, some, chosen),
        which,
        "computations",
        "-".join(filter(None, (chosen.status, chosen.finding))),
    )


@blueprint.get("/exceptions.csv")
@signed_in
def exceptions() -> ResponseReturnValue:
    """Answer with groups of equal failures, filtered and sorted as the address asks."""
    which, sort = selection(beside=("sort",)), one_of("sort", tuple(SORTS))
    return csv_list(
        EXCEPTIONS, lambda scope, some: list_exceptions(scope, some, sort), which, "exceptions"
    )


@blueprint.get("/exceptions/<fingerprint>/failures.csv")
@signed_in
def failures_of_group(fingerprint: str) -> ResponseReturnValue:
    """Answer with the newest failures of one group of equal failures."""
    refuse_unknown()
    with reading() as scope:
        group = one_exception(scope, fingerprint)
    return csv_table(FAILURES, group.samples, "failures", fingerprint)


@blueprint.get("/events.csv")
@signed_in
def events() -> ResponseReturnValue:
    """Answer with allow-listed events, the newest first."""
    which, topic = selection(beside=("topic",)), request.args.get("topic")
    return csv_list(
        EVENTS, lambda scope, some: find_events(scope, some, topic), which, "events", topic or ""
    )


@blueprint.get("/logs.csv")
@signed_in
def logs() -> ResponseReturnValue:
    """Answer with log records, the newest first."""
    which = selection(beside=("level", "text", "computation"))
    level = optional("level", tuple(LEVELS))
    sought = LogFilter(level, request.args.get("text"), request.args.get("computation"))
    kept = services().read_logs

    def read(scope: Scope, some: Selection) -> Page[Item]:
        return list_logs(scope, some, sought, kept)

    try:
        return csv_list(LOGS, read, which, "logs", level or "")
    except Unavailable as error:
        raise away("log records", error) from None


@blueprint.get("/clusters/<cluster_id>/workers-lost.csv")
@signed_in
def losses(cluster_id: str) -> ResponseReturnValue:
    """Answer with the workers that left a cluster, the newest first."""
    with reading() as scope:
        one_cluster(scope, cluster_id)  # raises Missing
    return csv_list(LOSSES, page_of_losses, selection(cluster=cluster_id), "workers-lost")


@blueprint.get("/clusters/<cluster_id>/shutdowns.csv")
@signed_in
def shutdowns(cluster_id: str) -> ResponseReturnValue:
    """Answer with the shutdowns of a cluster, the newest first."""
    refuse_unknown()
    with reading() as scope:
        one_cluster(scope, cluster_id)  # raises Missing
        items = shutdowns_of(scope, cluster_id)
    return csv_table(SHUTDOWNS, items, "shutdowns", cluster_id)


@blueprint.get("/clusters/<cluster_id>/decisions.csv")
@signed_in
def decisions(cluster_id: str) -> ResponseReturnValue:
    """Answer with what idle policies decided about a cluster, the newest first."""
    return csv_list(DECISIONS, list_decisions, selection(cluster=cluster_id), "decisions")


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/task-groups.csv")
@signed_in
def task_groups(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Answer with the task groups of a computation."""
    computation = _computation(cluster_id, computation_id)
    return csv_table(
        TASK_GROUPS, computation.task_groups, "task-groups", cluster_id, computation_id
    )


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/workers.csv")
@signed_in
def workers_of_computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Answer with what workers did for a computation."""
    computation = _computation(cluster_id, computation_id)
    return csv_table(WORKERS, computation.worker_shares, "workers", cluster_id, computation_id)


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/failures.csv")
@signed_in
def failures_of_computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Answer with the failures of a computation."""
    computation = _computation(cluster_id, computation_id)
    whose = {name: computation[name] for name in ("cluster", "cluster_name", "user")}
    items = [failure | whose | {"computation": computation_id} for failure in computation.failures]
    return csv_table(FAILURES, items, "failures", cluster_id, computation_id)


def _computation(cluster_id: str, computation_id: str) -> ComputationDetail:
    refuse_unknown()
    with reading() as scope:
        return one_computation(scope, cluster_id, computation_id)
