"""Sends a snapshot to nowhere, the way that every other goes, to see what would be sent of it.

It goes through ``privacy`` to a beat and to OpenTelemetry's exporters, up to a transport that keeps
what it is given.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import requests
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from requests.adapters import BaseAdapter

from daskscope import protocol
from daskscope.config import Settings
from daskscope.emit.destination import Destination, Signal
from daskscope.emit.emitter import Emitter, disabled_by_environment
from daskscope.observe.snapshot import Observed
from daskscope.privacy import Privacy
from daskscope.report.pending import Pending
from daskscope.scrubbing import SCRUBBED, Scrubber


class Rehearsal:
    """What is sent of a snapshot with some settings.

    ``told`` is the content by the way it goes (``heartbeat``, ``metrics``, ``traces``, ``logs``),
    and ``destinations`` are the addresses. ``bytes`` and ``gzip`` are the sizes of all bodies
    together, ``scrubbed`` is how many secrets were taken out.
    """

    def __init__(self, settings: Settings, observed: Observed) -> None:
        cluster = dataclasses.replace(observed.cluster, tags=settings.tags, prices=settings.prices)
        observed = dataclasses.replace(observed, cluster=cluster)
        cleared = Privacy(settings).clear(observed)
        pending = Pending(0, Counter(observed.drops))
        pending.add(cleared)
        # That one holds the code, too, which the service asks for where it lacks it.
        body = protocol.encode(pending.beat_to_spool(observed.status.at))
        bodies = {"heartbeat": [body]}
        addresses = {"heartbeat": f"{settings.endpoint}/api/v1/heartbeats"}
        if settings.otlp_enabled and not disabled_by_environment():
            destination = _Nowhere(settings)
            emitter = Emitter(settings, destination, dict, dict, lambda: True, Counter())
            emitter.emit(cleared)
            emitter.shutdown()
            for signal, kept in destination.kept.items():
                if kept.bodies:
                    bodies[signal] = kept.bodies
                    addresses[signal] = destination.address(signal)
        every = [one for many in bodies.values() for one in many]
        self.bytes = sum(map(len, every))
        self.gzip = sum(len(gzip.compress(one, 5)) for one in every)
        self.scrubbed = sum(one.count(SCRUBBED.encode()) for one in every)
        # An address may hold credentials.
        scrubber = Scrubber()
        self.destinations = {
            way: scrubber.scrub(address, protocol.MAX_TEXT) for way, address in addresses.items()
        }
        self.told = {way: _READERS[way](bodies[way]) for way in _READERS if way in bodies}


class _Nowhere(Destination):
    """Where nothing arrives: what would be sent over HTTP is kept, by signal.

    What goes over gRPC has the same content.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.kept: dict[Signal, _KeepingSession] = {}

    def exporter(self, signal: Signal) -> Any:
        session = self.kept[signal] = _KeepingSession()
        return self._over_http(signal, session=session)


class _KeepingSession(requests.Session):
    """Sends nothing, and keeps the bodies of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Keep(self))


class _Keep(BaseAdapter):
    def __init__(self, session: _KeepingSession) -> None:
        super().__init__()
        self._session = session

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body = request.body
        assert isinstance(body, bytes)
        encoding = request.headers.get("Content-Encoding")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding == "deflate":
            body = zlib.decompress(body)
        self._session.bodies.append(body)
        response = requests.Response()
        response.status_code = 200
        return response

    def close(self) -> None:
        pass


def _heartbeat(bodies: list[bytes]) -> Any:
    return {field: value for field, value in json.loads(bodies[0]).items() if value or value == 0}


def _metrics(bodies: list[bytes]) -> Any:
    told: dict[str, Any] = {}
    # Totals: the last ones say it all.
    for resource in ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics:
        told["resource"] = _attributes(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            points = getattr(metric, metric.WhichOneof("data")).data_points
            told[metric.name] = [
                {
                    **_attributes(point.attributes),
                    "value": point.as_double if hasattr(point, "as_double") else point.sum,
                }
                for point in points
            ]
    return told


def _traces(bodies: list[bytes]) -> Any:
    requests = map(ExportTraceServiceRequest.FromString, bodies)
    return [
        {
            "span": span.name,
            "trace": span.trace_id.hex(),
            **_attributes(span.attributes),
        }
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _logs(bodies: list[bytes]) -> Any:
    requests = map(ExportLogsServiceRequest.FromString, bodies)
    return [
        {
            "body": record.body.string_value,
            **({"trace": record.trace_id.hex()} if record.trace_id else {}),
            **_attributes(record.attributes),
        }
        for request in requests
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind in ("array_value", "kvlist_value", "bytes_value"):
        return next(iter(MessageToDict(value).values()))
    return None if kind is None else getattr(value, kind)


_READERS: dict[str, Callable[[list[bytes]], Any]] = {
    "heartbeat": _heartbeat,
    "metrics": _metrics,
    "traces": _traces,
    "logs": _logs,
}
