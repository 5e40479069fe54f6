"""OTLP requests of extreme values in every field, made of what protobuf declares of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    NumberDataPoint,
    ScopeMetrics,
)

from daskscope import names
from daskscope.protocol import EARLIEST
from daskscope_service.ingest.points import MAX_NUMBER
from tests.service.extremes import CLUSTERS, COMPUTATIONS, TRACE

#: What is sent to each address.
REQUESTS: dict[str, type[Message]] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}

Draw = Callable[[st.SearchStrategy[Any]], Any]

_F = FieldDescriptor
_TEXTS = ("", "a", "=1+1", "</script>", "\u202e", "\uffff" * 30, "\0", "w" * 2_000)
#: Names that pages look for.
_METRICS = tuple(metric.name for metric in names.METRICS)
_EVENTS = tuple(event.name for event in names.LOG_EVENTS)
_NUMBERS: dict[int, Iterable[Any]] = {
    _F.TYPE_DOUBLE: (0.0, -0.0, 1e30, -1e30, 1e-300, 1e300, float("nan"), float("-inf")),
    _F.TYPE_FIXED64: (0, 1, 2**53, 2**64 - 1),
    _F.TYPE_UINT64: (0, 2**64 - 1),
    _F.TYPE_INT64: (0, -(2**63), 2**63 - 1),
    _F.TYPE_SFIXED64: (0, -(2**63), 2**63 - 1),
    _F.TYPE_SINT32: (0, -(2**31), 2**31 - 1),
    _F.TYPE_INT32: (0, -(2**31), 2**31 - 1),
    _F.TYPE_UINT32: (0, 1, 2**32 - 1),
    _F.TYPE_FIXED32: (0, 2**32 - 1),
    _F.TYPE_BOOL: (False, True),
}
_STORED = (0.0, 1.0, 1e-300, MAX_NUMBER, -MAX_NUMBER)
_BOUNDS = ((), (1.0,), (0.1, 10.0), (1.0, 1.0), (10.0, 0.1), (float("nan"),), (float("inf"),))
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
#: Messages in messages, beyond which a value holds no further ones.
_DEEPEST = 9


def telemetry() -> st.SearchStrategy[dict[str, bytes]]:
    """Return a strategy of the bodies for each of :data:`REQUESTS`."""
    return _bodies()


@st.composite
def _bodies(draw: Draw) -> dict[str, bytes]:
    bodies = {}
    for path, kind in REQUESTS.items():
        message = kind()
        _fill(draw, message, 0)
        if isinstance(message, ExportMetricsServiceRequest):
            chosen = Random(draw(st.integers(0, 2**32)))
            _add_stored(chosen, message.resource_metrics[0].scope_metrics[0])
        for group in next(iter(message.ListFields()))[1]:
            attribute = group.resource.attributes.add(key=names.CLUSTER_ID)
            attribute.value.string_value = draw(st.sampled_from(CLUSTERS))
        bodies[path] = message.SerializeToString()
    return bodies


def _add_stored(chosen: Random, scope: ScopeMetrics) -> None:
    """Add points of all our metrics that are stored, of extreme values: charts show them.

    By random numbers that Hypothesis draws as one: more than that, and it would give up.
    """
    now = time.time()
    for metric in names.METRICS:
        made = scope.metrics.add(name=metric.name, unit=metric.unit)
        for at in (now - 60, now):
            point: NumberDataPoint | HistogramDataPoint
            if metric.instrument == "histogram":
                made.histogram.aggregation_temporality = _CUMULATIVE
                point = made.histogram.data_points.add()
                point.explicit_bounds[:] = chosen.choice(_BOUNDS)
                point.bucket_counts[:] = [
                    chosen.choice((0, 1, 2**64 - 1)) for _ in (*point.explicit_bounds, "+Inf")
                ]
                point.count, point.sum = 2**64 - 1, chosen.choice(_STORED)
            else:
                if metric.instrument == "gauge":
                    point = made.gauge.data_points.add()
                else:
                    made.sum.aggregation_temporality = _CUMULATIVE
                    made.sum.is_monotonic = metric.instrument == "counter"
                    point = made.sum.data_points.add()
                point.as_double = chosen.choice(_STORED)
            point.time_unix_nano = int(at * 1e9)
            for key in metric.attributes:
                point.attributes.add(key=key).value.string_value = chosen.choice(_TEXTS[:-1])


def _fill(draw: Draw, message: Message, depth: int) -> None:
    kind: Descriptor = message.DESCRIPTOR
    chosen = {
        one.name: draw(st.sampled_from([field.name for field in one.fields])) for one in kind.oneofs
    }
    for field in kind.fields:
        if field.containing_oneof and chosen[field.containing_oneof.name] != field.name:
            continue
        if field.type == _F.TYPE_MESSAGE:
            if kind.name == "Resource" or depth > _DEEPEST:
                continue
            if field.is_repeated:
                # Rows always, what is in them or not.
                few = draw(st.integers(1 if depth < 3 else 0, 2))
                for _ in range(few):
                    _fill(draw, getattr(message, field.name).add(), depth + 1)
            else:
                _fill(draw, getattr(message, field.name), depth + 1)
        elif field.is_repeated:
            several = draw(st.lists(_values(kind.name, field), max_size=3))
            getattr(message, field.name).extend(several)
        else:
            setattr(message, field.name, draw(_values(kind.name, field)))
    if kind.name == "HistogramDataPoint" and draw(st.booleans()):
        point = cast(HistogramDataPoint, message)  # one that is kept
        del point.bucket_counts[len(point.explicit_bounds) + 1 :]
        while len(point.bucket_counts) <= len(point.explicit_bounds):
            point.bucket_counts.append(draw(st.sampled_from(list(_NUMBERS[_F.TYPE_UINT64]))))


def _values(kind: str, field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.name.endswith("time_unix_nano"):
        now = time.time()
        times = (EARLIEST, now, now - 60, now - 60.5, now + 86_000)
        return st.sampled_from([int(one * 1e9) for one in times] * 3 + [0, 2**64 - 1])
    if field.type == _F.TYPE_BYTES:
        length = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}.get(field.name, 3)
        return st.sampled_from((bytes.fromhex(TRACE)[:length], b"\xff" * length, b""))
    if field.type == _F.TYPE_STRING:
        meant: tuple[str, ...] = {
            ("Metric", "name"): _METRICS,
            ("LogRecord", "event_name"): _EVENTS,
            ("KeyValue", "key"): (names.COMPUTATION_ID, names.EVENT_NAME, names.TASK_PREFIX, "a"),
            ("AnyValue", "string_value"): (*COMPUTATIONS, "1.5", "processing"),
        }.get((kind, field.name), ())
        return st.sampled_from((*meant, *meant, *_TEXTS))
    if field.type == _F.TYPE_ENUM:
        return st.sampled_from([value.number for value in cast(Any, field.enum_type).values])
    return st.sampled_from(list(_NUMBERS[field.type]))
