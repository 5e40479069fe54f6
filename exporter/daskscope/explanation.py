"""What would be sent from a cluster, switch by switch: not described, but made.

The same snapshot goes the way that every other goes, through ``privacy`` to a beat and to
OpenTelemetry's exporters, up to a transport that keeps what it is given. That is done with the
settings in force, and again with each switch turned off: what differs is what the switch sends.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
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
from daskscope.observe.groups import Traced
from daskscope.observe.snapshot import Observed
from daskscope.privacy import Privacy
from daskscope.report.pending import KEYS, Pending
from daskscope.scrubbing import SCRUBBED, Scrubber, shortened

#: Rows of each kind that are remembered, the latest: as many as go with one beat.
MAX_ROWS = 40

#: Each switch, as in ``daskscope.yaml``, and its field of the settings when it is off.
SWITCHES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("computation.code.transmit", {"code_transmit": False}),
    ("computation.exceptions.transmit", {"exceptions_transmit": False}),
    ("events.allow", {"events_allow": ()}),
    ("profile.transmit", {"profile_transmit": False}),
    ("logs.transmit", {"logs_transmit": False}),
    ("traces.transmit", {"traces_transmit": False}),
    ("otlp.enabled", {"otlp_enabled": False}),
    ("tags", {"tags": {}}),
    ("prices", {"prices": None}),
)

#: Characters of a setting's value in the overview.
MAX_VALUE = 40

#: What a part is called that no switch leaves out.
ALWAYS = "always"


@dataclass(frozen=True)
class Part:
    """What one switch sends. Sizes in bytes: of the bodies, and of the same compressed.

    ``sends`` holds just that, by the way it goes (``heartbeat``, ``metrics``, ``traces``,
    ``logs``). It is empty where the switch is off, and where there is nothing of the kind now. A
    part may be in two parts: logs go over OTLP, so both switches leave them out.
    """

    setting: str
    value: Any
    sends: dict[str, Any]
    bytes: int
    gzip: int

    @property
    def on(self) -> bool:
        """Return whether the switch is on."""
        return bool(self.value)

    def shown(self, width: int | None = None) -> str:
        """Return its value for people, no longer than ``width``; ``off`` if it is."""
        if self.setting == ALWAYS:
            return ""
        if not self.on:
            return "off"
        text = json.dumps(self.value, default=dataclasses.asdict, ensure_ascii=False)
        return text if width is None else shortened(text, width)


@dataclass(frozen=True, repr=False)
class Explanation:
    """What is sent from a cluster, as :func:`daskscope.explain` found it.

    ``problem`` says why there is none: then nothing is sent. ``destinations`` are the addresses by
    the way it goes, ``bytes`` and ``gzip`` the sizes of all bodies together, ``scrubbed`` how many
    secrets were taken out. Printed, it shows all of it; its repr is an overview.
    """

    problem: str | None = None
    cluster: str = ""
    cluster_id: str = ""
    at: datetime | None = None
    interval: float = 0.0
    destinations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bytes: int = 0
    gzip: int = 0
    scrubbed: int = 0
    parts: tuple[Part, ...] = ()

    def __getitem__(self, setting: str) -> Part:
        return next(part for part in self.parts if part.setting == setting)

    def __repr__(self) -> str:
        if self.problem is not None:
            return self.overview()
        return (
            f"{self.overview()}\n\n"
            'print() shows all of it; ["events.allow"].sends is what one setting sends.'
        )

    def __str__(self) -> str:
        if self.problem is not None:
            return self.overview()
        return "\n".join([self.overview(), *self._details()])

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(dataclasses.asdict(self), default=str, indent=2, ensure_ascii=False)

    def overview(self) -> str:
        """Return where it goes, and how many bytes each setting sends."""
        if self.problem is not None:
            return f"daskscope sends nothing: {self.problem}"
        rows = [("setting", "value", "bytes", "compressed")]
        rows += [
            (part.setting, part.shown(MAX_VALUE), f"{part.bytes:,}", f"{part.gzip:,}")
            for part in self.parts
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            [
                f"daskscope reports on {self.cluster} ({self.cluster_id}) "
                f"every {self.interval:g} s:",
                *(f"  {way} to {address}" for way, address in self.destinations.items()),
                "",
                f"This is what it sends of its state now and of the latest rows, at most {MAX_ROWS}"
                f" of a kind: {_size(self.bytes, self.gzip)}.",
                "A row goes once, and again when it has changed. "
                f"Secrets that were scrubbed: {self.scrubbed}.",
                "",
                *(
                    f"  {setting:{widths[0]}}  {value:{widths[1]}}"
                    f"  {size:>{widths[2]}}  {compressed:>{widths[3]}}"
                    for setting, value, size, compressed in rows
                ),
            ]
        )

    def _details(self) -> Iterator[str]:
        for part in self.parts:
            yield ""
            if part.setting == ALWAYS:
                yield f"{ALWAYS}, whatever is set: {_size(part.bytes, part.gzip)}"
            elif not part.on:
                yield f"{part.setting} is off: nothing of it is sent"
            elif not part.sends:
                yield f"{part.setting} is {part.shown()}: there is nothing of it now"
            else:
                yield (
                    f"{part.setting} is {part.shown()}: {_size(part.bytes, part.gzip)}; "
                    "were it off, this would not be sent:"
                )
            for way, sent in part.sends.items():
                yield f"  {way}"
                yield from _told(sent)


def explain(settings: Settings, observed: Observed) -> Explanation:
    """Return what of ``observed`` is sent with ``settings``. Takes a while: not for a loop."""
    full = _Sent(settings, observed)
    parts = []
    for setting, off in SWITCHES:
        field = next(iter(off))
        without = _Sent(dataclasses.replace(settings, **off), observed)
        sends = _difference(full.told, without.told) or {}
        # Ids of spans are made anew each time, and compress a little better or worse.
        less = max(full.gzip - without.gzip, 0)
        sizes = (full.bytes - without.bytes, less) if sends else (0, 0)
        parts.append(Part(setting, getattr(settings, field), sends, *sizes))
    all_off = {field: value for _, off in SWITCHES for field, value in off.items()}
    least = _Sent(dataclasses.replace(settings, **all_off), observed)
    parts.insert(0, Part(ALWAYS, True, least.told, least.bytes, least.gzip))
    return Explanation(
        cluster=observed.cluster.name,
        cluster_id=observed.cluster.id,
        at=datetime.fromtimestamp(observed.status.at, UTC),
        interval=settings.interval,
        destinations=full.destinations,
        bytes=full.bytes,
        gzip=full.gzip,
        scrubbed=full.scrubbed,
        parts=tuple(parts),
    )


class Recent:
    """What was observed last: the state, and the latest rows of each kind. Thread-safe.

    Rows are handed out once; these stay here, in the scheduler's process, to be explained.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Observed | None = None
        self._rows: dict[str, dict[Hashable, Any]] = {}
        self._traced: dict[str, Traced] = {}

    def add(self, observed: Observed) -> None:
        """Remember a snapshot."""
        with self._lock:
            self._last = observed
            for field in dataclasses.fields(observed):
                rows = getattr(observed, field.name)
                if not isinstance(rows, tuple) or field.name in _STATE:
                    continue
                known = self._rows.setdefault(field.name, {})
                # What stays alive for as long as it is a key has an id of its own.
                key_of = KEYS.get(field.name, id)
                for row in rows:
                    key = key_of(row)
                    known.pop(key, None)
                    known[key] = row
                while len(known) > MAX_ROWS:
                    del known[next(iter(known))]
            for computation, traced in observed.traced.items():
                before = self._traced.pop(computation, None)
                # Samples are handed out once, too.
                self._traced[computation] = traced if before is None or traced.samples else before
            while len(self._traced) > MAX_ROWS:
                del self._traced[next(iter(self._traced))]

    def has(self, observed: Observed) -> bool:
        """Return whether ``observed`` was the last one."""
        return self._last is observed

    def snapshot(self) -> Observed | None:
        """Return one snapshot of it all."""
        with self._lock:
            if self._last is None:
                return None
            rows: dict[str, Any] = {
                field: tuple(known.values()) for field, known in self._rows.items()
            }
            return dataclasses.replace(self._last, traced=dict(self._traced), **rows)


