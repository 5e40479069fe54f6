"""Names are a contract: each is told, none clashes, none comes unannounced."""

from __future__ import annotations

import logging
from typing import Any

import dask.array as da
import opentelemetry.sdk.version
import pytest
from distributed import Client, Event, wait
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from daskscope import names
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder

# What the collector's InfluxDB exporter writes as fields: an attribute of that name would be a tag
# of that name too, and InfluxDB takes only one of them.
INFLUXDB_FIELDS = {
    "gauge", "counter", "count", "sum", "min", "max", "start_time_unix_nano", "body", "attributes",
    "severity_number", "severity_text", "observed_time_unix_nano", "duration_nano", "span.name",
    "span.kind", "parent_span_id", "end_time_unix_nano", "otel.status_code", "time",
}  # fmt: skip

# What test_metrics.py makes: a worker that leaves, a request that fails, a task that runs while a
# beat is sent, a GPU, too little memory.
NOT_HERE = {
    names.WORKER_LOSS.name,
    names.SEND_FAILURES.name,
    names.TASK_RUNNING.name,
    names.SPILL_IO.name,
    names.GPU_UTILIZATION.name,
    names.GPU_MEMORY_USED.name,
    names.GPU_MEMORY_LIMIT.name,
}


def fail() -> None:
    raise OSError("no such thing")


def log_a_failure() -> None:
    try:
        fail()
    except OSError:
        logging.getLogger("mine").exception("it failed")


def step(number: int, gate: str) -> None:
    if number == 0:
        Event(gate).wait()


def _attributes(pairs: Any) -> dict[str, str]:
    def text(pair: KeyValue) -> str:
        kind = pair.value.WhichOneof("value")
        return str(getattr(pair.value, kind)) if kind else ""

    return {pair.key: text(pair) for pair in pairs}


def _sent(recorder: Recorder, message: Any) -> Any:
    for sent in recorder.otlp(type(message)):
        message.MergeFrom(sent)
    return message


def _metrics(recorder: Recorder) -> dict[str, set[str]]:
    """Attributes by the metric's name."""
    found: dict[str, set[str]] = {}
    sent = _sent(recorder, ExportMetricsServiceRequest())
    for resource in sent.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                keys = found.setdefault(metric.name, set())
                for point in getattr(metric, kind).data_points:
                    keys |= set(_attributes(point.attributes))
                    if kind != "histogram":
                        assert point.WhichOneof("value") == "as_double", metric.name
                    assert not point.exemplars
    return found


@pytest.fixture
def told(client: Client, register: Register, recorder: Recorder) -> Recorder:
    """What a run of some of everything tells."""
    register(events__allow=["mine"], workspace="team", prices={"currency": "EUR", "thread": 1})
    client.log_event("mine", 1)
    da.ones((40, 40), chunks=(10, 10)).sum().compute()
    wait(client.submit(fail))
    wait_for_worker_logs(client)
    client.submit(log_a_failure).result()
    asked = {"id": "1", "action": "shutdown", "requested_by": "ada", "reason": "", "grace": 3600}
    # The other one is dropped.
    recorder.commands = [asked, {"action": "none"}]
    recorder.wait_for(recorder.shutdowns, "a shutdown")
    steps: list[Any] = []
    while names.LOG_COMPUTATION_PROGRESS.name.encode() not in recorder.bytes:
        steps.append(client.submit(step, len(steps), recorder.url, pure=False))
        wait(steps[1:])
    Event(recorder.url, client=client).set()
    wait(steps)
    client.run_on_scheduler(_end)
    recorder.wait_for(
        lambda: names.LOG_CLUSTER_STOPPED.name.encode() in recorder.bytes, "the last log event"
    )
    recorder.wait_for(
        lambda: [request for request in recorder.requests if request.path == "/v1/traces"],
        "the spans",
    )
    recorder.wait_for(lambda: set(_metrics(recorder)) >= _expected(), "all metrics")
    return recorder


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins["daskscope"].close()


def _expected() -> set[str]:
    return {metric.name for metric in names.METRICS} - NOT_HERE


def test_every_metric_comes_with_its_attributes_and_no_other(told: Recorder) -> None:
    attributes = {metric.name: set(metric.attributes) for metric in names.METRICS}
    metrics = _metrics(told)
    assert set(metrics) - NOT_HERE == _expected()
    for name, found in metrics.items():
        assert found == attributes[name], name


