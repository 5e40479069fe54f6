"""Reports for programs with a token: the same files as from the pages."""

from __future__ import annotations

from flask import Blueprint, Response

from daskscope_service.accounts.access import require
from daskscope_service.db.scope import reading
from daskscope_service.pages import report
from daskscope_service.queries.cluster_filter import cluster_id_called
from daskscope_service.web.operation import Operation, describes
from daskscope_service.web.parameters import Parameter

blueprint = Blueprint("reports", __name__, url_prefix="/api/v1")

_CODE = Parameter(
    "code",
    "Include users' code, and the tracebacks and log lines that may quote it.",
    {"type": "boolean", "default": False},
)
_SPAN = Parameter(
    "span",
    "How much time the charts cover, up to the cluster's last heartbeat.",
    {"enum": ["life", "day", "hour", "quarter"], "default": "life"},
)


@blueprint.get("/clusters/<cluster_id>/report")
@require("read")
@describes(Operation({"text/html": None}, (_CODE, _SPAN), problems=(400, 409)))
def cluster(cluster_id: str) -> Response:
    """Answer with the report of a cluster: its page as one file, to send to someone."""
    return report.cluster_report(_id_of(cluster_id))


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/report")
@require("read")
@describes(Operation({"text/html": None}, (_CODE,), problems=(400, 409)))
def computation(cluster_id: str, computation_id: str) -> Response:
    """Answer with the report of a computation: its page as one file, to send to someone."""
    return report.computation_report(_id_of(cluster_id), computation_id)


def _id_of(asked: str) -> str:
    with reading() as scope:
        return cluster_id_called(scope, asked)
