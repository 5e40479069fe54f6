"""OTLP exporters of the three signals, and the bounded queues in front of them.

The SDK bounds its queues by items, and logs each item that it drops. These queues are also bounded
by bytes, and dropped items are counted instead.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from daskscope.containment import contain
from daskscope.otlp.delta_temporality import DeltaExporter
from daskscope.otlp.environment import OTLPEnvironment, Signal, positive
from daskscope.otlp.retry import Delivery
from daskscope.otlp.sdk_private import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
    LogRecordProcessor,
    ReadWriteLogRecord,
    silence,
)
from daskscope.size import size_of

#: Bytes that may wait: some 1,300 spans, and the records of a fleet of workers that leaves at once.
MAX_SPAN_BYTES = 4 << 20
MAX_RECORD_BYTES = 8 << 20

# Items that may wait, and items per batch, unless the environment sets others.
_MAX_ITEMS = 8_192
_BATCH = 512
# Milliseconds until a batch is sent: the SDK's defaults.
_SPANS_WAIT, _RECORDS_WAIT = 5_000, 1_000

# Bytes of an item without attributes and body. Measured: a task's span with four attributes takes
# 3.0 kB, a log record with two takes 1.0 kB.
_SPAN, _RECORD = 2_350, 500


class Exporters:
    """Makes exporters for metrics, spans and logs that never log on their own."""

    def __init__(
        self,
        destination: OTLPEnvironment,
        interval: float,
        service_is_well: Callable[[], bool],
        drops: Counter[str],
    ) -> None:
        """``interval`` is in seconds. ``service_is_well`` returns whether heartbeats arrive: if
        not, a warning has been logged already.
        """
        self._destination = destination
        self._drops = drops
        self._delivery = Delivery(destination, interval, service_is_well, drops)

    @property
    def failures(self) -> Counter[str]:
        """Failed requests by signal."""
        return self._delivery.failures

    def metrics(self) -> MetricExporter:
        """Return an exporter of metrics."""
        exporter = _Metrics(self._make("metrics"), self._delivery)
        kinds = self._destination.increments()
        return DeltaExporter(exporter, kinds) if kinds else exporter

    def spans(self) -> SpanProcessor:
        """Return a queue of spans with its exporter."""
        backlog = Backlog("unsent span", MAX_SPAN_BYTES, "OTEL_BSP", self._drops)
        return SpanQueue(_Spans(self._make("traces"), self._delivery, backlog), backlog)

    def logs(self) -> LogRecordProcessor:
        """Return a queue of log records with its exporter."""
        backlog = Backlog("unsent log record", MAX_RECORD_BYTES, "OTEL_BLRP", self._drops)
        return LogQueue(_Logs(self._make("logs"), self._delivery, backlog), backlog)

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        for session in tuple(self._destination.sessions.values()):
            session.end_overdue()

    def close(self) -> None:
        """Send waiting data only once from now on, without retries. From any thread."""
        self._delivery.close()

    def give_up(self) -> None:
        """Stop sending, and count all waiting data as lost. From any thread."""
        self._delivery.give_up()

    def _make(self, signal: Signal) -> Any:
        try:
            with silence():
                return self._destination.exporter(signal) or _Nowhere()
        except Exception as error:  # a missing certificate file, for example
            contain(error)
            return _Unable(error)


class _Nowhere:
    """Stands in for the exporter of a signal that is not sent."""

    def export(self, *_: Any, **__: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class _Unable:
    """Stands in for an exporter that cannot be created, and raises the reason at each export."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def export(self, *_: Any, **__: Any) -> None:
        raise self._error

    def shutdown(self) -> None:
        pass


class _Metrics(MetricExporter):
    def __init__(self, exporter: Any, delivery: Delivery) -> None:
        # Cumulative values, whatever the exporter prefers, because failed exports are not queued.
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


class Backlog:
    """Counts the items of one signal in the SDK's queue, to bound them by number and bytes."""

    def __init__(self, what: str, max_bytes: int, variables: str, drops: Counter[str]) -> None:
        """Dropped items are counted in ``drops`` as ``what``. ``variables`` is the prefix of the
        SDK's environment variables with the number of items that may wait, and of items per batch.
        """
        self.what = what
        self._max_bytes = max_bytes
        self._drops = drops
        self.max_items = positive(f"{variables}_MAX_QUEUE_SIZE", _MAX_ITEMS)
        # The SDK raises if a batch is larger than the queue.
        self.batch = min(positive(f"{variables}_MAX_EXPORT_BATCH_SIZE", _BATCH), self.max_items)
        self._items = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, item: Any) -> bool:
        """Return whether there is room for an item, and count it as waiting or as dropped."""
        size = _size(item)
        with self._lock:
            if self._items >= self.max_items or self._bytes + size > self._max_bytes:
                self._drops[self.what] += 1
                return False
            self._items += 1
            self._bytes += size
        return True

    def release(self, items: Iterable[Any]) -> None:
        """Forget items that were sent or dropped."""
        sizes = [_size(item) for item in items]
        with self._lock:
            self._items -= len(sizes)
            self._bytes -= sum(sizes)


class SpanQueue(BatchSpanProcessor):
    """The SDK's queue of spans, bounded by a backlog."""

    def __init__(self, exporter: SpanExporter, backlog: Backlog) -> None:
        super().__init__(
            exporter,
            max_queue_size=backlog.max_items,
            schedule_delay_millis=positive("OTEL_BSP_SCHEDULE_DELAY", _SPANS_WAIT),
            max_export_batch_size=backlog.batch,
        )
        self._backlog = backlog

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span if it is sampled and there is room."""
        if span.context and span.context.trace_flags.sampled and self._backlog.take(span):
            super().on_end(span)


class LogQueue(BatchLogRecordProcessor):
    """The SDK's queue of log records, bounded by a backlog."""

    def __init__(self, exporter: LogRecordExporter, backlog: Backlog) -> None:
        super().__init__(
            exporter,
            max_queue_size=backlog.max_items,
            schedule_delay_millis=positive("OTEL_BLRP_SCHEDULE_DELAY", _RECORDS_WAIT),
            max_export_batch_size=backlog.batch,
        )
        self._backlog = backlog

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Queue a log record if there is room."""
        if self._backlog.take(log_record):
            super().on_emit(log_record)


def _size(item: Any) -> int:
    """Return about how many bytes a span or a log record takes in memory."""
    if isinstance(item, ReadableSpan):
        return _SPAN + size_of(dict(item.attributes or {}))
    record = item.log_record
    return _RECORD + size_of(record.body) + size_of(dict(record.attributes or {}))