#: What each snapshot holds all of.
_STATE = frozenset({"prefixes", "times"})


class _Sent:
    """What is sent of a snapshot with some settings."""

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


def _difference(full: Any, less: Any) -> Any:
    """Return what of ``full`` is not in ``less``; None if nothing."""
    if full == less:
        return None
    if isinstance(full, dict) and isinstance(less, dict):
        found = {key: _difference(value, less.get(key)) for key, value in full.items()}
        return {key: value for key, value in found.items() if value is not None}
    if isinstance(full, list) and isinstance(less, list):
        if len(full) == len(less):
            pairs = map(_difference, full, less)
            return [pair for pair in pairs if pair is not None]
        left = Counter(map(_canonical, less))
        found_rows = []
        for row in full:
            text = _canonical(row)
            if left[text]:
                left[text] -= 1
            else:
                found_rows.append(row)
        return found_rows
    return full


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _told(sent: Any) -> Iterator[str]:
    if not isinstance(sent, dict):
        yield from _rows(sent, "    ")
        return
    for field, value in sent.items():
        if isinstance(value, list):
            yield f"    {field}: {len(value)}"
            yield from _rows(value, "      ")
        else:
            yield f"    {field}: {json.dumps(value, ensure_ascii=False)}"


def _rows(values: list[Any], indent: str) -> Iterator[str]:
    for value in values:
        yield indent + json.dumps(value, ensure_ascii=False)


def _size(uncompressed: int, compressed: int) -> str:
    return f"{uncompressed:,} bytes, {compressed:,} compressed"