def test_the_resource_says_who_speaks_and_nothing_else(told: Recorder) -> None:
    cluster = told.beats[0].cluster
    sent = _sent(told, ExportMetricsServiceRequest())
    for resource in sent.resource_metrics:
        attributes = _attributes(resource.resource.attributes)
        assert set(attributes) == {*names.RESOURCE_ATTRIBUTES, *names.SDK_ATTRIBUTES}
        assert attributes[names.TELEMETRY_SDK_NAME] == "opentelemetry"
        assert attributes[names.TELEMETRY_SDK_LANGUAGE] == "python"
        assert attributes[names.TELEMETRY_SDK_VERSION] == opentelemetry.sdk.version.__version__
        assert attributes[names.CLUSTER_ID] == attributes[names.SERVICE_INSTANCE_ID] == cluster.id
        assert attributes[names.SERVICE_NAMESPACE] == "team"


def test_spans_are_of_the_trace_that_the_computation_names(told: Recorder) -> None:
    sent = _sent(told, ExportTraceServiceRequest())
    spans = [
        span
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    roots = {span.span_id: span for span in spans if names.SPAN_COMPUTATION.includes(span.name)}
    traces = {span.trace_id.hex(): span for span in roots.values()}
    computations = told.computations().values()
    assert {row.trace_id for row in computations} == set(traces)
    for row in computations:
        span = traces[row.trace_id or ""]
        assert span.start_time_unix_nano == int(row.started_at * 1e9)
        longest = max(told.groups(row.id).values(), key=lambda group: sum(group.seconds.values()))
        assert span.name == names.SPAN_COMPUTATION.of(longest.prefix)
        attributes = _attributes(span.attributes)
        assert attributes[names.COMPUTATION_STATUS] == row.status
        assert set(attributes) == set(names.SPAN_COMPUTATION.attributes)
        inside = [s for s in spans if s.parent_span_id == span.span_id]
        assert {s.name for s in inside} == {
            names.SPAN_TASK_GROUP.of(prefix) for prefix in told.groups(row.id)
        }
        assert len(inside) == len(told.groups(row.id))
        for child in inside:
            assert set(_attributes(child.attributes)) == set(names.SPAN_TASK_GROUP.attributes)
    tasks = [span for span in spans if names.SPAN_TASK.includes(span.name)]
    for span in tasks:
        assert span.name == names.SPAN_TASK.of(_attributes(span.attributes)[names.TASK_PREFIX])
    found = {key for task in tasks for key in _attributes(task.attributes)}
    assert found == set(names.SPAN_TASK.attributes)
    assert {span.name.partition(" ")[0] for span in spans} == {span.name for span in names.SPANS}


def test_log_events_come_with_their_names(told: Recorder) -> None:
    sent = _sent(told, ExportLogsServiceRequest())
    records = [
        record
        for resource in sent.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    expected = {event.name: event for event in names.LOG_EVENTS if event != names.LOG_WORKER_LOST}
    assert {record.event_name for record in records} == set(expected)
    by_event: dict[str, list[set[str]]] = {}
    for record in records:
        attributes = _attributes(record.attributes)
        assert attributes.pop(names.EVENT_NAME) == record.event_name
        by_event.setdefault(record.event_name, []).append(set(attributes))
    # What is logged may belong to no task, and tell of no exception.
    of_logs = by_event.pop(names.LOG_RECORD.name)
    assert set().union(*of_logs) == set(names.LOG_RECORD.attributes)
    for event, found in by_event.items():
        assert all(attributes == set(expected[event].attributes) for attributes in found)
    traces = {bytes.fromhex(row.trace_id or "") for row in told.computations().values()}
    of_computations = [
        record for record in records if names.COMPUTATION_ID in _attributes(record.attributes)
    ]
    assert {record.trace_id for record in of_computations} == traces


def test_otlp_goes_where_the_environment_says_and_without_our_token(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        register()
        collector.wait_for(lambda: collector.requests, "metrics")
        request = collector.requests[0]
        assert request.headers["x-team"] == "a"
        assert not [header for header in request.headers.values() if TOKEN in header]
        assert b"deployment.environment.name" in request.body
        assert {request.path for request in recorder.requests} == {"/api/v1/heartbeats"}


@pytest.mark.usefixtures("registered_without_otlp")
def test_otlp_can_be_switched_off(client: Client, recorder: Recorder) -> None:
    client.submit(sum, [1, 2]).result()
    recorder.computation()
    assert {request.path for request in recorder.requests} == {"/api/v1/heartbeats"}


def test_no_attribute_is_called_as_a_field_of_the_influxdb_exporter() -> None:
    attributes = {name for metric in names.METRICS for name in metric.attributes}
    assert not attributes & INFLUXDB_FIELDS
    assert all("." in name for name in attributes)


def test_names_and_units_follow_opentelemetrys_rules() -> None:
    all_names = [metric.name for metric in names.METRICS]
    assert len(all_names) == len(set(all_names))
    for metric in names.METRICS:
        assert metric.name.startswith(("dask.", "daskscope."))
        assert not metric.name.endswith(("total", "seconds", "bytes"))
        assert metric.unit in ("s", "By", "1") or metric.unit.startswith("{")
        assert metric.help.endswith(".")
