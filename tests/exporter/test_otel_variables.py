"""OpenTelemetry's variables one by one: those of a signal's own, and those about metrics."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from opentelemetry import _logs, metrics, trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider, MetricsTimeoutError
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import daskscope
from daskscope import names
from daskscope.containment import INTERNAL_ERROR
from daskscope.otlp import emitter
from daskscope.plugin import NAME
from tests.exporter.conftest import TOKEN, Register, close_plugin, warnings_in
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.exporter.test_otlp_environment import GRPC_REQUESTS, SIGNALS, Files, GrpcCollector

OTLP = "OTEL_EXPORTER_OTLP"

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA

pytestmark = [pytest.mark.usefixtures("sends_soon", "closes_before_servers"), pytest.mark.contract]

each_signal = pytest.mark.parametrize("signal", ["metrics", "traces", "logs"])


def counted(number: int) -> int:
    return number


@pytest.fixture
def tell_of_one_task(client: Client, register: Register, recorder: Recorder) -> Callable[[], None]:
    """Registers, runs a task, and closes the plugin: all that it told has been sent."""

    def tell() -> None:
        register()
        client.submit(counted, 1, pure=False).result()
        recorder.computation()
        close_plugin(client)

    return tell


def _paths(recorder: Recorder) -> set[str]:
    return {request.path for request in list(recorder.requests)}


# --- of one signal --------------------------------------------------------------------------------


@each_signal
def test_a_signals_own_timeout_wins(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    signal: str,
) -> None:
    path = f"/v1/{signal}"
    collector.misbehave = lambda asked: "hang" if asked == path else None
    monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
    monkeypatch.setenv(f"{OTLP}_TIMEOUT", "3600")
    monkeypatch.setenv(f"{OTLP}_{signal.upper()}_TIMEOUT", "1")
    register()
    client.submit(counted, 1, pure=False).result()
    # At each beat it is looked whether there is a warning.
    recorder.wait_for(lambda: warnings_in(caplog), "the warning of what takes too long")
    (told,) = warnings_in(caplog)
    assert told.startswith(f"daskscope: {signal} could not be sent")
    assert "no answer in time" in told
    # Of metrics alone the next ones hold what was not sent.
    assert ("sends the totals again" in told) == (signal == "metrics")
    collector.wait_for(lambda: _paths(collector) == SIGNALS - {path}, "the others")


@each_signal
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_signals_own_certificates_win(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    signal: str,
    protocol: str,
) -> None:
    """Two collectors ask for certificates, each of its own authority."""
    grpc = protocol == "grpc"
    monkeypatch.setenv(f"{OTLP}_PROTOCOL", protocol)
    with ExitStack() as stack:
        collectors: list[Any] = []
        for whose in ("", f"_{signal.upper()}"):
            files = Files(tmp_path / f"files{whose}")
            one: Any = GrpcCollector(files) if grpc else Recorder(files.context(ask_client=True))
            collectors.append(stack.enter_context(one))
            path = "" if grpc or not whose else f"/v1/{signal}"
            monkeypatch.setenv(f"{OTLP}{whose}_ENDPOINT", one.url + path)
            monkeypatch.setenv(f"{OTLP}{whose}_CERTIFICATE", files.authority)
            monkeypatch.setenv(f"{OTLP}{whose}_CLIENT_KEY", files.key)
            monkeypatch.setenv(f"{OTLP}{whose}_CLIENT_CERTIFICATE", files.certificate)
        register()
        client.submit(counted, 1, pure=False).result()
        of_all, own = collectors
        if grpc:
            own.wait_for({signal})
            of_all.wait_for(set(GRPC_REQUESTS) - {signal})
        else:
            own.wait_for(lambda: _paths(own) == {f"/v1/{signal}"}, signal)
            others = SIGNALS - {f"/v1/{signal}"}
            of_all.wait_for(lambda: _paths(of_all) == others, "the others")
        close_plugin(client)


@pytest.mark.parametrize(
    ("variables", "arrive"),
    [
        ({"": "true"}, ["metrics", "traces", "logs"]),
        ({"": "false", "_METRICS": "true"}, ["metrics"]),
        ({"": "false", "_TRACES": " True "}, ["traces"]),
        ({"": "false", "_LOGS": "true"}, ["logs"]),
        ({"": "true", "_LOGS": "false"}, ["metrics", "traces"]),
        ({"": "true", "_LOGS": ""}, ["metrics", "traces", "logs"]),
    ],
    ids=str,
)
def test_over_grpc_an_address_without_a_scheme_is_in_clear_where_a_variable_says_so(
    tell_of_one_task: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    arrive: list[str],
) -> None:
    monkeypatch.setenv(f"{OTLP}_PROTOCOL", "grpc")
    monkeypatch.setenv(f"{OTLP}_TIMEOUT", "1")
    for whose, value in variables.items():
        monkeypatch.setenv(f"{OTLP}{whose}_INSECURE", value)
    with GrpcCollector() as collector:
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url.removeprefix("http://"))
        tell_of_one_task()
        collector.wait_for(arrive)


@pytest.mark.parametrize(
    ("scheme", "insecure"), [("http", "false"), ("http", ""), ("https", "true")]
)
def test_over_grpc_the_addresss_scheme_goes_before_that_variable(
    client: Client,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scheme: str,
    insecure: str,
) -> None:
    files = Files(tmp_path / "files") if scheme == "https" else None
    monkeypatch.setenv(f"{OTLP}_PROTOCOL", "grpc")
    monkeypatch.setenv(f"{OTLP}_INSECURE", insecure)
    if files is not None:
        monkeypatch.setenv(f"{OTLP}_CERTIFICATE", files.authority)
        monkeypatch.setenv(f"{OTLP}_CLIENT_KEY", files.key)
        monkeypatch.setenv(f"{OTLP}_CLIENT_CERTIFICATE", files.certificate)
    with GrpcCollector(files) as collector:
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
        register()
        client.submit(counted, 1, pure=False).result()
        collector.wait_for(GRPC_REQUESTS)
        close_plugin(client)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("value", ["soon", "0", ""])
def test_a_signals_own_timeout_that_is_no_number_costs_a_warning_and_no_signal(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
    value: str,
) -> None:
    variables = [f"{OTLP}_{signal}_TIMEOUT" for signal in ("METRICS", "TRACES", "LOGS")]
    monkeypatch.setenv(f"{OTLP}_PROTOCOL", protocol)
    for variable in variables:
        monkeypatch.setenv(variable, value)
    with GrpcCollector() as over_grpc:
        grpc = protocol == "grpc"
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", over_grpc.url if grpc else collector.url)
        register()
        client.submit(counted, 1, pure=False).result()
        if grpc:
            over_grpc.wait_for(GRPC_REQUESTS)
        else:
            collector.wait_for(lambda: _paths(collector) == SIGNALS, "all signals")
        close_plugin(client)
    # An empty one counts as not set.
    says = f"is {value!r}; it must be a number of seconds."
    expected = [f"daskscope: {variable} {says}" for variable in sorted(variables)]
    assert sorted(warnings_in(caplog)) == (expected if value else [])


# --- metrics --------------------------------------------------------------------------------------


def test_the_interval_of_metrics_is_the_environments(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exports() -> int:
        return sum(request.path == "/v1/metrics" for request in list(collector.requests))

    monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    register(interval="1h")
    collector.wait_for(lambda: exports() >= 5, "metrics more often than beats")
    close_plugin(client)

    collector.requests.clear()
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    register(interval="100ms")
    before = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) > before + 5, "beats more often than metrics")
    assert exports() == 1
    close_plugin(client)
    # The last ones are sent whenever it ends.
    assert exports() == 2


def test_an_interval_that_passes_while_it_starts_is_no_trouble(
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(MeterProvider):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(0.2)  # so much else to do
            super().__init__(*args, **kwargs)

    monkeypatch.setattr("daskscope.otlp.metrics.MeterProvider", Slow)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    register()
    recorder.wait_for(lambda: recorder.points(names.WORKER_COUNT), "metrics")
    assert not warnings_in(caplog)


def test_metrics_go_on_after_a_time_that_they_took_too_long(
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    collect, times = PeriodicExportingMetricReader.collect, iter(range(100_000))

    def sometimes(reader: PeriodicExportingMetricReader) -> None:
        if next(times) == 1:
            raise MetricsTimeoutError("as if the process had been halted")
        collect(reader)

    monkeypatch.setattr(PeriodicExportingMetricReader, "collect", sometimes)
    register()
    recorder.wait_for(
        lambda: any(told.get(("internal error",)) == 1 for told in recorder.points(names.DROPPED)),
        "that it was counted, in metrics",
    )
    assert not warnings_in(caplog)


def _metric(body: bytes | ExportMetricsServiceRequest, wanted: names.Metric) -> Metric | None:
    sent = ExportMetricsServiceRequest.FromString(body) if isinstance(body, bytes) else body
    return next(
        (
            metric
            for resource in sent.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == wanted.name
        ),
        None,
    )


def _points(body: bytes, wanted: names.Metric) -> tuple[int, list[Any]]:
    """Return a metric's temporality, and its points of the tasks that count here."""
    metric = _metric(body, wanted)
    if metric is None:
        return CUMULATIVE, []
    data = getattr(metric, metric.WhichOneof("data") or "")
    ours = []
    for point in data.data_points:
        told = {pair.key: pair.value.string_value for pair in point.attributes}
        if told[names.TASK_PREFIX] == "counted" and told.get(names.TASK_OUTCOME) in (
            None,
            "finished",
        ):
            ours.append(point)
    return data.aggregation_temporality, ours


