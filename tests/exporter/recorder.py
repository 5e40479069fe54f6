"""A real HTTP server that takes what a plugin sends, and misbehaves when told to."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1 import logs_pb2

from daskscope import codec, names, protocol
from tests.patience import PATIENCE
from tests.ports import free_port

# Two threads that ask msgspec for the same type for the first time at once can end the process.
_decode = msgspec.json.Decoder(protocol.Heartbeat).decode

Misbehaviour = int | str | Callable[[BaseHTTPRequestHandler], None] | None

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)

Otlp = TypeVar(
    "Otlp", ExportLogsServiceRequest, ExportMetricsServiceRequest, ExportTraceServiceRequest
)

_OTLP: Mapping[str, Any] = {
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
}


@dataclass(frozen=True)
class Request:
    """One request as it came; ``body`` is decompressed.

    ``headers`` are looked up without regard to case: the OpenTelemetry SDK sends lower case.
    """

    path: str
    headers: Message
    body: bytes

    # Decoded once: tests look at all that came whenever something comes.

    @cached_property
    def beat(self) -> protocol.Heartbeat | None:
        """The heartbeat, if it is one."""
        return _decode(self.body) if self.path == "/api/v1/heartbeats" else None

    @cached_property
    def otlp(self) -> Any:
        """What is in an OTLP request, None in another."""
        kind = _OTLP.get(self.path)
        return None if kind is None else kind.FromString(self.body)


class Recorder:
    """Answers heartbeats as the service does, and keeps all that it gets.

    ``misbehave`` is a function of the path that returns a status to answer with instead, or
    ``"hang"`` to answer nothing until :meth:`stop`, or ``"drop"`` to cut the connection, or a
    function that answers itself, or None. With ``tls`` it speaks HTTPS, at ``localhost``. Without
    ``keep_alive`` each request needs a connection of its own.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, port: int = 0, *, keep_alive: bool = True
    ) -> None:
        #: Those that were answered well.
        self.requests: list[Request] = []
        #: All of them, with all of their addresses.
        self.arrived: list[Request] = []
        self.refused = 0
        #: Of the last request that was answered with a status as told to.
        self.last_refused = b""
        self.misbehave: Callable[[str], Misbehaviour] = lambda path: None
        #: A body that holds these bytes is answered with 400.
        self.misbehave_on: bytes | None = None
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        #: What the answers to heartbeats ask of the cluster, each time; JSON objects.
        self.commands: list[Any] = []
        #: What they say was not stored as it was sent; each one a row that was left out.
        self.corrections: tuple[protocol.Correction, ...] = ()
        #: Whether they ask for the code that was not sent yet.
        self.asks_for_code = True
        self._known_code: set[str] = set()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

            def do_POST(self) -> None:
                recorder.handle(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port or free_port()), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if tls is not None:
            # The handshake in the request's own thread: one that fails must not end the server.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.url = f"https://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; its port refuses connections from then on."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        target = handler.path
        # A proxy is asked for a whole address.
        handler.path = urlsplit(target).path
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = Request(handler.path, handler.headers, body)
        self.arrived.append(
            request if target == handler.path else Request(target, handler.headers, body)
        )
        how = self.misbehave(handler.path)
        if self.misbehave_on is not None and self.misbehave_on in body:
            how = 400
        if how == "hang":
            self._count_refused()
            self.stopping.wait()
            return
        if how == "drop":
            self._count_refused()
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if callable(how):
            self._count_refused()
            how(handler)
            return
        if isinstance(how, int):
            self.last_refused = body
            self._count_refused()
            self._answer(handler, how, b'{"title": "told to", "detail": "told to misbehave"}')
            return
        answer = b""
        beat = request.beat
        if beat is not None:
            self._known_code |= {code.hash for code in beat.code}
            named = {
                frame.code
                for computation in beat.computations
                for frame in computation.frames or ()
                if frame.code
            }
            reply = protocol.Reply(
                server_time=time.time(),
                interval=0.1,
                code_wanted=tuple(named - self._known_code) if self.asks_for_code else (),
                url=f"{self.url}/clusters/{beat.cluster.id}",
                corrections=self.corrections,
                rows_left_out=len(self.corrections),
            )
            fields = json.loads(codec.encode(reply))
            answer = json.dumps({**fields, "commands": self.commands}).encode()
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()
        self._answer(handler, 200, answer)

    def _count_refused(self) -> None:
        with self.changed:
            self.refused += 1
            self.changed.notify_all()

    @staticmethod
    def _answer(
        handler: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    # --- what came --------------------------------------------------------------------------------

    @property
    def beats(self) -> list[protocol.Heartbeat]:
        beats = (request.beat for request in list(self.requests))
        return [beat for beat in beats if beat is not None]

    def otlp(self, kind: type[Otlp]) -> list[Otlp]:
        """The OTLP requests of that kind, in the order in which they came."""
        return [request.otlp for request in list(self.requests) if _OTLP.get(request.path) is kind]

    @property
    def bytes(self) -> bytes:
        """All that ever left the plugin's process: lines, headers and bodies of requests."""
        return b"\n".join(
            f"{request.path}\n{request.headers}\n".encode() + request.body
            for request in list(self.arrived)
        )

    def computations(self) -> dict[str, protocol.Computation]:
        return self._latest(lambda beat: beat.computations, lambda row: row.id)

    def groups(self, computation: str) -> dict[str, protocol.TaskGroup]:
        """The computation's groups by prefix."""
        rows = self._latest(lambda beat: beat.task_groups, lambda row: (row.computation, row.name))
        return {row.prefix: row for row in rows.values() if row.computation == computation}

    def activities(self) -> dict[str, dict[str, float]]:
        """What the threads did, by prefix and activity."""
        rows = self._latest(lambda beat: beat.activities, lambda row: row.prefix)
        return {prefix: row.seconds for prefix, row in rows.items()}

    def all_groups(self) -> list[protocol.TaskGroup]:
        """The groups of all computations."""
        rows = self._latest(lambda beat: beat.task_groups, lambda row: (row.computation, row.name))
        return list(rows.values())

    def failures(self) -> list[protocol.Failure]:
        rows = self._latest(
            lambda beat: beat.failures, lambda row: (row.computation, row.fingerprint)
        )
        return list(rows.values())

    def events(self) -> list[protocol.Event]:
        return list(self._latest(lambda beat: beat.events, lambda row: row.id).values())

    def losses(self) -> list[protocol.WorkerLoss]:
        return list(self._latest(lambda beat: beat.worker_losses, lambda row: row.id).values())

    def log_records(self, event: str) -> list[logs_pb2.LogRecord]:
        """The OTLP log records of that name."""
        return [
            record
            for sent in self.otlp(ExportLogsServiceRequest)
            for resource in sent.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
            if record.event_name == event
        ]

    def points(self, metric: names.Metric) -> list[dict[tuple[str, ...], float]]:
        """The metric's values in each OTLP export, by its attributes' values as declared."""
        exports = []
        for sent in self.otlp(ExportMetricsServiceRequest):
            values: dict[tuple[str, ...], float] = {}
            for resource in sent.resource_metrics:
                for scope in resource.scope_metrics:
                    for found in scope.metrics:
                        if found.name != metric.name:
                            continue
                        for point in getattr(found, found.WhichOneof("data")).data_points:
                            told = {pair.key: pair.value.string_value for pair in point.attributes}
                            assert set(told) == set(metric.attributes), metric.name
                            key = tuple(told[name] for name in metric.attributes)
                            values[key] = point.as_double
            exports.append(values)
        return exports

    def times(self, metric: names.Metric) -> list[float]:
        """The time of the metric's points in each OTLP export, in epoch seconds: one for all."""
        exports = []
        for sent in self.otlp(ExportMetricsServiceRequest):
            found = {
                point.time_unix_nano / 1e9
                for resource in sent.resource_metrics
                for scope in resource.scope_metrics
                for one in scope.metrics
                if one.name == metric.name
                for point in getattr(one, one.WhichOneof("data")).data_points
            }
            (at,) = found
            exports.append(at)
        return exports

    def shutdowns(self) -> list[protocol.Shutdown]:
        """The rows of shutdowns in the order they were told, each once."""
        in_order = sorted(self.beats, key=lambda beat: beat.seq)
        return list(dict.fromkeys(row for beat in in_order for row in beat.shutdowns))

    def code(self) -> dict[str, protocol.Code]:
        return self._latest(lambda beat: beat.code, lambda row: row.hash)

    def computation(
        self, fits: Callable[[protocol.Computation], object] = lambda row: True
    ) -> protocol.Computation:
        """Wait for a computation that has ended and fits, and return it."""
        return self.wait_for(
            lambda: next(
                (
                    row
                    for row in self.computations().values()
                    if row.status != "running" and fits(row)
                ),
                None,
            ),
            "a computation that has ended",
        )

    def wait_for(self, look: Callable[[], Row | None], what: str) -> Row:
        """Return what ``look`` finds as soon as it finds something."""
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while True:
                found = look()
                if found:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    beats = [json.loads(codec.encode(beat)) for beat in self.beats[-2:]]
                    raise AssertionError(f"never came: {what}; last beats: {beats}")
                # What is looked at may be elsewhere, too, and change without a word to this.
                self.changed.wait(min(left, 0.25))

    def _latest(
        self,
        rows: Callable[[protocol.Heartbeat], tuple[Row, ...]],
        key: Callable[[Row], Key],
    ) -> dict[Key, Row]:
        in_order = sorted(self.beats, key=lambda beat: beat.seq)
        return {key(row): row for beat in in_order for row in rows(beat)}
