"""OpenTelemetry's providers for one cluster: whom to tell, and as whom.

Nothing global is set or read but the ``OTEL_*`` variables: an application's own providers stay as
they are. Exporters never log on their own; their failures are counted here, and warned of once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from daskscope import names, protocol
from daskscope.config import Settings

logger = logging.getLogger("daskscope")

#: Attributes of every span and log record are few; the SDK's defaults suffice.
SCOPE = "daskscope"


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
    """OTLP/HTTP exporters for metrics, spans and logs that count their failures.

    Without ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or a signal's own) they talk to the daskscope service,
    with its token.
    """

    def __init__(self, settings: Settings, service_is_well: Callable[[], bool]) -> None:
        """``service_is_well`` returns whether heartbeats arrive: if not, that was warned of."""
        self._settings = settings
        self._service_is_well = service_is_well
        self.failures: Counter[str] = Counter()
        self._warned = False

    def metrics(self) -> OTLPMetricExporter:
        """Return an exporter of metrics."""
        return _MetricExporter(self._sending, **self._arguments("metrics"))

    def spans(self) -> OTLPSpanExporter:
        """Return an exporter of spans."""
        return _SpanExporter(self._sending, **self._arguments("traces"))

    def logs(self) -> OTLPLogExporter:
        """Return an exporter of log records."""
        return _LogExporter(self._sending, **self._arguments("logs"))

    def _arguments(self, signal: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if not _variable(signal, "COMPRESSION"):
            arguments["compression"] = Compression.Gzip
        if not _variable(signal, "ENDPOINT"):
            arguments["endpoint"] = f"{self._settings.endpoint}/v1/{signal}"
            if not _variable(signal, "HEADERS"):
                arguments["headers"] = {"Authorization": f"Bearer {self._settings.token}"}
        return arguments

    @contextmanager
    def _sending(self, signal: str) -> Iterator[Callable[[], None]]:
        """Keep the SDK silent for one request; call what is yielded to say that it failed."""

        def failed() -> None:
            self.failures[signal] += 1
            elsewhere = _variable(signal, "ENDPOINT")
            if not self._warned and (elsewhere or self._service_is_well()):
                self._warned = True
                logger.warning(
                    "daskscope: %s could not be sent over OTLP to %s (%s). The cluster runs on; "
                    "totals are sent again, this is the only warning.",
                    signal,
                    elsewhere or self._settings.endpoint,
                    _quiet.last or "no answer",
                )

        _quiet.on, _quiet.last = True, None
        try:
            yield failed
        finally:
            _quiet.on = False


def _variable(signal: str, name: str) -> str | None:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or os.environ.get(
        f"OTEL_EXPORTER_OTLP_{name}"
    )


class _Quiet(threading.local):
    on = False
    last: str | None = None


_quiet = _Quiet()


def _swallow(record: logging.LogRecord) -> bool:
    """Let a log record of the SDK pass, unless it stems from one of our own requests."""
    if _quiet.on:
        _quiet.last = record.getMessage()[:300]
    return not _quiet.on


_Sending = Callable[[str], Any]


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, sending: _Sending, **arguments: Any) -> None:
        super().__init__(**arguments)
        _silence()
        self._sending = sending

    def export(self, metrics_data: MetricsData, *args: Any, **kwargs: Any) -> MetricExportResult:
        with self._sending("metrics") as failed:
            result = super().export(metrics_data, *args, **kwargs)
            if result is not MetricExportResult.SUCCESS:
                failed()
        return result


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, sending: _Sending, **arguments: Any) -> None:
        super().__init__(**arguments)
        _silence()
        self._sending = sending

    def export(self, spans: Any) -> SpanExportResult:
        with self._sending("traces") as failed:
            result = super().export(spans)
            if result is not SpanExportResult.SUCCESS:
                failed()
        return result


class _LogExporter(OTLPLogExporter):
    def __init__(self, sending: _Sending, **arguments: Any) -> None:
        super().__init__(**arguments)
        _silence()
        self._sending = sending

    def export(self, batch: Any) -> Any:
        with self._sending("logs") as failed:
            result = super().export(batch)
            if result.name != "SUCCESS":
                failed()
        return result


def _silence() -> None:
    # A filter counts only where a record is made, so it goes on each of the SDK's own loggers.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("opentelemetry.exporter.otlp"):
            logging.getLogger(name).addFilter(_swallow)
