"""The endpoint of traces: the spans of one computation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import Blueprint, g

from daskscope import api_types as types
from daskscope_service.accounts.access import require
from daskscope_service.db.scope import Item, reading
from daskscope_service.queries.cluster_filter import cluster_id_called
from daskscope_service.queries.computations import trace_id_of
from daskscope_service.services import services
from daskscope_service.telemetry.spans import Trace
from daskscope_service.telemetry.store import Unavailable
from daskscope_service.web.operation import answers
from daskscope_service.web.problems import Problem

blueprint = Blueprint("traces", __name__, url_prefix="/api/v1")


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/trace")
@require("read")
@answers(types.Trace, problems=(409, 503))
def trace(cluster_id: str, computation_id: str) -> Item:
    """Answer with a computation's spans: its own, its task groups', and those of sampled tasks.

    The cluster sends them by OTLP once the computation has ended. There are none if OTLP is off or
    goes elsewhere.
    """
    with reading() as scope:
        trace_id = trace_id_of(scope, cluster_id_called(scope, cluster_id), computation_id)
    reader = services().spans
    try:
        read = reader.of_computation(g.workspace, trace_id, computation_id) if trace_id else Trace()
    except Unavailable as error:
        raise Problem(
            503,
            f"Traces are stored in InfluxDB, which is unavailable: {error}. Everything else works.",
            title="No traces",
            headers={"Retry-After": "10"},
        ) from None
    spans: list[dict[str, Any]] = []
    for span in read.spans:
        one = asdict(span)
        why = one.pop("unreadable")
        spans.append(one | {"unreadable": {"attributes": why}} if why else one)
    return {"trace_id": trace_id or None, "spans": spans, "more": read.more}
