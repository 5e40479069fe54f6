"""OTLP to a team's own monitoring, without a daskscope service and without a token."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from opentelemetry import trace

import daskscope
from daskscope import names
from daskscope.otlp.sdk_private import silence
from tests.exporter.conftest import TOKEN, close_plugin, warnings_in
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.exporter.test_otlp_environment import SIGNALS
from tests.patience import PATIENCE

OTLP = "OTEL_EXPORTER_OTLP"

pytestmark = pytest.mark.usefixtures("sends_soon")


def counted(number: int) -> int:
    return number


def _paths(recorder: Recorder) -> set[str]:
    return {request.path for request in list(recorder.requests)}


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where undelivered heartbeats would go by default."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def registered(
    client: Client,
    recorder: Recorder,
    collector: Recorder,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[daskscope.Registration]:
    """A cluster that sends OTLP only. The recorder is where a service would be."""
    monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
    yield daskscope.register(client, endpoint=recorder.url, otlp__only=True, interval="100ms")
    close_plugin(client)


def test_a_cluster_sends_otlp_without_a_service_and_without_a_token(
    client: Client,
    registered: daskscope.Registration,
    recorder: Recorder,
    collector: Recorder,
    spool: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert repr(registered) == "<daskscope: sending OTLP only>"
    assert registered._repr_html_() == "<div>daskscope: sending OTLP only</div>"
    assert registered.cluster_id
    assert registered.url is None
    assert registered.problem is None
    assert client.gather(client.map(counted, range(5))) == list(range(5))
    collector.wait_for(
        lambda: any(sum(values.values()) == 5 for values in collector.points(names.TASK_COMPLETED)),
        "the tasks",
    )
    collector.wait_for(lambda: _paths(collector) == SIGNALS, "every signal")
    sends = daskscope.explain(client)
    assert set(sends.destinations) == {path.removeprefix("/v1/") for path in SIGNALS}
    assert recorder.url not in str(sends)
    close_plugin(client)
    assert not recorder.arrived
    assert not list(spool.iterdir())
    assert not warnings_in(caplog)


def test_a_client_with_a_token_gets_to_know_that_otlp_alone_is_sent(
    client: Client, registered: daskscope.Registration, recorder: Recorder
) -> None:
    with pytest.warns(UserWarning, match=r"otlp\.only"):
        second = daskscope.register(client, endpoint=recorder.url, token=TOKEN)
    assert second.url is None
    assert "otlp.only" in second.not_in_force
    assert not recorder.arrived


def test_a_signal_without_an_address_is_not_sent(
    client: Client, recorder: Recorder, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{OTLP}_METRICS_ENDPOINT", f"{collector.url}/v1/metrics")

    def has_parent(_: int) -> bool:
        return trace.get_current_span().get_span_context().is_valid

    daskscope.register(client, endpoint=recorder.url, otlp__only=True, interval="100ms")
    # A user's span would name one that is not sent.
    assert not client.submit(has_parent, 1, pure=False).result()
    collector.wait_for(lambda: any(collector.points(names.TASK_COMPLETED)), "metrics")
    close_plugin(client)
    assert _paths(collector) == {"/v1/metrics"}
    assert not recorder.arrived


@pytest.mark.parametrize("off", ["no endpoint", "OTEL_SDK_DISABLED"])
def test_where_nothing_would_be_sent_that_is_said(
    client: Client,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    off: str,
) -> None:
    if off == "OTEL_SDK_DISABLED":
        monkeypatch.setenv(f"{OTLP}_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    registration = daskscope.register(client, otlp__only=True)
    assert registration.cluster_id is None
    named = off if off == "OTEL_SDK_DISABLED" else f"no {OTLP}_ENDPOINT is set"
    assert named in (registration.problem or "")
    (warned,) = warnings_in(caplog)
    assert named in warned


def test_otlp_alone_needs_otlp() -> None:
    with pytest.raises(daskscope.ConfigurationError, match=r"daskscope\.otlp\.only is True"):
        daskscope.register(otlp__only=True, otlp__enabled=False)


def test_a_preloaded_scheduler_sends_otlp_only(collector: Recorder, spool: Path) -> None:
    environment: dict[str, Any] = {
        "DASK_DASKSCOPE__OTLP__ONLY": "true",
        "DASK_DASKSCOPE__INTERVAL": "100ms",
        f"{OTLP}_ENDPOINT": collector.url,
    }
    with (
        scheduler_process("--preload", "daskscope.preload", **environment) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address) as client,
    ):
        assert client.submit(counted, 1).result() == 1
        collector.wait_for(lambda: any(collector.points(names.TASK_COMPLETED)), "metrics")
        output = scheduler.stop()
    assert "WARNING" not in output
    assert "Traceback" not in output
    assert not list(spool.iterdir())


def test_loggers_of_the_sdk_have_a_filter_of_ours_only_while_a_request_is_sent() -> None:
    logger = logging.getLogger("opentelemetry.of.a.test")
    other = threading.Event()

    def send_meanwhile() -> None:
        with silence():
            sending.set()
            other.wait(PATIENCE)

    sending = threading.Event()
    thread = threading.Thread(target=send_meanwhile)
    logger.addFilter(users := logging.Filter("opentelemetry"))
    try:
        with silence():
            thread.start()
            assert sending.wait(PATIENCE)
            assert len(logger.filters) == 2
        assert len(logger.filters) == 2  # for the other thread
        other.set()
        thread.join()
        assert logger.filters == [users]
    finally:
        other.set()
        logger.removeFilter(users)
