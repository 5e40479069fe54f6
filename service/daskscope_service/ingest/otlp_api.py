"""``POST /v1/metrics|traces|logs``: OTLP over HTTP, into the service's own database."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from flask import Blueprint, Response, current_app, g, request
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from daskscope_service.accounts.access import require
from daskscope_service.ingest import otlp_json, otlp_size
from daskscope_service.ingest.otlp import Stored
from daskscope_service.services import services
from daskscope_service.web.body import encoding_of, receive, unpacked
from daskscope_service.web.operation import JSON, Operation, describes
from daskscope_service.web.problems import Problem

blueprint = Blueprint("otlp", __name__, url_prefix="/v1")

#: The paths where bodies may be large.
PATHS = ("/v1/metrics", "/v1/traces", "/v1/logs")

_PROTOBUF = "application/x-protobuf"

# OpenTelemetry defines the types of both.
_EITHER = {_PROTOBUF: None, JSON: dict[str, Any]}
_OPERATION = Operation(_EITHER, body=_EITHER, problems=(429,))

M = TypeVar("M", bound=Message)
Contra = TypeVar("Contra", contravariant=True)


class _Store(Protocol[Contra]):
    def keep(self, request: Contra, workspace: str) -> Stored: ...


@blueprint.post("/metrics")
@require("ingest")
@describes(_OPERATION)
def post_metrics() -> Response:
    """Store the points of a request for good."""
    answer = ExportMetricsServiceResponse()
    message, store = ExportMetricsServiceRequest(), services().metric_store
    return _stored(message, store, "metrics", answer, "rejected_data_points")


@blueprint.post("/traces")
@require("ingest")
@describes(_OPERATION)
def post_traces() -> Response:
    """Store the spans of a request for good."""
    answer = ExportTraceServiceResponse()
    message, store = ExportTraceServiceRequest(), services().span_store
    return _stored(message, store, "traces", answer, "rejected_spans")


@blueprint.post("/logs")
@require("ingest")
@describes(_OPERATION)
def post_logs() -> Response:
    """Store the log records of a request for good."""
    answer = ExportLogsServiceResponse()
    message, store = ExportLogsServiceRequest(), services().log_store
    return _stored(message, store, "logs", answer, "rejected_log_records")


def _stored(message: M, store: _Store[M], signal: str, answer: Any, rejected: str) -> Response:
    """Store a request; set the field ``rejected`` of ``answer`` to the number not stored."""
    outcome = _store(message, store, signal)
    if outcome.rejected:
        setattr(answer.partial_success, rejected, outcome.rejected)
        answer.partial_success.error_message = outcome.reason
    if request.mimetype == JSON:
        return Response(MessageToJson(answer, indent=None), content_type=JSON)
    return Response(answer.SerializeToString(), content_type=_PROTOBUF)


def _store(message: M, store: _Store[M], signal: str) -> Stored:
    if request.mimetype not in (_PROTOBUF, JSON):
        raise Problem(
            415,
            f"Content-Type {request.mimetype or 'is missing'}: send OTLP as {_PROTOBUF} or {JSON}.",
        )
    quotas = services().quotas
    quotas.check(g.workspace)
    limit = current_app.config["SETTINGS"].max_body_bytes
    body = receive(request, limit)
    content = unpacked(body, encoding_of(request), limit)
    is_json = request.mimetype == JSON
    costly = otlp_json.is_costly(content) if is_json else otlp_size.is_costly(content)
    with services().turns.turn(g.workspace) if costly else nullcontext():
        if is_json:
            otlp_json.parse(content, message)
        else:
            _parse(content, message)
        outcome = store.keep(message, g.workspace)
    quotas.note(g.workspace, len(content))
    instruments = services().instruments
    instruments.rejected.labels(signal).inc(outcome.rejected)
    return outcome


def _parse(content: bytes, message: Message) -> None:
    otlp_size.check(content, message)
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        name = message.DESCRIPTOR.full_name
        raise Problem(400, f"The body is not a {name}: {error}.") from None
