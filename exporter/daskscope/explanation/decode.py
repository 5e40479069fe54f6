"""Decodes the bodies of requests for people to read: everything in them, with its name.

Only the form differs: attributes are a mapping, identifiers are hexadecimal, and times are UTC. A
metric has the fields ``kind`` and ``value``. The start time of a sum or a histogram is left out,
because it is not known here: it is when the plugin first reported it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, MutableSequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

#: The suffix of fields that contain nanoseconds since the epoch.
_NANOSECONDS = "_unix_nano"


def _heartbeat(bodies: list[bytes]) -> dict[str, Any]:
    return {field: value for field, value in json.loads(bodies[0]).items() if value or value == 0}


def _metrics(bodies: list[bytes]) -> dict[str, Any]:
    content, metrics = _of_all(map(ExportMetricsServiceRequest.FromString, bodies), "metrics")
    for metric in metrics:
        name = metric.pop("name")
        kind = next(kind for kind in ("gauge", "sum", "histogram") if kind in metric)
        data = metric.pop(kind)
        points = data.pop("data_points")
        for point in points:
            point.pop("start_time", None)
            if kind != "histogram":
                point["value"] = point.pop("as_double")
        content[name] = {"kind": kind, **metric, **data, "data_points": points}
    return content


def _traces(bodies: list[bytes]) -> dict[str, Any]:
    content, content["spans"] = _of_all(map(ExportTraceServiceRequest.FromString, bodies), "spans")
    return content


def _logs(bodies: list[bytes]) -> dict[str, Any]:
    requests = map(ExportLogsServiceRequest.FromString, bodies)
    content, content["log_records"] = _of_all(requests, "log_records")
    return content


def _of_all(requests: Iterable[Message], field: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the resource and scope that ``requests`` share, and all items in ``field``."""
    content: dict[str, Any] = {}
    items: list[Any] = []
    for request in requests:
        [(_, resources)] = _message(request).items()
        for resource in resources:
            scopes = next(
                resource.pop(name) for name in tuple(resource) if name.startswith("scope_")
            )
            content |= resource
            for scope in scopes:
                items += scope.pop(field, [])
                content |= scope
    return content, items


def _message(message: Message) -> dict[str, Any]:
    """Return all fields of a message that are set."""
    return {
        field.name.removesuffix(_NANOSECONDS): _field(field, value)
        for field, value in message.ListFields()
    }


def _field(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is KeyValue.DESCRIPTOR:
        return {pair.key: _any(pair.value) for pair in value}
    if isinstance(value, MutableSequence):  # a repeated field of protobuf
        return [_single(field, one) for one in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, AnyValue):
        return _any(value)
    if isinstance(value, Message):
        return _message(value)
    if isinstance(value, bytes):
        return value.hex()
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return _time(value) if field.name.endswith(_NANOSECONDS) else value


def _any(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_any(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _any(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return None if kind is None else getattr(value, kind)


def _time(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09}Z"


#: The function that decodes the bodies of all requests, by their kind.
READERS: dict[str, Callable[[list[bytes]], dict[str, Any]]] = {
    "heartbeat": _heartbeat,
    "metrics": _metrics,
    "traces": _traces,
    "logs": _logs,
}

#: Fields that are generated for each request, so they differ between two dry runs of the same data.
MADE_ANEW: dict[str, frozenset[str]] = {
    "metrics": frozenset({"time"}),
    "traces": frozenset({"span_id", "parent_span_id", "links"}),
    "logs": frozenset({"observed_time"}),
}
