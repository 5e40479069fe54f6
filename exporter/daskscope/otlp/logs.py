"""Log events. OpenTelemetry's logs API is still marked private: all its imports are here."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context
from opentelemetry.util.types import AnyValue

from daskscope import names
from daskscope.names import LogEvent
from daskscope.otlp.providers import SCOPE
from daskscope.version import __version__

INFO, ERROR = SeverityNumber.INFO, SeverityNumber.ERROR

_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)


def severity(level: int) -> SeverityNumber:
    """Return OpenTelemetry's severity for a level of Python's ``logging``."""
    return next((found for least, found in _SEVERITIES if level >= least), SeverityNumber.TRACE)


class Logs:
    """A logger provider, and what it logs."""

    def __init__(self, queue: LogRecordProcessor, resource: Resource) -> None:
        self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(queue)
        self._logger = self._provider.get_logger(SCOPE, __version__)

    def emit(
        self,
        event: LogEvent,
        body: str,
        at: float,
        attributes: Mapping[str, AnyValue],
        *,
        severity: SeverityNumber = INFO,
        span: SpanContext | None = None,
    ) -> None:
        """Tell of an event at ``at`` (seconds since the epoch), as part of ``span``'s trace."""
        context = Context()
        if span is not None:
            context = set_span_in_context(NonRecordingSpan(span), context)
        self._logger.emit(
            LogRecord(
                timestamp=int(at * 1e9),
                context=context,
                severity_number=severity,
                severity_text=severity.name,
                body=body,
                # The name is an attribute too: the collector's InfluxDB exporter drops the other.
                attributes={names.EVENT_NAME: event.name, **attributes},
                event_name=event.name,
            )
        )

    def shutdown(self) -> None:
        """Send what waits and end. Takes as long as the exporter's timeout."""
        self._provider.shutdown()
