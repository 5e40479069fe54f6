"""OpenTelemetry's providers for one cluster: whom to tell, and as whom.

Nothing global is set or read but the ``OTEL_*`` variables: an application's own providers stay as
they are. Exporters never log on their own; their failures are counted here, and warned of once.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from daskscope import names, protocol
from daskscope.emit.destination import Destination, Signal
from daskscope.scrubbing import Scrubber

logger = logging.getLogger("daskscope")

#: Attributes of every span and log record are few; the SDK's defaults suffice.
SCOPE = "daskscope"

Result = TypeVar("Result")

#: Exports by way of a function that is told the signal, what its items are called and how many.
_Send = Callable[[Signal, str, int, Callable[[], Any]], Any]


def resource(cluster: protocol.Cluster) -> Resource:
    """Return who speaks: the attributes of DESIGN's contract and what ``OTEL_*`` variables add."""
    attributes: dict[str, str] = {
        names.SERVICE_NAME: "dask",
        names.SERVICE_NAMESPACE: cluster.workspace or "default",
        names.CLUSTER_NAME: cluster.name,
        names.HOST_NAME: cluster.host,
    }
    attributes |= {
        key: str(value) for key, value in OTELResourceDetector().detect().attributes.items()
    }
    # Whatever the environment says: another instance would be another series at every start.
    attributes[names.SERVICE_INSTANCE_ID] = attributes[names.CLUSTER_ID] = cluster.id
    return Resource(attributes)


class Exporters:
    """OTLP exporters for metrics, spans and logs that count their failures and what these cost."""

    def __init__(
        self, destination: Destination, service_is_well: Callable[[], bool], drops: Counter[str]
    ) -> None:
        """``service_is_well`` returns whether heartbeats arrive: if not, that was warned of."""
        self._destination = destination
        self._service_is_well = service_is_well
        self._drops = drops
        self.failures: Counter[str] = Counter()
        self._warned = False

    def metrics(self) -> MetricExporter:
        """Return an exporter of metrics."""
        return _Metrics(self._make("metrics"), self._send)

    def spans(self) -> SpanExporter:
        """Return an exporter of spans."""
        return _Spans(self._make("traces"), self._send)

    def logs(self) -> LogRecordExporter:
        """Return an exporter of log records."""
        return _Logs(self._make("logs"), self._send)

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        for session in tuple(self._destination.sessions):
            session.end_overdue()

    def _make(self, signal: Signal) -> Any:
        _silence()
        _quiet.on = True
        try:
            return self._destination.exporter(signal)
        except Exception as error:  # a variable that names no file, and the like
            return _Unable(error)
        finally:
            _quiet.on = False

    def _send(
        self, signal: Signal, what: str, items: int, export: Callable[[], Result]
    ) -> Result | None:
        """Export, and keep the SDK silent meanwhile. None says that it raised an exception.

        ``items`` are counted as dropped, as ``what``, if it fails.
        """
        _silence()
        _quiet.on, _quiet.last = True, None
        result: Result | None = None
        try:
            result = export()
        except Exception as error:
            # Its text, not its repr: that of an OSError does not name the file.
            _quiet.last = f"{type(error).__name__}: {error}"
        finally:
            _quiet.on = False
        if getattr(result, "name", None) != "SUCCESS":
            self.failures[signal] += 1
            if items:
                self._drops[what] += items
            self._warn(signal, _quiet.last or "no answer")
        return result

    def _warn(self, signal: Signal, why: str) -> None:
        elsewhere = self._destination.is_elsewhere(signal)
        if not self._warned and (elsewhere or self._service_is_well()):
            self._warned = True
            logger.warning(
                "daskscope: %s could not be sent over OTLP to %s (%s). The cluster runs on; "
                "totals are sent again, this is the only warning.",
                signal,
                self._destination.address(signal),
                Scrubber().scrub(why, 300),
            )


class _Unable:
    """Stands in for an exporter that cannot be made, and says why at each try."""

    _preferred_temporality = _preferred_aggregation = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def export(self, *_: Any, **__: Any) -> None:
        raise self._error

    def shutdown(self) -> None:
        pass


class _Metrics(MetricExporter):
    def __init__(self, exporter: Any, send: _Send) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._send = send

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        # Totals: what did not arrive now is part of what is sent next.
        result = self._send(
            "metrics",
            "",
            0,
            lambda: self._exporter.export(metrics_data, timeout_millis, **kwargs),
        )
        return result or MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown()


class _Spans(SpanExporter):
    def __init__(self, exporter: Any, send: _Send) -> None:
        self._exporter = exporter
        self._send = send

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._send(
            "traces", "unsent span", len(spans), lambda: self._exporter.export(spans)
        )
        return result or SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Logs(LogRecordExporter):
    def __init__(self, exporter: Any, send: _Send) -> None:
        self._exporter = exporter
        self._send = send

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        result = self._send(
            "logs", "unsent log record", len(batch), lambda: self._exporter.export(batch)
        )
        return result or LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Quiet(threading.local):
    on = False
    last: str | None = None


_quiet = _Quiet()


def _swallow(record: logging.LogRecord) -> bool:
    """Let a log record of the SDK pass, unless it stems from one of our own requests."""
    if _quiet.on:
        _quiet.last = record.getMessage()
    return not _quiet.on


def _silence() -> None:
    # A filter counts only where a record is made, so it goes on each of the SDK's own loggers.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("opentelemetry."):
            logging.getLogger(name).addFilter(_swallow)  # once, however often
