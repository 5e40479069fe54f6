"""OTLP requests of extreme values in every field, made of what protobuf declares of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import methodcaller
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
from tests.service.extremes import CLUSTERS, COMPUTATIONS, TRACE, Extreme

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


def full_telemetry(cluster: str, computation: str, trace: bytes) -> dict[str, Message]:
    """Return a request for each address, with all that a cluster sends and what others may send."""
    now = time.time_ns()
    metrics, traces, logs = (
        ExportMetricsServiceRequest(),
        ExportTraceServiceRequest(),
        ExportLogsServiceRequest(),
    )
    scope = metrics.resource_metrics.add().scope_metrics.add()
    _add_stored(Random(0), scope)
    for metric in scope.metrics:
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            point.as_double = 1.0
            point.start_time_unix_nano = now - 10**12
            exemplar = point.exemplars.add(time_unix_nano=now, as_int=1, trace_id=trace)
            _attribute(exemplar.filtered_attributes, names.TASK_PREFIX, "load")
    summary = scope.metrics.add(name="a.summary").summary.data_points.add(time_unix_nano=now)
    summary.quantile_values.add(quantile=0.5, value=1.0)
    wide = scope.metrics.add(name=names.TASK_DURATION.name, unit="s").exponential_histogram
    wide.aggregation_temporality = _CUMULATIVE
    point = wide.data_points.add(time_unix_nano=now, count=3, sum=3.0, zero_count=1, scale=2)
    point.positive.bucket_counts.extend((1, 1))
    point.negative.bucket_counts.extend((0, 0))

    spans = traces.resource_spans.add().scope_spans.add()
    above = b""
    ids = (bytes.fromhex(computation[:16]), b"group---", b"task----")
    for kind, id in zip(names.SPANS, ids, strict=True):
        span = spans.spans.add(
            name=kind.name,
            trace_id=trace,
            span_id=id,
            parent_span_id=above,
            start_time_unix_nano=now - 10**10,
            end_time_unix_nano=now - 10**9,
        )
        for key in (names.COMPUTATION_ID, *kind.attributes):
            _attribute(span.attributes, key, computation)
        span.events.add(name="exception", time_unix_nano=now - 10**9)
        span.links.add(trace_id=trace, span_id=b"\1" * 8)
        span.status.message = "it failed"
        above = id

    records = logs.resource_logs.add().scope_logs.add()
    for event in names.LOG_EVENTS:
        record = records.log_records.add(
            event_name=event.name, time_unix_nano=now, observed_time_unix_nano=now, trace_id=trace
        )
        record.body.string_value = "a text"
        for key in (names.EVENT_NAME, names.COMPUTATION_ID, *event.attributes):
            told = {names.EVENT_NAME: event.name, names.COMPUTATION_ID: computation}
            _attribute(record.attributes, key, told.get(key, "1"))

    for group in (metrics.resource_metrics[0], traces.resource_spans[0], logs.resource_logs[0]):
        _attribute(group.resource.attributes, names.SERVICE_NAME, "dask")
        _attribute(group.resource.attributes, names.CLUSTER_ID, cluster)
    return {"/v1/metrics": metrics, "/v1/traces": traces, "/v1/logs": logs}


def _attribute(attributes: Any, key: str, value: str) -> None:
    attributes.add(key=key).value.string_value = value


def extremes_of_telemetry(bodies: dict[str, Message]) -> Iterator[Extreme]:
    """Yield what makes such requests differ in one field, which is then empty or extreme.

    Of the same field of several messages the first one differs: attributes with other keys, and
    metrics of other kinds, are others.
    """
    seen = set()
    for path, body in bodies.items():
        for field, what, steps, change in _changes(body, (), path):
            if (field, what) not in seen:
                seen.add((field, what))
                yield Extreme(field, what, _in_message(path, steps, change))


_Step = tuple[str, int | None]


def _in_message(
    path: str, steps: tuple[_Step, ...], change: Callable[[Message], None]
) -> Callable[[dict[str, Message]], dict[str, Message]]:
    def changed(bodies: dict[str, Message]) -> dict[str, Message]:
        body = copy.deepcopy(bodies[path])
        message: Any = body
        try:
            for name, index in steps:
                message = getattr(message, name)
                message = message if index is None else message[index]
        except IndexError:  # another change has put something else where this was
            return bodies
        change(message)
        return {**bodies, path: body}

    return changed


def _changes(
    message: Message, steps: tuple[_Step, ...], above: str
) -> Iterator[tuple[str, str, tuple[_Step, ...], Callable[[Message], None]]]:
    for one in message.DESCRIPTOR.fields:
        name, field = one.name, f"{above}.{one.name}"
        if one.name == "resource" or steps == ():
            continue  # to whom it belongs
        if one.type != _F.TYPE_MESSAGE:
            for value in _extreme_values(message.DESCRIPTOR.name, one):
                yield field, repr(value)[:40], steps, partial(_set, name, value)
        elif one.is_repeated or message.HasField(name):
            yield field, "none", steps, methodcaller("ClearField", name)
        elif one.containing_oneof:
            yield field, "empty", steps, partial(_set_empty, name)
    for inner, step, field in _inner_messages(message, above):
        yield from _changes(inner, (*steps, step), field)


def _inner_messages(message: Any, above: str) -> Iterator[tuple[Message, _Step, str]]:
    for one in message.DESCRIPTOR.fields:
        if one.type == _F.TYPE_MESSAGE and one.is_repeated:
            for index, inner in enumerate(getattr(message, one.name)):
                key = f"[{inner.key}]" if inner.DESCRIPTOR.name == "KeyValue" else ""
                yield inner, (one.name, index), f"{above}.{one.name}{key}"
        elif one.type == _F.TYPE_MESSAGE and message.HasField(one.name):
            yield getattr(message, one.name), (one.name, None), f"{above}.{one.name}"


def _extreme_values(kind: str, field: FieldDescriptor) -> Sequence[Any]:
    some: Sequence[Any]
    if field.name.endswith("time_unix_nano"):
        now = time.time()
        some = [int(at * 1e9) for at in (EARLIEST, now - 60.5, now + 86_000)] + [0, 2**64 - 1]
    elif field.type == _F.TYPE_BYTES:
        some = (b"", b"\xff", b"\0" * 16, b"\xff" * 17)
    elif field.type == _F.TYPE_STRING:
        some = ("", "\0", "w" * 2_000) if kind == "AnyValue" else _TEXTS
    elif field.type == _F.TYPE_ENUM:
        some = [*cast(Any, field.enum_type).values_by_number, 99]
    else:
        some = [*_NUMBERS[field.type]]
    return [[], some, [*some] * 100] if field.is_repeated else some


def _set(name: str, value: Any, message: Message) -> None:
    if isinstance(value, list | tuple):
        message.ClearField(name)
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def _set_empty(name: str, message: Message) -> None:
    getattr(message, name).SetInParent()


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
