"""What closing the plugin takes and loses while the other side does not do its part."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import chain, repeat
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from distributed import Client, LocalCluster

import daskscope
from daskscope.plugin import NAME
from daskscope.session import CLOSE_DEADLINE
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import inc
from tests.patience import wait_until

pytestmark = [pytest.mark.usefixtures("sends_soon"), pytest.mark.contract]


class Drip:
    """An answer that comes a byte at a time, and does not end before it is told to."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
        for byte in chain(head, repeat(ord(" "))):
            if self.end.wait(0.2):
                return
            try:
                handler.wfile.write(bytes([byte]))
            except OSError:
                return


@pytest.fixture
def drip() -> Iterator[Drip]:
    drip = Drip()
    yield drip
    drip.end.set()


def _plugin(client: Client) -> Any:
    assert client.cluster is not None
    return client.cluster.scheduler.plugins[NAME]


def _wait_until_ended(running: Any) -> None:
    """Wait for the threads that closing did not wait for."""
    wait_until(running._done, what="the end of the threads")


def _wait_until_asked(server: Recorder) -> None:
    server.wait_for(lambda: server.refused, "a request that is under way")


@pytest.mark.uncounted("a part of it does not arrive before the plugin is closed")
@pytest.mark.parametrize("who", ["service", "collector", "both"])
def test_an_answer_that_drips_in_does_not_hold_up_closing(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    drip: Drip,
    who: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    register()
    servers = {"service": [recorder], "collector": [collector], "both": [recorder, collector]}
    for server in servers[who]:
        server.misbehave = lambda path: drip
    client.submit(inc, 1, pure=False).result()
    for server in servers[who]:
        _wait_until_asked(server)
    plugin = _plugin(client)
    running = plugin.session

    async def close() -> None:
        # A little more: this machine may be busy. What drips does so for longer.
        await asyncio.wait_for(plugin.close(), 2 * CLOSE_DEADLINE)

    client.sync(close)
    # Who has an answer does what there is to do.
    if who == "collector":
        assert recorder.beats[-1].phase == "stop"
        told = recorder.wait_for(
            lambda: recorder.beats[-1].drops, "what the collector did not take"
        )
        assert told["unsent log record"] > 0
    if who == "service":
        assert collector.log_records("dask.cluster.stopped")
    # It drips on, and nobody waits for it any more.
    _wait_until_ended(running)


@pytest.mark.parametrize("refused", [401, 503])
def test_what_a_collector_did_not_take_is_counted_and_told_as_the_plugin_closes(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    refused: int,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    register(logs__transmit=False, events__allow=["mine"])
    collector.wait_for(lambda: collector.log_records("dask.cluster.started"), "the start")
    collector.misbehave = lambda path: refused if path != "/v1/metrics" else None
    client.submit(inc, 1, pure=False).result()
    for number in range(10):
        client.log_event("mine", number)
    recorder.wait_for(lambda: len(recorder.events()) == 10, "all events, at the service")
    recorder.computation()
    plugin = _plugin(client)
    running = plugin.session
    client.sync(plugin.close)
    _wait_until_ended(running)
    # Of the computation, its group and its task; its start and end, the events, and the end.
    assert plugin.drops == Counter({"unsent span": 3, "unsent log record": 2 + 10 + 1})
    last = recorder.beats[-1]
    assert (last.phase, last.drops) == ("stop", plugin.drops)


@pytest.mark.own_cluster
def test_a_scheduler_that_closes_leaves_no_thread_and_no_connection_of_ours(
    recorder: Recorder,
) -> None:
    before = _threads()
    gc.disable()  # which would close what is forgotten, at some time
    try:
        with (
            LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
            running = _plugin(client).session
            client.submit(inc, 1).result()
            paths = {"/api/v1/heartbeats", "/v1/metrics", "/v1/logs", "/v1/traces"}
            recorder.wait_for(
                lambda: paths <= {request.path for request in list(recorder.requests)}, "all"
            )
            assert _connections_to(recorder) == len(paths)
            assert len(_threads() - before) == 9
        _wait_until_ended(running)
        assert _connections_to(recorder) == 0
        assert not _threads() - before
    finally:
        gc.enable()


def _connections_to(recorder: Recorder) -> int:
    port = int(recorder.url.rpartition(":")[2])
    found = psutil.Process().net_connections()
    return sum(bool(it.raddr) and it.raddr.port == port for it in found)


def _threads() -> set[threading.Thread]:
    ours = ("daskscope-", "Otel")
    return {thread for thread in threading.enumerate() if thread.name.startswith(ours)}
