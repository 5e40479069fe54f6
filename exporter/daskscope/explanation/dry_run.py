"""Processes a snapshot up to the point of sending, to see what would be sent.

The snapshot goes through ``privacy`` to a heartbeat and to the OTLP exporters, up to a transport
that stores the requests instead of sending them.
"""

from __future__ import annotations

import dataclasses
import gzip
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from requests.adapters import BaseAdapter

from daskscope import codec, protocol
from daskscope.config import Settings
from daskscope.delivery.queue import DeliveryQueue
from daskscope.explanation.decode import READERS
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.snapshot import Observed
from daskscope.otlp.emitter import Emitter
from daskscope.otlp.environment import OTLPEnvironment, Signal, disabled_by_environment
from daskscope.privacy import Privacy
from daskscope.scrubbing import SCRUBBED, Scrubber


@dataclass(frozen=True)
class OwnNumbers:
    """A plugin's own numbers: failed requests by kind of data, and the length of each queue."""

    send_failures: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)


class DryRun:
    """The data that would be sent for a snapshot, with some settings and clients' opt-outs.

    ``own`` are the plugin's numbers, which are sent, too. ``content`` is the data by kind
    (``heartbeat``, ``metrics``, ``traces``, ``logs``), and ``destinations`` are the addresses by
    kind. ``bytes`` and ``gzip`` are the sizes of all bodies together, before and after compression
    by the settings. ``scrubbed`` is how many secrets were replaced.
    """

    def __init__(
        self, settings: Settings, observed: Observed, own: OwnNumbers, refusals: OptOuts
    ) -> None:
        cluster = dataclasses.replace(observed.cluster, tags=settings.tags, prices=settings.prices)
        observed = dataclasses.replace(observed, cluster=cluster)
        cleared = Privacy(settings, refusals, Counter()).clear(observed)
        bodies: dict[str, list[_Body]] = {}
        addresses: dict[str, str] = {}
        if not settings.otlp_only:
            pending = DeliveryQueue(0, Counter(observed.drops))
            pending.add(cleared)
            # This heartbeat contains the code, too, which the service otherwise asks for.
            body = codec.encode(pending.beat_to_spool(observed.status.at))
            bodies["heartbeat"] = [_Body(body, len(gzip.compress(body, 5)))]
            addresses["heartbeat"] = f"{settings.endpoint}/api/v1/heartbeats"
        if settings.otlp_enabled and not disabled_by_environment():
            destination = _Nowhere(settings)
            emitter = Emitter(
                settings,
                destination,
                lambda: own.send_failures,
                lambda: own.waiting,
                lambda: True,
                Counter(),
                observed.status.at,
            )
            emitter.emit(cleared)
            emitter.shutdown()
            for signal, kept in destination.kept.items():
                if kept.bodies:
                    # Metrics are sent for the snapshot, and once more at the shutdown.
                    bodies[signal] = kept.bodies[:1] if signal == "metrics" else kept.bodies
                    addresses[signal] = destination.address(signal)
        every = [one for many in bodies.values() for one in many]
        self.bytes = sum(len(one.content) for one in every)
        self.gzip = sum(one.as_sent for one in every)
        self.scrubbed = sum(one.content.count(SCRUBBED.encode()) for one in every)
        # An address may contain credentials.
        scrubber = Scrubber()
        ways = [way for way in READERS if way in bodies]
        self.destinations = {way: scrubber.scrub(addresses[way], protocol.MAX_TEXT) for way in ways}
        self.content = {way: READERS[way]([one.content for one in bodies[way]]) for way in ways}


@dataclass(frozen=True)
class _Body:
    """The uncompressed content of one request, and its bytes as sent."""

    content: bytes
    as_sent: int


class _Nowhere(OTLPEnvironment):
    """A destination that sends nothing: it stores the requests by signal.

    It always uses OTLP over HTTP; over gRPC the content would be the same.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.kept: dict[Signal, _KeepingSession] = {}

    def _made(self, signal: Signal) -> Any:
        session = self.kept[signal] = _KeepingSession()
        return self._over_http(signal, session=session)


class _KeepingSession(requests.Session):
    """Sends nothing, and stores the bodies of requests."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[_Body] = []
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Keep(self))


class _Keep(BaseAdapter):
    def __init__(self, session: _KeepingSession) -> None:
        super().__init__()
        self._session = session

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body = request.body
        assert isinstance(body, bytes)
        as_sent = len(body)
        encoding = request.headers.get("Content-Encoding")
        if encoding == "gzip":
            body = gzip.decompress(body)
        elif encoding == "deflate":
            body = zlib.decompress(body)
        self._session.bodies.append(_Body(body, as_sent))
        response = requests.Response()
        response.status_code = 200
        return response

    def close(self) -> None:
        pass
