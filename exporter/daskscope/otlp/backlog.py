"""What waits in the SDK's queues: bounded in bytes too, and counted when it is dropped.

The SDK bounds its queues in items, and logs each one that it drops.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk._logs import ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from daskscope.otlp.variables import positive
from daskscope.size import size_of

#: Bytes that may wait: some 1,300 spans, and what a fleet of workers says as it leaves at once.
MAX_SPAN_BYTES = 4 << 20
MAX_RECORD_BYTES = 8 << 20

# Items that may wait, and that the SDK sends at once; unless the environment says otherwise.
_MAX_ITEMS = 8_192
_BATCH = 512
# Milliseconds that they wait for more: the SDK's own.
_SPANS_WAIT, _RECORDS_WAIT = 5_000, 1_000

# Bytes of the SDK's own of each item, without attributes and body: a span of a task with four
# attributes was seen to take 3.0 kB, a log record with two 1.0 kB.
_SPAN, _RECORD = 2_350, 500


class Backlog:
    """What was handed to the SDK for one signal and is neither sent nor dropped."""

    def __init__(self, what: str, max_bytes: int, variables: str, drops: Counter[str]) -> None:
        """Count in ``drops`` as ``what``. The SDK's ``variables``, which begin so, say how many may
        wait beside ``max_bytes``, and how many are sent at once.
        """
        self.what = what
        self._max_bytes = max_bytes
        self._drops = drops
        self.max_items = positive(f"{variables}_MAX_QUEUE_SIZE", _MAX_ITEMS)
        # The SDK wants no more at once than may wait, and ends there.
        self.batch = min(positive(f"{variables}_MAX_EXPORT_BATCH_SIZE", _BATCH), self.max_items)
        self._items = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, item: Any) -> bool:
        """Return whether there is room for an item; else it is counted."""
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
    """The SDK's queue of spans, for what a backlog has room for."""

    def __init__(self, exporter: SpanExporter, backlog: Backlog) -> None:
        super().__init__(
            exporter,
            max_queue_size=backlog.max_items,
            schedule_delay_millis=positive("OTEL_BSP_SCHEDULE_DELAY", _SPANS_WAIT),
            max_export_batch_size=backlog.batch,
        )
        self._backlog = backlog

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, if it is one that is sent."""
        if span.context and span.context.trace_flags.sampled and self._backlog.take(span):
            super().on_end(span)


class LogQueue(BatchLogRecordProcessor):
    """The SDK's queue of log records, for what a backlog has room for."""

    def __init__(self, exporter: LogRecordExporter, backlog: Backlog) -> None:
        super().__init__(
            exporter,
            max_queue_size=backlog.max_items,
            schedule_delay_millis=positive("OTEL_BLRP_SCHEDULE_DELAY", _RECORDS_WAIT),
            max_export_batch_size=backlog.batch,
        )
        self._backlog = backlog

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Queue a log record."""
        if self._backlog.take(log_record):
            super().on_emit(log_record)


def _size(item: Any) -> int:
    """Return about how many bytes a span or a log record takes in memory."""
    if isinstance(item, ReadableSpan):
        return _SPAN + size_of(dict(item.attributes or {}))
    record = item.log_record
    return _RECORD + size_of(record.body) + size_of(dict(record.attributes or {}))
