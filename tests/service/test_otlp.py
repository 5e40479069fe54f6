"""OTLP as the OpenTelemetry SDK sends it lands in the service's tables."""

from __future__ import annotations

import gzip
import json
import math
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import requests
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
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
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode, set_span_in_context
from sqlalchemy import select

from daskscope_service.db import schema
from daskscope_service.ingest.points import MAX_SERIES_BYTES
from tests.service.rows import POINTS
from tests.service_process import ServiceProcess

CLUSTER = "Scheduler-1"

#: Nanoseconds: some time in November 2023.
AT = 1_700_000_000 * 10**9
RESOURCE = Resource({"service.name": "dask", "dask.cluster.id": CLUSTER})


class Sender:
    """One workspace of the service, as a sender of OTLP and its reader see it."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.workspace = f"w-{uuid.uuid4().hex[:8]}"
        self.headers = {"Authorization": f"Bearer {service.token(workspace=self.workspace)}"}

    def arguments(self, signal: str) -> dict[str, Any]:
        return {
            "endpoint": f"{self.service.url}/v1/{signal}",
            "headers": self.headers,
            "compression": Compression.Gzip,
        }

    def post(self, signal: str, body: bytes, **headers: str) -> requests.Response:
        return requests.post(
            f"{self.service.url}/v1/{signal}",
            data=body,
            headers={"Content-Type": "application/x-protobuf", **self.headers, **headers},
            timeout=30,
        )

    def measure(self, record: Callable[[Meter], None], times: int = 1) -> None:
        """Let ``record`` measure with the SDK, and export that ``times`` times."""
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(**self.arguments("metrics")), export_interval_millis=math.inf
        )
        provider = MeterProvider([reader], RESOURCE, shutdown_on_exit=False)
        record(provider.get_meter("test"))
        for _ in range(times):
            provider.force_flush()
        provider.shutdown()

    def points(self) -> dict[tuple[str, str, str], list[tuple[str, float]]]:
        """Return (kind, value) of all points, by (metric, field, attributes)."""
        table, point = schema.series, POINTS
        statement = (
            select(table, point.c.value)
            .join(point, point.c.series == table.c.id)
            .where(table.c.workspace == self.workspace, table.c.cluster == CLUSTER)
            .order_by(point.c.time)
        )
        found: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
        with self.service.engine.connect() as connection:
            for row in connection.execute(statement):
                key = (row.metric, row.field, row.attributes)
                found.setdefault(key, []).append((row.kind, row.value))
        return found

    def rows(self, table: Any) -> list[dict[str, Any]]:
        with self.service.engine.connect() as connection:
            found = connection.execute(select(table).where(table.c.workspace == self.workspace))
            return [dict(row) for row in found.mappings()]


@pytest.fixture
def sender(shared_service: ServiceProcess) -> Sender:
    return Sender(shared_service)


def metrics_request(*metrics: Metric) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    attribute = group.resource.attributes.add(key="dask.cluster.id")
    attribute.value.string_value = CLUSTER
    group.scope_metrics.add().metrics.extend(metrics)
    return request


def test_gauges_and_sums_are_stored_with_kind_unit_and_sorted_attributes(sender: Sender) -> None:
    def record(meter: Meter) -> None:
        meter.create_counter("dask.task.completed", "{task}").add(3, {"b": "2", "a": "1"})
        meter.create_up_down_counter("dask.worker.count").add(4.0)
        meter.create_gauge("dask.cluster.idle", "s").set(1.5, {"n": 7})

    sender.measure(record)

    assert sender.points() == {
        ("dask.task.completed", "value", '{"a":"1","b":"2"}'): [("counter", 3.0)],
        ("dask.worker.count", "value", "{}"): [("gauge", 4.0)],
        ("dask.cluster.idle", "value", '{"n":"7"}'): [("gauge", 1.5)],
    }
    units = {row["metric"]: row["unit"] for row in sender.rows(schema.series)}
    assert units["dask.task.completed"] == "{task}"


def test_a_histogram_is_stored_as_count_sum_and_cumulative_buckets(sender: Sender) -> None:
    def record(meter: Meter) -> None:
        histogram = meter.create_histogram(
            "dask.task.duration", "s", explicit_bucket_boundaries_advisory=[0.1, 1.0, 10.0]
        )
        for seconds in (0.05, 0.5, 0.7, 20.0):
            histogram.record(seconds)

    sender.measure(record)

    stored = {name: points[0] for (_, name, _), points in sender.points().items()}
    assert stored == {
        "count": ("counter", 4.0),
        "sum": ("counter", 21.25),
        "0.1": ("counter", 1.0),
        "1": ("counter", 3.0),
        "10": ("counter", 3.0),
        "+Inf": ("counter", 4.0),
    }


def test_series_are_kept_apart_by_workspace_and_found_again(
    sender: Sender, shared_service: ServiceProcess
) -> None:
    other = Sender(shared_service)

    def record(meter: Meter) -> None:
        meter.create_counter("n").add(1.0)

    sender.measure(record, times=3)
    other.measure(record)

    assert len(sender.rows(schema.series)) == len(other.rows(schema.series)) == 1
    (points,) = sender.points().values()
    assert len(points) >= 3  # shutdown exports once more
    assert len(other.points()) == 1


def test_the_same_points_twice_are_stored_once(sender: Sender) -> None:
    metric = Metric(name="m")
    for time, value in ((AT, 1.0), (AT + 10**9, 2.0)):
        metric.gauge.data_points.add(time_unix_nano=time, as_double=value)
    body = metrics_request(metric).SerializeToString()

    assert sender.post("metrics", body).ok
    assert sender.post("metrics", body).ok

    assert sender.points() == {("m", "value", "{}"): [("gauge", 1.0), ("gauge", 2.0)]}


def test_what_cannot_be_kept_is_counted_in_the_answer_and_the_rest_is_kept(sender: Sender) -> None:
    gauge = Metric(name="g")
    gauge.gauge.data_points.add(time_unix_nano=AT + 10**9, as_double=math.nan)
    gauge.gauge.data_points.add(time_unix_nano=AT + 2 * 10**9, as_double=math.inf)
    gauge.gauge.data_points.add(time_unix_nano=AT + 3 * 10**9, flags=1)
    gauge.gauge.data_points.add(as_double=1.0)  # without a time
    gauge.gauge.data_points.add(time_unix_nano=10**9, as_double=1.0)  # a clock that was never set
    gauge.gauge.data_points.add(time_unix_nano=AT + 4 * 10**9, as_int=0)
    exponential = Metric(name="e")
    exponential.exponential_histogram.data_points.add(time_unix_nano=AT + 10**9)

    answer = sender.post("metrics", metrics_request(gauge, exponential).SerializeToString())

    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/x-protobuf"
    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_data_points == 6
    assert partial.error_message
    assert sender.points() == {("g", "value", "{}"): [("gauge", 0.0)]}


def test_histograms_whose_bounds_do_not_ascend_are_refused_and_the_others_kept(
    sender: Sender,
) -> None:
    histogram = Metric(name="h")
    for bounds in ((1.0, 1.0), (10.0, 0.1), (math.nan,), (1.0, math.inf), (0.1, 10.0)):
        point = histogram.histogram.data_points.add(time_unix_nano=AT + 10**9, sum=1.0)
        point.explicit_bounds[:] = bounds
        point.bucket_counts[:] = [1] * (len(bounds) + 1)

    answer = sender.post("metrics", metrics_request(histogram).SerializeToString())

    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_data_points == 4
    assert "that ascend" in partial.error_message
    assert {field for _, field, _ in sender.points()} == {"count", "sum", "0.1", "10", "+Inf"}


def test_series_with_names_that_no_index_holds_are_counted_and_the_rest_is_kept(
    sender: Sender,
) -> None:
    long = random.Random(1).randbytes(MAX_SERIES_BYTES // 2).hex()  # it does not compress
    gauge = Metric(name="g")
    for length in (MAX_SERIES_BYTES - 50, MAX_SERIES_BYTES):
        point = gauge.gauge.data_points.add(time_unix_nano=AT + 10**9, as_double=1.0)
        point.attributes.add(key="k").value.string_value = long[:length]
    histogram = Metric(name=long)
    histogram.histogram.data_points.add(time_unix_nano=AT + 10**9, bucket_counts=[1], sum=1.0)

    answer = sender.post("metrics", metrics_request(gauge, histogram).SerializeToString())

    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_data_points == 2
    assert str(MAX_SERIES_BYTES) in partial.error_message
    assert len(sender.points()) == 1


def test_the_character_that_postgresql_lacks_is_replaced(sender: Sender) -> None:
    traces = ExportTraceServiceRequest()
    span = (
        traces.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=b"1234567890123456",
            span_id=b"12345678",
            name="a\0b",
            start_time_unix_nano=AT,
            end_time_unix_nano=AT,
        )
    )
    span.attributes.add(key="k").value.string_value = "\0"
    assert sender.post("traces", traces.SerializeToString()).ok
    (row,) = sender.rows(schema.span)
    assert row["name"] == "a\ufffdb"

    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=AT)
    record.body.string_value = record.event_name = "\0"
    assert sender.post("logs", logs.SerializeToString()).ok
    (row,) = sender.rows(schema.log_record)
    assert row["body"] == row["event_name"] == "\ufffd"

    metric = Metric(name="m\0", unit="\0")
    point = metric.gauge.data_points.add(time_unix_nano=AT + 10**9, as_int=1)
    point.attributes.add(key="\0").value.string_value = "\0"
    assert sender.post("metrics", metrics_request(metric).SerializeToString()).ok
    (key,) = sender.points()
    assert key[0] == "m\ufffd"


def test_points_of_a_known_series_are_told_apart_by_all_that_they_may_have(sender: Sender) -> None:
    def point(**fields: Any) -> NumberDataPoint:
        one = NumberDataPoint(**fields)
        one.attributes.add(key="k").value.string_value = "v"
        return one

    first = Metric(name="m")
    first.gauge.data_points.append(point(time_unix_nano=AT + 10**9, as_double=0.5))
    assert sender.post("metrics", metrics_request(first).SerializeToString()).ok

    kept = [
        (point(time_unix_nano=AT + 2 * 10**9, as_double=-1.5), -1.5),
        (point(time_unix_nano=AT + 3 * 10**9, as_int=-7), -7.0),
        (point(time_unix_nano=AT + 4 * 10**9, as_double=0.0), 0.0),
        (point(time_unix_nano=AT + 5 * 10**9, as_int=0), 0.0),
        (point(time_unix_nano=AT + 6 * 10**9, start_time_unix_nano=1, as_double=2.5), 2.5),
        (point(time_unix_nano=AT + 7 * 10**9, start_time_unix_nano=1, as_int=2**40), 2.0**40),
    ]
    with_example = point(time_unix_nano=AT + 8 * 10**9, as_double=8.5)
    with_example.exemplars.add(time_unix_nano=1, as_double=1.0)
    kept.append((with_example, 8.5))
    refused = [
        point(time_unix_nano=AT + 20 * 10**9, as_double=math.nan),
        point(time_unix_nano=AT + 21 * 10**9, start_time_unix_nano=1, as_double=math.inf),
        point(time_unix_nano=AT + 22 * 10**9, as_double=1.0, flags=1),
        point(as_double=1.0),
        point(start_time_unix_nano=10**9, as_double=1.0),
    ]
    metric = Metric(name="m")
    metric.gauge.data_points.extend([*(one for one, _ in kept), *refused])
    answer = sender.post("metrics", metrics_request(metric).SerializeToString())
    assert answer.ok
    told = ExportMetricsServiceResponse.FromString(answer.content)
    assert told.partial_success.rejected_data_points == len(refused)
    ((_, values),) = sender.points().items()
    assert [value for _, value in values] == [0.5, *(value for _, value in kept)]


def test_points_of_any_length_are_found_between_others(sender: Sender) -> None:
    # A length in front of each has one byte, two or three, and none is of a point without a field.
    names = ["k" * length for length in (1, 98, 99, 100, 101, 102, 1_000, 16_500, 2)]

    empty = 50  # so many that whoever goes astray comes to the end too soon

    def request(seconds: int) -> bytes:
        metric = Metric(name="m")
        for value, name in enumerate(names):
            point = metric.sum.data_points.add(time_unix_nano=AT + seconds * 10**9, as_int=value)
            point.attributes.add(key=name).value.string_value = "v"
            for _ in range(empty):
                metric.sum.data_points.add()
        body: bytes = metrics_request(metric).SerializeToString()
        return body

    for seconds in (1, 2):  # of series that are new, and that are known
        answer = sender.post("metrics", request(seconds))
        told = ExportMetricsServiceResponse.FromString(answer.content)
        assert told.partial_success.rejected_data_points == empty * len(names) + 1  # too long

    expected = {
        ("m", "value", f'{{"{name}":"v"}}'): [("gauge", float(value))] * 2
        for value, name in enumerate(names)
        if len(name) < MAX_SERIES_BYTES
    }
    assert sender.points() == expected


def test_spans_are_stored(sender: Sender) -> None:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(**sender.arguments("traces"))))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("dask.computation", attributes={"n": 3}) as parent:
        with tracer.start_as_current_span("dask.task_group") as child:
            child.set_status(Status(StatusCode.ERROR, "no"))
    provider.shutdown()

    spans = {row["name"]: row for row in sender.rows(schema.span)}
    outer, inner = spans["dask.computation"], spans["dask.task_group"]
    assert outer["trace_id"] == f"{parent.get_span_context().trace_id:032x}"
    assert (outer["parent_span_id"], outer["status"]) == (None, "unset")
    assert outer["attributes"] == {"n": 3}
    assert outer["cluster"] == CLUSTER
    assert inner["parent_span_id"] == outer["span_id"]
    assert inner["status"] == "error"
    assert outer["started_at"] <= inner["started_at"] <= inner["stopped_at"] <= outer["stopped_at"]


def test_a_span_with_a_broken_id_or_time_is_refused_and_the_others_kept(sender: Sender) -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    ids, times = (b"1234567890123456", b"12345678"), (AT, AT + 10**9)
    for (trace_id, id), (start, end), name in (
        ((b"short", ids[1]), times, "bad"),
        (ids, (0, AT), "began in 1970"),
        (ids, (AT, 0), "never ended"),
        (ids, (AT, 2**63), "ended in the year 2262"),
        (ids, (AT, AT - 1), "ended before it began"),
        (ids, times, "good"),
    ):
        span = spans.add(trace_id=trace_id, span_id=id, name=name)
        span.start_time_unix_nano, span.end_time_unix_nano = start, end

    answer = sender.post("traces", request.SerializeToString())

    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 5
    assert [row["name"] for row in sender.rows(schema.span)] == ["good"]


def test_log_records_are_stored_with_event_and_trace(sender: Sender) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
    provider = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(**sender.arguments("logs")))
    )
    span = tracer.start_span("s")
    provider.get_logger("test").emit(
        LogRecord(
            timestamp=1_700_000_000_500_000_000,
            context=set_span_in_context(span),
            severity_number=SeverityNumber.ERROR,
            body="division by zero",
            attributes={"event.name": "dask.exception", "tags": ["a", "b"]},
        )
    )
    provider.shutdown()

    (row,) = sender.rows(schema.log_record)
    assert row["at"] == 1_700_000_000.5
    assert row["severity"] == 17
    assert row["event_name"] == "dask.exception"
    assert row["body"] == "division by zero"
    assert row["attributes"] == {"event.name": "dask.exception", "tags": ["a", "b"]}
    assert row["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert row["cluster"] == CLUSTER


def test_a_log_record_of_an_impossible_time_is_refused_and_the_others_kept(sender: Sender) -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for time in (0, 1, 2**63, AT):
        records.add(time_unix_nano=time).body.string_value = str(time)
    records.add(observed_time_unix_nano=AT).body.string_value = "observed"

    answer = sender.post("logs", request.SerializeToString())

    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 3
    assert "between 2015 and tomorrow" in partial.error_message
    assert {row["body"] for row in sender.rows(schema.log_record)} == {str(AT), "observed"}


def test_the_same_log_record_twice_is_stored_once(sender: Sender) -> None:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=AT)
    record.body.kvlist_value.values.add(key="k").value.int_value = 5
    record.event_name = "dask.event"
    for _ in range(2):
        assert sender.post("logs", request.SerializeToString()).ok
    (row,) = sender.rows(schema.log_record)
    assert json.loads(row["body"]) == {"k": 5}
    assert row["event_name"] == "dask.event"


@pytest.mark.parametrize("signal", ["metrics", "traces", "logs"])
def test_what_is_not_otlp_is_refused(sender: Sender, signal: str) -> None:
    assert sender.post(signal, b"\xff\xff not protobuf").status_code == 400
    assert sender.post(signal, b"", **{"Content-Type": "text/plain"}).status_code == 415
    bomb = gzip.compress(b"\0" * (64 * 1024 * 1024))
    assert sender.post(signal, bomb, **{"Content-Encoding": "gzip"}).status_code == 413
    answer = requests.post(f"{sender.service.url}/v1/{signal}", data=b"", timeout=30)
    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"