def _total(bodies: list[bytes], wanted: names.Metric, temporality: int) -> float:
    """Return how many tasks were told in all."""
    told = [
        point.as_double if wanted is names.TASK_COMPLETED else point.count
        for body in bodies
        for point in _points(body, wanted)[1]
    ]
    return sum(told) if temporality == DELTA else max(told, default=0)


@pytest.mark.parametrize(
    ("preference", "of_counters", "of_histograms"),
    [
        ("", CUMULATIVE, CUMULATIVE),
        ("cumulative", CUMULATIVE, CUMULATIVE),
        ("DELTA", DELTA, DELTA),
        ("delta", DELTA, DELTA),
        ("LowMemory", CUMULATIVE, DELTA),
    ],
)
def test_totals_or_increments_as_wanted_and_none_is_lost_while_none_is_taken(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    preference: str,
    of_counters: int,
    of_histograms: int,
) -> None:
    monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
    monkeypatch.setenv(f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE", preference)
    wanted = {names.TASK_COMPLETED: of_counters, names.TASK_DURATION: of_histograms}

    def bodies() -> list[bytes]:
        return [r.body for r in list(collector.requests) if r.path == "/v1/metrics"]

    def work() -> None:
        client.gather(client.map(counted, range(10), pure=False))

    def told(number: int) -> bool:
        return all(_total(bodies(), metric, how) == number for metric, how in wanted.items())

    register()
    work()
    collector.wait_for(lambda: told(10), "the first ten")
    collector.misbehave = lambda path: 401 if path == "/v1/metrics" else None
    work()
    # In vain it was told of the second ten.
    in_vain = {metric: 10 if how == DELTA else 20 for metric, how in wanted.items()}
    collector.wait_for(
        lambda: all(
            _total([collector.last_refused], metric, wanted[metric]) == number
            for metric, number in in_vain.items()
        ),
        "the second ten, refused",
    )
    assert told(10)
    collector.misbehave = lambda path: None
    work()
    collector.wait_for(lambda: told(30), "all thirty")
    close_plugin(client)
    assert told(30)

    for metric, how in wanted.items():
        exports = [_points(body, metric) for body in bodies()]
        assert {temporality for temporality, points in exports if points} == {how}
        times = [
            (p.start_time_unix_nano, p.time_unix_nano) for _, points in exports for p in points
        ]
        if how == DELTA:
            # Without gaps: each begins where the last that was taken ends.
            assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]
        else:
            assert len({start for start, _ in times}) == 1
        if metric is names.TASK_DURATION:
            assert all(p.count == sum(p.bucket_counts) for _, points in exports for p in points)
    # What goes up and down is told as it is.
    last = _metric(bodies()[-1], names.WORKER_COUNT)
    assert last is not None
    assert last.sum.aggregation_temporality == CUMULATIVE
    assert sum(point.as_double for point in last.sum.data_points) == 1
    assert all("401" in warning for warning in warnings_in(caplog))


