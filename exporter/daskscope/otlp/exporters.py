"""OTLP exporters of the three signals, and the queues before them, as the SDK wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from daskscope.containment import contain
from daskscope.otlp.backlog import MAX_RECORD_BYTES, MAX_SPAN_BYTES, Backlog, LogQueue, SpanQueue
from daskscope.otlp.delta_temporality import DeltaExporter
from daskscope.otlp.environment import OTLPEnvironment, Signal
from daskscope.otlp.retry import Delivery, silence


class Exporters:
    """Makes exporters for metrics, spans and logs that never log on their own."""

    def __init__(
        self,
        destination: OTLPEnvironment,
        interval: float,
        service_is_well: Callable[[], bool],
        drops: Counter[str],
    ) -> None:
        """``interval`` in seconds. ``service_is_well`` returns whether heartbeats arrive: if not,
        that was warned of.
        """
        self._destination = destination
        self._drops = drops
        self._delivery = Delivery(destination, interval, service_is_well, drops)

    @property
    def failures(self) -> Counter[str]:
        """How often sending each signal has failed."""
        return self._delivery.failures

    def metrics(self) -> MetricExporter:
        """Return an exporter of metrics."""
        exporter = _Metrics(self._make("metrics"), self._delivery)
        kinds = self._destination.increments()
        return DeltaExporter(exporter, kinds) if kinds else exporter

    def spans(self) -> SpanProcessor:
        """Return a queue of spans, and what sends them."""
        backlog = Backlog("unsent span", MAX_SPAN_BYTES, "OTEL_BSP", self._drops)
        return SpanQueue(_Spans(self._make("traces"), self._delivery, backlog), backlog)

    def logs(self) -> LogRecordProcessor:
        """Return a queue of log records, and what sends them."""
        backlog = Backlog("unsent log record", MAX_RECORD_BYTES, "OTEL_BLRP", self._drops)
        return LogQueue(_Logs(self._make("logs"), self._delivery, backlog), backlog)

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        for session in tuple(self._destination.sessions.values()):
            session.end_overdue()

    def close(self) -> None:
        """Try once what waits, and keep nothing any more. From any thread."""
        self._delivery.close()

    def give_up(self) -> None:
        """Count all that waits as lost, and what is under way. From any thread."""
        self._delivery.give_up()

    def _make(self, signal: Signal) -> Any:
        try:
            with silence():
                return self._destination.exporter(signal)
        except Exception as error:  # a variable that names no file, and the like
            contain(error)
            return _Unable(error)


class _Unable:
    """Stands in for an exporter that cannot be made, and says why at each try."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def export(self, *_: Any, **__: Any) -> None:
        raise self._error

    def shutdown(self) -> None:
        pass


class _Metrics(MetricExporter):
    def __init__(self, exporter: Any, delivery: Delivery) -> None:
        # Totals, whatever the exporter prefers: of what does not arrive nothing is kept.
        super().__init__()
        self._exporter = exporter
        self._delivery = delivery

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        taken = self._delivery.send_totals(
            lambda: self._exporter.export(metrics_data, timeout_millis, **kwargs)
        )
        return MetricExportResult.SUCCESS if taken else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown()


class _Spans(SpanExporter):
    def __init__(self, exporter: Any, delivery: Delivery, backlog: Backlog) -> None:
        self._exporter = exporter
        self._delivery = delivery
        self._backlog = backlog

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            taken = self._delivery.send("traces", "unsent span", spans, self._exporter.export)
        finally:
            self._backlog.release(spans)
        return SpanExportResult.SUCCESS if taken else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Logs(LogRecordExporter):
    def __init__(self, exporter: Any, delivery: Delivery, backlog: Backlog) -> None:
        self._exporter = exporter
        self._delivery = delivery
        self._backlog = backlog

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        try:
            taken = self._delivery.send("logs", "unsent log record", batch, self._exporter.export)
        finally:
            self._backlog.release(batch)
        return LogRecordExportResult.SUCCESS if taken else LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._exporter.shutdown()
