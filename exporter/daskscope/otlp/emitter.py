"""Emits snapshots as metrics, traces and logs through OpenTelemetry."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from opentelemetry.trace import SpanContext

from daskscope import names, protocol
from daskscope.config import Settings
from daskscope.containment import Contained, contain
from daskscope.otlp.environment import OTLPEnvironment, Signal, Who
from daskscope.otlp.logs import Logs
from daskscope.otlp.metrics import Metrics
from daskscope.otlp.queues import Exporters
from daskscope.otlp.traces import Traces
from daskscope.privacy import Cleared
from daskscope.scrubbing import Scrubber

logger = logging.getLogger("daskscope")

Part = TypeVar("Part")

# The bounds of the histogram of durations, by the setting ``otlp.histogram``.
_BOUNDS: dict[str, tuple[float, ...] | None] = {
    "all": names.DURATION_BOUNDS,
    "few": names.FEW_DURATION_BOUNDS,
    "none": None,
}


@dataclass(frozen=True, slots=True)
class _Parts:
    who: Who
    metrics: Metrics | None
    traces: Traces | None
    logs: Logs | None


class Emitter:
    """Turns filtered snapshots into metrics, spans and log events. Runs in a thread of its own.

    ``send_failures`` returns the failed requests of other senders, by kind of data; ``waiting`` the
    length of each queue; ``service_is_well`` whether heartbeats arrive. ``drops`` counts data that
    was dropped because of a bound. ``began_at`` is when the plugin began to count, in seconds since
    the epoch.
    """

    def __init__(
        self,
        settings: Settings,
        destination: OTLPEnvironment,
        send_failures: Callable[[], Mapping[str, int]],
        waiting: Callable[[], Mapping[str, int]],
        service_is_well: Callable[[], bool],
        drops: Counter[str],
        began_at: float,
    ) -> None:
        self._settings = settings
        self._drops = drops
        self._began_at = began_at
        self._contained = Contained(drops)
        self._exporters = Exporters(destination, settings.interval, service_is_well, drops)
        self._others_failures = send_failures
        self._waiting = waiting
        self._parts: _Parts | None = None

    def emit(self, snapshot: Cleared) -> None:
        """Emit one snapshot."""
        if self._parts is None:
            self._parts = self._start(snapshot.cluster)
        self._parts.who.name = snapshot.cluster.name
        for part in (self._parts.metrics, self._parts.traces, self._parts.logs):
            if part is not None:
                with self._contained:
                    part.observe(snapshot)

    def send_failures(self) -> dict[str, int]:
        """Return the failed requests by kind of data, including those of other senders."""
        return {**self._others_failures(), **self._exporters.failures}

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        self._exporters.end_overdue()

    def close(self) -> None:
        """Send each batch only once from now on, without retries. From any thread."""
        self._exporters.close()

    def give_up(self) -> None:
        """Stop sending, and count all waiting data as lost. From any thread."""
        self._exporters.give_up()

    def shutdown(self) -> None:
        """Send waiting data and shut down. It may take as long as the exporters' timeouts."""
        self._exporters.close()
        if self._parts is not None:
            if self._parts.logs is not None:
                self._parts.logs.shutdown()
            if self._parts.traces is not None:
                self._parts.traces.shutdown()
            if self._parts.metrics is not None:
                self._parts.metrics.shutdown(timeout=10)

    def _start(self, cluster: protocol.Cluster) -> _Parts:
        """Make each part once. If one fails, log a warning and go on without it."""
        who = Who(cluster, Scrubber(self._settings.scrub))
        traces = None
        if self._settings.traces_transmit:
            traces = self._made("traces", partial(self._make_traces, who))
        context = (lambda computation: None) if traces is None else traces.context
        return _Parts(
            who,
            self._made("metrics", partial(self._make_metrics, who, cluster.prices)),
            traces,
            self._made("logs", partial(self._make_logs, who, context)),
        )

    def _made(self, signal: Signal, make: Callable[[], Part]) -> Part | None:
        try:
            return make()
        except Exception as error:
            contain(error, self._drops)
            logger.warning("daskscope: %s cannot be sent over OTLP (%r).", signal, error)
            return None

    def _make_traces(self, who: Who) -> Traces:
        return Traces(self._exporters.spans(), who, self._settings, self._drops)

    def _make_metrics(self, who: Who, prices: protocol.Prices | None) -> Metrics:
        return Metrics(
            self._exporters.metrics(),
            who,
            self._settings.interval,
            self.send_failures,
            self._waiting,
            prices,
            self._drops,
            self._began_at,
            _BOUNDS[self._settings.otlp_histogram],
        )

    def _make_logs(self, who: Who, span: Callable[[str], SpanContext | None]) -> Logs:
        return Logs(self._exporters.logs(), who, self._settings.interval, span, self._drops)