def test_increments_over_grpc(
    client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{OTLP}_PROTOCOL", "grpc")
    monkeypatch.setenv(f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE", "delta")
    with GrpcCollector() as collector:
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
        register()
        client.submit(counted, 1, pure=False).result()
        collector.wait_for(GRPC_REQUESTS)
        close_plugin(client)
        sent = [r for r in collector.requests if isinstance(r, ExportMetricsServiceRequest)]
    assert (
        sum(
            point.as_double
            for request in sent
            for point in _points(request.SerializeToString(), names.TASK_COMPLETED)[1]
        )
        == 1
    )
    duration = _metric(sent[-1], names.TASK_DURATION)
    assert duration is not None
    assert duration.histogram.aggregation_temporality == DELTA


def test_the_service_is_told_totals_whatever_the_preference_and_a_warning_says_so(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE", "delta")
    register()
    client.submit(counted, 1, pure=False).result()

    def told() -> list[tuple[int, float]]:
        exports = [
            _points(request.body, names.TASK_COMPLETED)
            for request in list(recorder.requests)
            if request.path == "/v1/metrics"
        ]
        return [(how, point.as_double) for how, points in exports for point in points]

    recorder.wait_for(lambda: told().count((CUMULATIVE, 1.0)) >= 2, "the same total twice")
    (warning,) = warnings_in(caplog)
    assert "TEMPORALITY_PREFERENCE is 'delta'" in warning


@pytest.mark.parametrize(
    "given",
    [
        {
            f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE": "sometimes",
            f"{OTLP}_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram",
            "OTEL_METRIC_EXPORT_INTERVAL": "soon",
            "OTEL_BSP_SCHEDULE_DELAY": "0",
            "OTEL_BLRP_SCHEDULE_DELAY": "-1",
            "OTEL_BSP_MAX_QUEUE_SIZE": "many",
            "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE": "0",
            "OTEL_ATTRIBUTE_COUNT_LIMIT": "-1",
            "OTEL_SPAN_EVENT_COUNT_LIMIT": "many",
            "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "-1",
        },
        {"OTEL_METRIC_EXPORT_INTERVAL": "0"},
    ],
    ids=["all", "no time"],
)
def test_what_cannot_be_followed_costs_one_warning_each_and_no_signal(
    tell_of_one_task: Callable[[], None],
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: dict[str, str],
) -> None:
    monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    tell_of_one_task()
    assert _paths(collector) == SIGNALS
    warnings = warnings_in(caplog)
    assert len(warnings) == len(given)
    for variable, value in given.items():
        assert any(one.startswith(f"daskscope: {variable} is {value!r}") for one in warnings)
    for metric in (names.TASK_COMPLETED, names.TASK_DURATION):
        last = [r.body for r in collector.requests if r.path == "/v1/metrics"][-1]
        temporality, points = _points(last, metric)
        assert temporality == CUMULATIVE
        assert points


def test_the_sdk_is_imported_whatever_its_limits_are() -> None:
    """Of a limit for attributes of spans it raises as it is imported."""
    environment = os.environ | {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1"}
    program = "import daskscope.session, os; print(os.environ['OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("-1\n", "", 0)


def test_a_signal_that_cannot_begin_costs_one_warning_and_not_the_others(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("as a test wants it")

    monkeypatch.setattr(emitter, "Logs", fails)
    register()
    recorder.wait_for(lambda: len(recorder.points(names.WORKER_COUNT)) > 3, "metrics at each beat")
    (warning,) = warnings_in(caplog)
    assert warning.startswith("daskscope: logs cannot be sent over OTLP (ValueError")
    assert recorder.beats[-1].drops == {INTERNAL_ERROR: 1}


@pytest.mark.parametrize(
    "variable",
    [
        f"{OTLP}_METRICS_TEMPORALITY_PREFERENCE",
        f"{OTLP}_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "OTEL_BSP_SCHEDULE_DELAY",
    ],
)
def test_an_empty_one_counts_as_not_set(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, "")
    register()
    recorder.wait_for(lambda: len(recorder.points(names.WORKER_COUNT)) > 3, "metrics at each beat")
    assert not warnings_in(caplog)


# --- the application's own ------------------------------------------------------------------------

#: In the scheduler's process: the application's providers, and what they got.
_PROVIDERS: list[Any] = []
_SPANS, _READER, _RECORDS = (
    InMemorySpanExporter(),
    InMemoryMetricReader(),
    InMemoryLogRecordExporter(),  # type: ignore[no-untyped-call]
)


def _set_providers() -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(_SPANS))
    meters = MeterProvider([_READER], shutdown_on_exit=False)
    loggers = LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(_RECORDS))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    _logs.set_logger_provider(loggers)
    _PROVIDERS[:] = tracers, meters, loggers


def _use_providers(name: str) -> tuple[list[bool], list[str], list[str], list[str]]:
    """Return whether the global providers are those that were set, and the names of what they got
    so far, now that each was used once more.
    """
    now = (trace.get_tracer_provider(), metrics.get_meter_provider(), _logs.get_logger_provider())
    same = [one is other for one, other in zip(now, _PROVIDERS, strict=True)]
    with trace.get_tracer("application").start_as_current_span(name):
        pass
    metrics.get_meter("application").create_counter(name).add(1)
    _logs.get_logger("application").emit(_logs.LogRecord(event_name=name))
    told = _READER.get_metrics_data()
    return (
        same,
        [span.name for span in _SPANS.get_finished_spans()],
        [
            metric.name
            for resource in (told.resource_metrics if told else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            # Some versions of the SDK count their own spans with the global meter.
            if not metric.name.startswith("otel.sdk.")
        ],
        [str(data.log_record.event_name) for data in _RECORDS.get_finished_logs()],
    )


async def _close_plugin(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins.pop(NAME).close()


def test_global_providers_that_the_application_has_set_are_left_alone(recorder: Recorder) -> None:
    with (
        scheduler_process() as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address) as client,
    ):
        client.run_on_scheduler(_set_providers)
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        client.submit(counted, 1).result()
        recorder.wait_for(lambda: _paths(recorder) >= SIGNALS, "all signals")
        used = client.run_on_scheduler(_use_providers, "one")
        assert used == ([True] * 3, ["one"], ["one"], ["one"])
        client.run_on_scheduler(_close_plugin)
        used = client.run_on_scheduler(_use_providers, "two")
        assert used == ([True] * 3, ["one", "two"], ["one", "two"], ["one", "two"])
    # The beats hold lines of this file.
    otlp = b"".join(request.body for request in recorder.requests if request.path in SIGNALS)
    assert b"application" not in otlp
