"""OTLP goes where and how the ``OTEL_*`` variables say; TLS included."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Collection
from concurrent import futures
from pathlib import Path
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

import grpc
import opentelemetry._logs
import opentelemetry.metrics
import opentelemetry.trace
import pytest
import trustme
from distributed import Client
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from daskscope.delivery.http import proxy_in_clear
from daskscope.session import CLOSE_DEADLINE
from tests.exporter.conftest import TOKEN, Register, close_plugin, take_off, warnings_in
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("sends_soon", "closes_before_servers")

SIGNALS = {"/v1/metrics", "/v1/traces", "/v1/logs"}
GRPC_REQUESTS: dict[str, Any] = {
    "metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "traces": trace_service_pb2.ExportTraceServiceRequest,
    "logs": logs_service_pb2.ExportLogsServiceRequest,
}
GrpcMisbehaviour: TypeAlias = grpc.StatusCode | str | Callable[[Any, Any], Any] | None


class Files:
    """Certificates in files: of an authority, a server and a client."""

    def __init__(self, folder: Path, host: str = "localhost") -> None:
        authority = trustme.CA()
        self.server = authority.issue_cert(host)
        client = authority.issue_cert("client@localhost")
        folder.mkdir()
        self.authority = str(folder / "authority.pem")
        self.key = str(folder / "key.pem")
        self.certificate = str(folder / "certificate.pem")
        authority.cert_pem.write_to_path(self.authority)
        client.private_key_pem.write_to_path(self.key)
        client.cert_chain_pems[0].write_to_path(self.certificate)

    def context(self, *, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.configure_cert(context)
        if ask_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _all_signals(collector: Recorder, client: Client) -> None:
    client.submit(sum, [1, 2]).result()
    collector.wait_for(
        lambda: {request.path for request in collector.requests} >= SIGNALS, "all signals"
    )


def test_all_signals_go_to_the_endpoint_for_all_compressed(
    client: Client, register: Register, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Team=a%20b")
    register()
    _all_signals(collector, client)
    assert {request.headers["content-encoding"] for request in collector.requests} == {"gzip"}
    assert {request.headers["x-team"] for request in collector.requests} == {"a b"}
    assert not [request for request in collector.requests if request.headers["authorization"]]


@pytest.mark.parametrize(
    ("signal", "other"), [("traces", "logs"), ("metrics", "traces"), ("logs", "metrics")]
)
def test_a_signals_own_variables_win(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    signal: str,
    other: str,
) -> None:
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    with Recorder() as for_one:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-for=all")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv(f"{own}_ENDPOINT", for_one.url + "/my/way")
        monkeypatch.setenv(f"{own}_HEADERS", "x-for=one")
        monkeypatch.setenv(f"{own}_COMPRESSION", "none")
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{other.upper()}_ENDPOINT", "")
        register()
        client.submit(sum, [1, 2]).result()
        request = for_one.wait_for(lambda: next(iter(for_one.requests), None), "the one")
        assert (request.path, request.headers["x-for"]) == ("/my/way", "one")
        assert request.headers["content-encoding"] is None
        collector.wait_for(
            lambda: {r.path for r in collector.requests} == SIGNALS - {f"/v1/{signal}"},
            "the others",
        )
        assert {r.headers["x-for"] for r in collector.requests} == {"all"}
        assert {r.headers["content-encoding"] for r in collector.requests} == {"gzip"}


def test_headers_for_another_backend_do_not_go_to_the_service(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer another,x-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "authorization=Bearer logs,x-team=a")
    # It would be no authority of the service's.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", __file__)
    register()
    client.submit(sum, [1, 2]).result()
    request = collector.wait_for(lambda: next(iter(collector.requests), None), "the traces")
    assert request.headers["authorization"] == "Bearer another"
    recorder.wait_for(
        lambda: {request.path for request in recorder.requests} >= SIGNALS - {"/v1/traces"},
        "the others",
    )
    otlp = [request for request in recorder.requests if request.path in SIGNALS]
    assert {request.headers["authorization"] for request in otlp} == {f"Bearer {TOKEN}"}
    assert not [request for request in otlp if request.headers["x-key"]]
    logs = [request for request in otlp if request.path == "/v1/logs"]
    assert {request.headers["x-team"] for request in logs} == {"a"}


@pytest.mark.uncounted("rows go to another service")
def test_nor_do_certificates_for_another_backend_count_for_the_service(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    files, others = Files(tmp_path / "files"), Files(tmp_path / "others")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", files.authority)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", others.authority)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(tmp_path / "missing"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(tmp_path / "missing"))
    with Recorder(files.context()) as service:
        register(endpoint=service.url)
        client.submit(sum, [1, 2]).result()
        service.wait_for(
            lambda: {request.path for request in service.requests} >= SIGNALS - {"/v1/traces"},
            "what goes to the service",
        )
        close_plugin(client)


def test_headers_alone_leave_the_service_its_token(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a,authorization=Bearer another")
    register()
    _all_signals(recorder, client)
    otlp = [request for request in recorder.requests if request.path in SIGNALS]
    assert {request.headers["authorization"] for request in otlp} == {f"Bearer {TOKEN}"}
    assert {request.headers["x-team"] for request in otlp} == {"a"}


def test_a_netrc_takes_no_tokens_place(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    register()
    _all_signals(recorder, client)
    assert {r.headers["authorization"] for r in recorder.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.uncounted("rows go to another service")
@pytest.mark.parametrize("mutual", [False, True])
def test_https_with_an_authority_of_ones_own_for_both_ways_out(
    client: Client,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mutual: bool,
) -> None:
    ours, theirs = Files(tmp_path / "ours"), Files(tmp_path / "theirs")
    with (
        Recorder(ours.context()) as service,
        Recorder(theirs.context(ask_client=mutual)) as collector,
    ):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", ours.authority)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", theirs.authority)
        if mutual:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", theirs.key)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", theirs.certificate)
        registration = register(endpoint=service.url)
        assert registration.problem is None
        _all_signals(collector, client)
        close_plugin(client)


@pytest.mark.uncounted("rows go to another service")
def test_a_certificate_that_is_not_trusted_is_told_once_for_each_way_out(
    client: Client,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files(tmp_path / "files")
    with Recorder(files.context()) as service, Recorder(files.context()) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        registration = register(endpoint=service.url)
        assert "REQUESTS_CA_BUNDLE" in (registration.problem or "")
        assert client.submit(sum, [1, 2]).result() == 3
        _wait_for_warnings(caplog, 2)
        told = warnings_in(caplog)
        close_plugin(client)
    assert len([text for text in told if service.url in text]) == 1
    assert len([text for text in told if collector.url in text]) == 1


def _wait_for_warnings(caplog: pytest.LogCaptureFixture, number: int) -> None:
    arrived = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if len(warnings_in(caplog)) >= number:
                arrived.set()

    watch = Watch()
    logging.getLogger().addHandler(watch)
    try:
        assert len(warnings_in(caplog)) >= number or arrived.wait(PATIENCE), warnings_in(caplog)
    finally:
        logging.getLogger().removeHandler(watch)


def test_values_that_make_no_sense_cost_a_warning_and_no_signal(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    register()
    _all_signals(collector, client)
    told = warnings_in(caplog)
    for value in ("soon", "zip", "http/json"):
        assert len([text for text in told if value in text]) == 1
    assert len(told) == 3


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_certificate_file_that_is_not_there_costs_a_warning(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file.pem")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    register()
    client.submit(sum, [1, 2]).result()
    recorder.computation()
    _wait_for_warnings(caplog, 1)
    (told,) = warnings_in(caplog)
    assert "/no/such/file.pem" in told


def test_the_users_own_attributes_and_service_name_go_along(
    client: Client, register: Register, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES",
        "team.name=blue,dask.cluster.id=mine,db.password=hunter22,customer=CUST-4711",
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-dask")
    identity = register(scrub=[r"CUST-\d+"]).cluster_id
    _all_signals(collector, client)
    sent = metrics_service_pb2.ExportMetricsServiceRequest()
    sent.ParseFromString(next(r.body for r in collector.requests if r.path == "/v1/metrics"))
    attributes = {
        pair.key: pair.value.string_value for pair in sent.resource_metrics[0].resource.attributes
    }
    assert attributes["team.name"] == "blue"
    assert attributes["service.name"] == "my-dask"
    assert attributes["dask.cluster.id"] == identity
    assert (attributes["db.password"], attributes["customer"]) == ("[scrubbed]", "[scrubbed]")


def test_an_applications_own_providers_stay_as_they_are(
    client: Client, register: Register, recorder: Recorder
) -> None:
    def providers() -> list[Any]:
        return [
            opentelemetry.trace.get_tracer_provider(),
            opentelemetry.metrics.get_meter_provider(),
            opentelemetry._logs.get_logger_provider(),
        ]

    before = providers()
    register()
    _all_signals(recorder, client)
    assert all(one is other for one, other in zip(before, providers(), strict=True))
    assert not any(type(one).__module__.startswith("opentelemetry.sdk") for one in before)


# --- proxies --------------------------------------------------------------------------------------


class Tunnel(socketserver.ThreadingTCPServer):
    """A proxy that answers CONNECT, whatever the host, with a way to a port of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.asked_for: list[str] = []
        tunnel = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                tunnel.asked_for.append(self.rfile.readline().decode())
                while self.rfile.readline().strip():
                    pass
                with socket.create_connection(("127.0.0.1", port)) as there:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    back = threading.Thread(target=self._pump, args=(there, self.connection))
                    back.start()
                    self._pump(self.connection, there)
                    back.join()

            @staticmethod
            def _pump(source: socket.socket, sink: socket.socket) -> None:
                with contextlib.suppress(OSError):
                    while data := source.recv(1 << 16):
                        sink.sendall(data)
                    sink.shutdown(socket.SHUT_WR)

        super().__init__(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


@pytest.mark.uncounted("rows go to another service")
def test_both_ways_out_go_through_a_proxy(
    client: Client, register: Register, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.invalid:4318")
    assert register(endpoint="http://service.invalid:8690").problem is None
    _all_signals(collector, client)
    hosts = {(request.headers["host"], request.path in SIGNALS) for request in collector.requests}
    # An earlier test's plugin may still be saying goodbye.
    assert hosts >= {("collector.invalid:4318", True), ("service.invalid:8690", False)}


def test_both_ways_out_go_past_a_proxy_that_is_not_for_them(
    client: Client, register: Register, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    assert register().problem is None
    _all_signals(collector, client)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_way_to_this_machine_goes_through_a_proxy(
    client: Client,
    register: Register,
    recorder: Recorder,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", collector.url)
    url = recorder.url.replace("127.0.0.1", host)
    assert register(endpoint=url).problem is None
    _all_signals(recorder, client)
    close_plugin(client)
    assert not collector.arrived


def test_a_proxy_s_own_refusal_is_not_told_as_the_service_s_alone(
    register: Register, collector: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.misbehave = lambda path: 403
    where = urlsplit(collector.url).netloc
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:secret@{where}")
    problem = register(endpoint="http://service.invalid:8690").problem or ""
    assert f"or the proxy {where} in front of it" in problem
    assert "secret" not in problem


def test_which_proxy_reads_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://ada:p@ss@proxy.example:3128")
    assert proxy_in_clear("http://service.example:8690") == "proxy.example:3128"
    for url in (
        "https://service.example",
        "http://127.0.0.1:8690",
        "http://127.9.9.9",
        "http://[::1]:8690",
        "http://LocalHost:8690",
        "http://0.0.0.0:8690",
    ):
        assert proxy_in_clear(url) is None
    monkeypatch.setenv("NO_PROXY", "service.example")
    assert proxy_in_clear("http://service.example:8690") is None


@pytest.mark.uncounted("rows go to another service")
def test_tls_goes_through_a_proxy_untouched(
    client: Client, register: Register, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = Files(tmp_path / "files", host="daskscope.invalid")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", files.authority)
    with Recorder(files.context()) as service:
        port = urlsplit(service.url).port
        assert port is not None
        with Tunnel(port) as tunnel:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{tunnel.server_address[1]}")
            assert register(endpoint="https://daskscope.invalid").problem is None
            _all_signals(service, client)
            close_plugin(client)
    assert {line.split()[1] for line in tunnel.asked_for} == {"daskscope.invalid:443"}


# --- gRPC -----------------------------------------------------------------------------------------


class GrpcCollector:
    """A collector that takes OTLP over gRPC and keeps what comes.

    Or it ``misbehaves``: it answers with a status to everything, or as a function of the request
    and gRPC's context does, or ``"hang"``s until the other side ends it. ``refused`` counts these.
    """

    def __init__(
        self,
        files: Files | None = None,
        misbehaves: GrpcMisbehaviour = None,
        *,
        port: int = 0,
        max_bytes: int = 4 << 20,
    ) -> None:
        self.misbehaves = misbehaves
        self.refused = 0
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", max_bytes)]
        )
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
            self._servicer(metrics_service_pb2.ExportMetricsServiceResponse), self._server
        )
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
            self._servicer(trace_service_pb2.ExportTraceServiceResponse), self._server
        )
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(
            self._servicer(logs_service_pb2.ExportLogsServiceResponse), self._server
        )
        if files is None:
            self.url = f"http://localhost:{self._server.add_insecure_port(f'localhost:{port}')}"
        else:
            credentials = grpc.ssl_server_credentials(
                [
                    (
                        files.server.private_key_pem.bytes(),
                        b"".join(pem.bytes() for pem in files.server.cert_chain_pems),
                    )
                ],
                Path(files.authority).read_bytes(),
                require_client_auth=True,
            )
            port = self._server.add_secure_port("localhost:0", credentials)
            self.url = f"https://localhost:{port}"

    def __enter__(self) -> GrpcCollector:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _servicer(self, response: type[Any]) -> Any:
        collector = self

        class Servicer:
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
                how = collector.misbehaves
                with collector.changed:
                    if how is None:
                        collector.requests.append(request)
                        collector.metadata.append(dict(context.invocation_metadata()))
                    else:
                        collector.refused += 1
                    collector.changed.notify_all()
                if isinstance(how, grpc.StatusCode):
                    context.abort(how, "told to misbehave")
                if how == "hang":
                    ended = threading.Event()
                    if context.add_callback(ended.set):
                        ended.wait()
                return how(request, context) if callable(how) else response()

        return Servicer()

    def log_records(self, event: str) -> list[Any]:
        """The log records of that name."""
        return [
            record
            for request in list(self.requests)
            if isinstance(request, GRPC_REQUESTS["logs"])
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
            if record.event_name == event
        ]

    def wait_for(self, signals: Collection[str]) -> None:
        """Wait until those signals have come, and no other."""
        expected = {GRPC_REQUESTS[signal] for signal in signals}
        with self.changed:
            assert self.changed.wait_for(
                lambda: {type(request) for request in self.requests} == expected, PATIENCE
            ), {type(request) for request in self.requests}


@pytest.mark.parametrize("secure", [False, True])
def test_grpc_where_the_environment_asks_for_it(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    secure: bool,
) -> None:
    files = Files(tmp_path / "files") if secure else None
    if files is not None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", files.authority)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", files.key)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", files.certificate)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a")
    with GrpcCollector(files) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        register()
        client.submit(sum, [1, 2]).result()
        collector.wait_for(GRPC_REQUESTS)
        assert {metadata["x-team"] for metadata in collector.metadata} == {"a"}
        close_plugin(client)
    assert {request.path for request in recorder.requests} == {"/api/v1/heartbeats"}


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        (None, "UNAVAILABLE"),
        ("hang", "DEADLINE_EXCEEDED"),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"),
    ],
    ids=["refused", "hanging", "unauthenticated", "exhausted"],
)
def test_over_grpc_a_collector_that_takes_nothing_costs_one_warning_and_holds_up_nothing(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: grpc.StatusCode | str | None,
    cause: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    # Those that answer do so in time, also where the machine is busy.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1" if how in (None, "hang") else "5")
    with contextlib.ExitStack() as stack:
        url = f"http://localhost:{free_port()}"
        if how is not None:
            url = stack.enter_context(GrpcCollector(misbehaves=how)).url
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        assert register().problem is None
        assert client.submit(sum, [1, 2]).result() == 3
        recorder.computation()
        _wait_for_warnings(caplog, 1)
        if isinstance(how, grpc.StatusCode):  # it was answered that it is in vain
            recorder.wait_for(lambda: recorder.beats[-1].drops.get("unsent log record"), "drops")
        close_within_its_deadline(client)
        assert recorder.beats[-1].phase == "stop"
        # What was kept until now, too.
        recorder.wait_for(lambda: recorder.beats[-1].drops.get("unsent log record"), "drops")
        assert not recorder.beats[-1].drops.get("refused row")
    (told,) = warnings_in(caplog)
    assert cause in told
    assert urlsplit(url).netloc in told
    assert "only warning" in told


def close_within_its_deadline(client: Client) -> None:
    assert client.cluster is not None
    scheduler = client.cluster.scheduler

    async def close() -> None:
        # A little more: this machine may be busy. What hangs does so for longer.
        await asyncio.wait_for(take_off(scheduler), 2 * CLOSE_DEADLINE)

    client.sync(close)


def test_without_the_package_for_grpc_it_is_http_and_a_warning_says_how_to_get_it(
    client: Client,
    register: Register,
    collector: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    register()
    _all_signals(collector, client)
    told = warnings_in(caplog)
    assert len(told) == 1, told
    assert "pip install '/path/to/daskscope[grpc]'" in told[0]
