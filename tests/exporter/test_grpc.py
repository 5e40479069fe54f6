"""Over gRPC nothing is lost, and no more is said, than over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from distributed import Client
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from daskscope.plugin import NAME
from tests.exporter.conftest import TOKEN, Register, close_plugin, warnings_in
from tests.exporter.dask_process import scheduler_process
from tests.exporter.recorder import Recorder
from tests.exporter.test_otlp_environment import (
    Files,
    GrpcCollector,
    GrpcMisbehaviour,
    close_within_its_deadline,
)
from tests.patience import PATIENCE, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.usefixtures("sends_soon", "closes_before_servers"), pytest.mark.contract]

EVENTS = 100


@pytest.fixture(autouse=True)
def _over_grpc(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")


def _asks_for_patience(request: Any, context: Any) -> None:
    """Answer that it may be tried again, a little later."""
    info = RetryInfo()
    info.retry_delay.nanos = 100_000_000
    packed = Packed()
    packed.Pack(info)
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    details = Status(code=exhausted.value[0], message="busy", details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
    context.abort(exhausted, "busy")


def _events(client: Client, recorder: Recorder) -> None:
    for number in range(EVENTS):
        client.log_event("mine", f"<{number}>" + 1_000 * "x")
    recorder.wait_for(lambda: len(recorder.events()) == EVENTS, "all events, at the service")


def _wait_for_failures(client: Client, number: int) -> None:
    """Wait until log records were given up for now so often."""
    assert client.cluster is not None
    emitter = client.cluster.scheduler.plugins[NAME].session._emitter
    wait_until(lambda: emitter.send_failures().get("logs", 0) >= number)


def _wait_for_events(collector: GrpcCollector) -> None:
    with collector.changed:
        assert collector.changed.wait_for(
            lambda: len(collector.log_records("dask.event")) >= EVENTS, PATIENCE
        ), len(collector.log_records("dask.event"))


@pytest.mark.parametrize(
    "how",
    [None, "hang", grpc.StatusCode.UNAVAILABLE, _asks_for_patience],
    ids=["nobody", "hanging", "unavailable", "asks for patience"],
)
def test_a_collector_that_comes_back_gets_all_log_records(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: GrpcMisbehaviour,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://localhost:{port}")
    collector = GrpcCollector(misbehaves=how, port=port)
    if how is not None:
        collector.__enter__()
    register(events__allow=["mine"], logs__transmit=False)
    _events(client, recorder)
    _wait_for_failures(client, 2)
    # On a busy machine it may take longer to answer.
    collector.misbehaves = None
    if how is None:
        collector.__enter__()
    try:
        _wait_for_events(collector)
        assert not any("unsent" in what for beat in recorder.beats for what in beat.drops)
        assert len(warnings_in(caplog)) == 1
        close_plugin(client)
    finally:
        collector.__exit__()


def test_what_is_too_large_for_a_collector_is_halved_and_arrives(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # It takes none at first, so that many are sent at once.
    with GrpcCollector(misbehaves=grpc.StatusCode.UNAVAILABLE, max_bytes=40_000) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        register(events__allow=["mine"], logs__transmit=False)
        _events(client, recorder)
        collector.misbehaves = None
        _wait_for_events(collector)
        told = [text for text in warnings_in(caplog) if "RESOURCE_EXHAUSTED" in text]
        assert len(told) == 1
        assert "larger than max" in told[0]
        assert not any("unsent log record" in beat.drops for beat in recorder.beats)
        assert len(collector.log_records("dask.event")) == EVENTS
        close_plugin(client)


def test_what_a_collector_takes_but_for_some_is_counted_and_warned_of(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def partly(request: Any, context: Any) -> Any:
        if isinstance(request, ExportLogsServiceRequest):
            logs = ExportLogsServiceResponse()
            logs.partial_success.rejected_log_records = 7
            logs.partial_success.error_message = "too old; password=hunter2"
            return logs
        if isinstance(request, ExportMetricsServiceRequest):
            return ExportMetricsServiceResponse()
        return ExportTraceServiceResponse()

    with GrpcCollector(misbehaves=partly) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        register()
        client.submit(sum, [1, 2]).result()
        drops = recorder.wait_for(
            lambda: next(
                (b.drops for b in recorder.beats if b.drops.get("rejected log record", 0) > 7), None
            ),
            "the drops of more than one batch, told",
        )
        assert drops["rejected log record"] % 7 == 0
        assert "unsent log record" not in drops
        close_plugin(client)
    (told,) = warnings_in(caplog)
    assert "at least 7 log records rejected: too old; password=[scrubbed]" in told


@pytest.mark.parametrize(
    "how", ["hang", grpc.StatusCode.UNAVAILABLE], ids=["hanging", "unavailable"]
)
def test_what_a_collector_does_not_take_is_counted_and_told_as_the_plugin_closes(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    how: GrpcMisbehaviour,
) -> None:
    # The SDK would go on for so long.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    with GrpcCollector(misbehaves=how) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        register()
        client.submit(sum, [1, 2]).result()
        recorder.computation()
        with collector.changed:
            assert collector.changed.wait_for(lambda: collector.refused, PATIENCE)
        close_within_its_deadline(client)
        assert recorder.beats[-1].phase == "stop"
        recorder.wait_for(
            lambda: {"unsent span", "unsent log record"} <= set(recorder.beats[-1].drops),
            "the drops, told",
        )


def test_a_certificate_that_is_not_trusted_costs_one_line(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    with (
        GrpcCollector(Files(tmp_path / "files")) as collector,
        scheduler_process(
            *("--preload", "daskscope"),
            DASK_DASKSCOPE__TOKEN=TOKEN,
            DASK_DASKSCOPE__ENDPOINT=recorder.url,
            DASK_DASKSCOPE__INTERVAL="100ms",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        ) as scheduler,
    ):
        assert scheduler.process.stdout is not None
        for line in scheduler.process.stdout:
            assert "ssl_transport_security" not in line  # where gRPC's core says it
            if "CERTIFICATE_VERIFY_FAILED" in line:
                assert "see OTEL_EXPORTER_OTLP_CERTIFICATE" in line
                break
        beats = len(recorder.beats)
        recorder.wait_for(lambda: len(recorder.beats) > beats + 10, "more beats")
        assert "CERTIFICATE_VERIFY_FAILED" not in scheduler.stop()
    assert not collector.requests
