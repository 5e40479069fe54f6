"""Whatever is wrong with the service or the collector: the cluster runs, and little is said."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import trustme
from distributed import Client
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from daskscope import session as running
from daskscope.background import Background
from daskscope.delivery import backoff, sender
from daskscope.delivery import queue as pending
from daskscope.observe.snapshot import weight
from daskscope.otlp import queues, retry
from daskscope.plugin import NAME
from daskscope.privacy import Privacy
from daskscope.session import CLOSE_DEADLINE
from tests.exporter.conftest import Register
from tests.exporter.recorder import Misbehaviour, Recorder
from tests.patience import PATIENCE, wait_on_loop
from tests.ports import free_port

HOST = "daskscope.invalid"


def inc(x: int) -> int:
    return x + 1


# --- the faults -----------------------------------------------------------------------------------


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """Cut the connection with an RST."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    os.close(handler.connection.detach())


def _drip(handler: BaseHTTPRequestHandler) -> None:
    """Answer a byte at a time, for as long as someone listens."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    pace = threading.Event()
    try:
        while not pace.wait(0.05):
            handler.wfile.write(b" ")
    except OSError:
        pass


def _asks_for_patience(handler: BaseHTTPRequestHandler) -> None:
    """Answer 429 with a date by a clock that is ten years slow: to come again in ten minutes."""
    now = datetime.now(UTC) - timedelta(days=3650)
    handler.send_response_only(429)
    handler.send_header("Date", format_datetime(now, usegmt=True))
    handler.send_header("Retry-After", format_datetime(now + timedelta(minutes=10), usegmt=True))
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@dataclass(frozen=True)
class Fault:
    """``cause`` is what the warning says. Rows are ``kept`` by the part that sends to the service
    or to the collector until the other side is well.
    """

    cause: str
    how: Misbehaviour = None
    kept: tuple[str, ...] = ("service", "collector")


FAULTS = {
    "refused": Fault("connection refused"),
    "reset": Fault("connection reset", _reset),
    "hanging": Fault("no answer in time", "hang"),
    "slow": Fault("no answer in time", _drip),
    "401": Fault("refuse|401", 401, ("service",)),
    "403": Fault("refuse|403", 403, ("service",)),
    "413": Fault("413", 413, ()),
    "429": Fault("429", 429),
    "500": Fault("500", 500, ("service",)),
    "TLS": Fault("self-signed certificate|unable to get local issuer"),
    "name": Fault("host name is unknown"),
    "clock": Fault("not yet valid"),
}


class Faulty:
    """A server that has a fault until it is healed, and gets it again when told to."""

    def __init__(self, name: str, authority: trustme.CA, switch: Callable[[bool], None]) -> None:
        self.fault = FAULTS[name]
        self._name = name
        self._switch_name = switch
        self._context: ssl.SSLContext | None = None
        self._healed = False
        if name in ("TLS", "clock"):
            good, bad = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
            authority.issue_cert("localhost").configure_cert(good)
            if name == "clock":
                future = datetime.now(UTC) + timedelta(days=365)
                authority.issue_cert("localhost", not_before=future).configure_cert(bad)
            else:
                trustme.CA().issue_cert("localhost").configure_cert(bad)
            # Each connection is told which it is: to change the certificate of a context while
            # others shake hands with it ends the process.
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

            def choose(connection: Any, *_: object) -> None:
                connection.context = good if self._healed else bad

            self._context.sni_callback = choose
        self._port = free_port()
        self._server: Recorder | None = None
        secure = self._context is not None
        host = HOST if name == "name" else "localhost" if secure else "127.0.0.1"
        self.url = f"{'https' if secure else 'http'}://{host}:{self._port}"

    @property
    def recorder(self) -> Recorder:
        assert self._server is not None
        return self._server

    def up(self) -> None:
        if self._server is None:
            self._server = Recorder(self._context, self._port, keep_alive=False)
            self._server.__enter__()

    def down(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def fail(self) -> None:
        if self._name == "refused":
            self.down()
            return
        self.up()
        self._healed = False
        if self._name == "name":
            self._switch_name(False)
        self.recorder.misbehave = lambda path: self.fault.how

    def heal(self) -> None:
        self.up()
        self._healed = True
        self._switch_name(True)
        self.recorder.misbehave = lambda path: None


@pytest.fixture
def switch_name(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Make the host's name known, or unknown."""
    ask, known = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == HOST:
            if not known.is_set():
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = "127.0.0.1"
        return ask(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return lambda is_known: known.set() if is_known else known.clear()


@pytest.fixture
def make_faulty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, switch_name: Callable[[bool], None]
) -> Iterator[Callable[[str], Faulty]]:
    authority = trustme.CA()
    path = str(tmp_path / "authority.pem")
    authority.cert_pem.write_to_path(path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", path)
    made: list[Faulty] = []

    def make(name: str) -> Faulty:
        made.append(Faulty(name, authority, switch_name))
        return made[-1]

    yield make
    for faulty in made:
        faulty.down()


class Warnings(logging.Handler):
    """What was warned of, by us or by what we use."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._records: list[logging.LogRecord] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("daskscope", "opentelemetry", "urllib3")):
            with self._changed:
                self._records.append(record)
                self._changed.notify_all()

    def of(self, url: str) -> list[str]:
        return [
            record.getMessage()
            for record in self._records
            if record.name != "daskscope" or url in record.getMessage()
        ]

    def wait_for_one(self, url: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.of(url), PATIENCE)


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    yield warnings
    logging.getLogger().removeHandler(warnings)


@pytest.fixture(autouse=True)
def _soon(sends_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr(sender, "TIMEOUT", (1.0, 1.0))


def _close(client: Client) -> None:
    """Close the plugin, as the scheduler does; it ends within its deadline."""
    assert client.cluster is not None
    scheduler = client.cluster.scheduler

    async def close() -> None:
        # A little more: this machine may be busy. What hangs does so for longer.
        async with asyncio.timeout(2 * CLOSE_DEADLINE):
            # At once: a beat that finds the plugin gone is its last, and no goodbye.
            await scheduler.plugins.pop(NAME).close()

    client.sync(close)


def _work(client: Client, number: int) -> None:
    """Run tasks; the cluster is unharmed."""
    assert client.submit(inc, number, pure=False).result() == number + 1


def _finished(recorder: Recorder) -> int:
    return sum(row.status == "finished" for row in recorder.computations().values())


def _told(recorder: Recorder) -> int:
    return len(recorder.log_records("dask.computation.finished"))


def _told_once(faulty: Faulty, warnings: Warnings) -> None:
    causes = faulty.fault.cause.split("|")
    told = warnings.of(faulty.url)
    assert len([text for text in told if any(cause in text for cause in causes)]) == 1, told
    # Where the machine is busy, and where a server comes or goes, a request may meet something else
    # as well: of that, too, there is one warning.
    kinds = [re.findall(r"\((.+)\)\.|$", text)[0] for text in told]
    assert len(set(kinds)) == len(kinds), told


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.uncounted("a part of it does not arrive before the plugin is closed")
@pytest.mark.parametrize("name", FAULTS)
def test_a_service_with_a_fault_at_start_then_while_running_and_at_close(
    client: Client,
    register: Register,
    recorder: Recorder,
    make_faulty: Callable[[str], Faulty],
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", recorder.url)
    service = make_faulty(name)
    service.fail()
    register(endpoint=service.url)
    _work(client, 1)
    recorder.wait_for(lambda: _told(recorder) == 1, "the computation, told to the collector")
    warnings.wait_for_one(service.url)

    service.heal()
    if "service" not in service.fault.kept:
        service.recorder.wait_for(lambda: service.recorder.beats, "a beat")
        _work(client, 2)
    service.recorder.computation()

    told, finished = _told(recorder), _finished(service.recorder)
    service.fail()
    _work(client, 3)
    recorder.wait_for(lambda: _told(recorder) > told, "the next one, told to the collector")
    _close(client)

    service.heal()
    register(endpoint=service.url)
    if "service" in service.fault.kept:
        service.recorder.wait_for(
            lambda: _finished(service.recorder) > (0 if name == "refused" else finished),
            "what the last plugin left behind",
        )
    _close(client)
    _told_once(service, warnings)


@pytest.mark.parametrize("name", FAULTS)
def test_a_collector_with_a_fault_at_start_then_while_running_and_at_close(
    client: Client,
    register: Register,
    recorder: Recorder,
    make_faulty: Callable[[str], Faulty],
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    collector = make_faulty(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    collector.fail()
    assert register().problem is None
    _work(client, 1)
    recorder.computation()
    warnings.wait_for_one(collector.url)
    if "collector" not in collector.fault.kept:
        recorder.wait_for(
            lambda: recorder.beats[-1].drops.get("unsent log record"), "the drops, told"
        )

    collector.heal()
    _work(client, 2)
    told = 2 if "collector" in collector.fault.kept else 1
    collector.recorder.wait_for(lambda: _told(collector.recorder) >= told, "the log records")
    collector.recorder.wait_for(
        lambda: (
            {request.path for request in collector.recorder.requests}
            >= {"/v1/metrics", "/v1/traces", "/v1/logs"}
        ),
        "all signals",
    )
    if "collector" in collector.fault.kept:
        assert not any("unsent" in what for beat in recorder.beats for what in beat.drops)

    collector.fail()
    _work(client, 3)
    recorder.wait_for(lambda: _finished(recorder) == 3, "the computation, told to the service")
    _close(client)
    assert recorder.beats[-1].phase == "stop"
    _told_once(collector, warnings)


def _answers(status: int, body: bytes = b"", **headers: str) -> Misbehaviour:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        (
            _answers(301, Location="https://collector.invalid/v1/logs"),
            "301: it redirects to another address",
        ),
        (_answers(302, Location="/login"), "302: it redirects to another address"),
        (
            _answers(200, b"<html>Sign in!", Content_Type="text/html; charset=utf-8"),
            "with a web page",
        ),
    ],
    ids=["moved", "to a login page", "a page"],
)
def test_a_collector_that_is_elsewhere_has_not_taken_anything(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
    how: Misbehaviour,
    cause: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    collector.misbehave = lambda path: how
    register()
    _work(client, 1)
    recorder.wait_for(lambda: recorder.beats[-1].drops.get("unsent log record"), "the drops, told")
    (told,) = warnings.of(collector.url)
    assert cause in told
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in told
    _close(client)


def test_what_a_collector_takes_but_for_some_is_counted_and_warned_of(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 7
    answer.partial_success.error_message = "too old; password=hunter2"
    partly = _answers(200, answer.SerializeToString(), Content_Type="application/x-protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    collector.misbehave = lambda path: partly if path == "/v1/logs" else None
    register()
    _work(client, 1)
    drops = recorder.wait_for(
        lambda: next((b.drops for b in recorder.beats if "rejected log record" in b.drops), None),
        "the drops, told",
    )
    assert drops["rejected log record"] % 7 == 0
    assert "unsent log record" not in drops
    (told,) = warnings.of(collector.url)
    assert "at least 7 log records rejected: too old; password=[scrubbed]" in told
    assert "they are left out and counted" in told
    _close(client)


def test_what_a_collector_takes_at_the_second_try_is_not_warned_of(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.1)
    asked: set[str] = set()

    def refuse_once(path: str) -> Misbehaviour:
        if path in asked:
            return None
        asked.add(path)
        return 503 if path == "/v1/metrics" else "drop"

    collector.misbehave = refuse_once
    register()
    _work(client, 1)
    collector.wait_for(
        lambda: {request.path for request in collector.requests} == asked and len(asked) == 3,
        "all signals",
    )
    assert not warnings.of(collector.url)
    assert not any(beat.drops for beat in recorder.beats)
    _close(client)


def test_a_warning_names_where_it_went_whatever_the_environment_says_by_then(
    client: Client,
    register: Register,
    collector: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    register()
    collector.wait_for(lambda: collector.requests, "what is sent")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.invalid:4318")
    collector.misbehave = lambda path: 401
    warnings.wait_for_one(collector.url)
    _close(client)


@pytest.mark.parametrize("who", ["service", "collector"])
def test_what_hangs_is_ended_though_beats_are_an_hour_apart(
    client: Client,
    register: Register,
    recorder: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
) -> None:
    with Recorder() as hanging:
        collector, service = (recorder, hanging) if who == "service" else (hanging, recorder)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        hanging.misbehave = lambda path: _drip
        register(endpoint=service.url, interval="1h")
        warnings.wait_for_one(hanging.url)
        _close(client)
    assert "no answer in time" in warnings.of(hanging.url)[0]


@pytest.mark.uncounted("the service takes nothing")
def test_a_service_that_asks_for_patience_is_left_alone(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder() as service:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", recorder.url)
        service.misbehave = lambda path: _asks_for_patience
        register(endpoint=service.url)
        _several(recorder, "/v1/metrics")
        _work(client, 1)
        assert service.refused == 1
        _close(client)


@pytest.mark.uncounted("all of it is refused")
def test_a_service_that_finds_all_beats_too_large_is_not_asked_without_end(
    client: Client,
    register: Register,
    recorder: Recorder,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.5)
    limit = 30
    kinds = [replace(kind, limit=limit) for kind in pending._KINDS]
    monkeypatch.setattr(pending, "_KINDS", kinds)
    with Recorder() as service:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", recorder.url)
        register(endpoint=service.url, spool__directory="", events__allow=["mine"])
        service.wait_for(lambda: service.beats, "the first beat")
        service.misbehave = lambda path: 413
        for number in range(2 * limit):
            client.log_event("mine", f"<{number}>")
        _work(client, 1)
        service.wait_for(lambda: service.refused > 6, "some refused beats")
        _several(recorder, "/v1/metrics")
        # It is cut down to the fewest rows at once, and from then on goes once a snapshot at most.
        snapshots = sum(request.path == "/v1/metrics" for request in list(recorder.requests))
        assert service.refused <= 5 + snapshots

        (warning,) = warnings.of(service.url)
        assert "413" in warning
        assert "proxy" in warning
        assert client.cluster is not None
        ours = client.cluster.scheduler.plugins[NAME].session.sender
        assert ours.waiting() <= limit * len(kinds)

        service.misbehave = lambda path: None
        _work(client, 2)
        service.wait_for(lambda: not ours.waiting() and _finished(service), "what was kept")
        lost = 2 * limit - len(service.events())
        drops = service.beats[-1].drops
        assert drops["refused row"] > 0
        assert limit <= lost <= drops["refused row"] + drops["unsent event"]
        _close(client)


def test_a_collector_that_asks_for_patience_is_left_alone(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        collector.misbehave = lambda path: _asks_for_patience
        register()
        _work(client, 1)
        collector.wait_for(lambda: collector.refused == 3, "each signal")
        _work(client, 2)
        _several(recorder, "/api/v1/heartbeats")
        assert collector.refused == 3
        _close(client)


@pytest.mark.parametrize("bound", ["items", "bytes"])
def test_what_waits_for_a_collector_is_bounded_and_what_is_dropped_is_counted(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
) -> None:
    if bound == "items":
        monkeypatch.setenv("OTEL_BLRP_MAX_QUEUE_SIZE", "20")
    else:
        monkeypatch.setattr(queues, "MAX_RECORD_BYTES", 40_000)
    with Recorder() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        collector.misbehave = lambda path: 503
        register(events__allow=["mine"], logs__transmit=False)
        for number in range(100):
            client.log_event("mine", f"<{number}>" + 1_000 * "x")
        recorder.wait_for(lambda: recorder.beats[-1].drops.get("unsent log record"), "drops")
        recorder.wait_for(lambda: len(recorder.events()) == 100, "all events, at the service")
        collector.misbehave = lambda path: None

        def all_accounted_for() -> bool:
            received = len(collector.log_records("dask.event"))
            return 0 < received == 100 - recorder.beats[-1].drops["unsent log record"]

        collector.wait_for(all_accounted_for, "what was kept")
        _close(client)


def test_a_beat_that_goes_wrong_on_the_loop_is_counted_and_the_next_ones_go_on(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()

    def fail_once(observed: Any) -> int:
        monkeypatch.setattr(running, "weight", weight)
        raise ValueError("as it should")

    monkeypatch.setattr(running, "weight", fail_once)
    recorder.wait_for(
        lambda: bool(recorder.beats) and recorder.beats[-1].drops.get("internal error") == 1,
        "a beat after the one that failed, which counts it",
    )


def test_snapshots_are_put_off_while_others_wait_and_nothing_is_lost(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear, go_on = Privacy.clear, threading.Event()

    def clear_later(self: Privacy, observed: Any) -> Any:
        go_on.wait(PATIENCE)
        return clear(self, observed)

    monkeypatch.setattr(Privacy, "clear", clear_later)
    monkeypatch.setattr(running, "MAX_BEHIND", 2)
    asked = threading.Semaphore(0)
    waiting = Background.waiting

    def watched(self: Background[Any]) -> int:
        asked.release()
        return waiting(self)

    monkeypatch.setattr(Background, "waiting", watched)
    register(otlp__enabled=False)
    _work(client, 1)
    assert client.cluster is not None
    queue = client.cluster.scheduler.plugins[NAME].session._clear
    for _ in range(10):
        assert asked.acquire(timeout=PATIENCE)
        assert waiting(queue) <= 2
    go_on.set()
    recorder.computation()
    assert not recorder.beats[-1].drops
    _close(client)


def test_a_plugin_that_was_removed_before_it_is_closed_ends_once(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    assert client.cluster is not None
    removed = client.cluster.scheduler.plugins.pop(NAME)
    running = removed.session

    async def close() -> None:
        await wait_on_loop(lambda: not running._timer.is_running(), what="its next beat")
        await removed.close()

    client.sync(close)
    assert recorder.beats[-1].phase == "beat"


def _several(recorder: Recorder, path: str) -> None:
    """Wait until several intervals have passed."""

    def number() -> int:
        return sum(request.path == path for request in list(recorder.requests))

    before = number()
    recorder.wait_for(lambda: number() > before + 5, f"more for {path}")
