"""The service's metrics of itself, for ``/metrics``, since this process started.

Labels are bounded: routes are named by their pattern, never by an id in an address.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

#: Every name begins so.
NAMESPACE = "daskscope_service"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """The counters of one application. All of them may be used from any thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        # Else there is a second series beside each counter, which no one asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(name, help, labels, namespace=NAMESPACE, registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(name, help, namespace=NAMESPACE, registry=registry)

        def histogram(name: str, help: str, *labels: str) -> Histogram:
            return Histogram(
                name, help, labels, namespace=NAMESPACE, registry=registry, buckets=_SECONDS
            )

        self.requests = counter("requests", "Requests answered.", "route", "method", "status")
        self.request_seconds = histogram(
            "request_seconds", "Time from a request's headers to its answer.", "route", "method"
        )
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.beats = counter("beats", "Heartbeats committed.")
        self.rows = counter("rows", "Rows of clusters' data that were committed.", "table")
        self.rejected = counter(
            "otlp_rejected", "Points, spans and log records refused in OTLP requests.", "signal"
        )
        self.rows_left_out = counter(
            "beat_rows_left_out", "Rows of heartbeats that were invalid and left out."
        )
        self.finding_events = counter(
            "finding_events", "OTLP log events of new findings, sent or dropped.", "outcome"
        )
        self.refused = counter(
            "refused", "Requests to store data that were refused for now.", "reason"
        )
        self.workspace_use = Gauge(
            "workspace_use",
            "What a workspace has stored, for each quota, by the last count.",
            ("workspace", "quota"),
            namespace=NAMESPACE,
            registry=registry,
        )
        self.commit_seconds = histogram(
            "commit_seconds", "Time to write and commit the waiting requests."
        )
        self.write_failures = counter("write_failures", "Commits that failed.")
        self.queue_length = gauge(
            "queue_length", "Requests that wait to be written, or are being written."
        )
        self.queue_capacity = gauge(
            "queue_capacity", "The most requests that may wait; further ones are refused."
        )
        self.log_lines_dropped = counter(
            "log_lines_dropped", "Lines of the log that were dropped, because nobody read it."
        )
        self.removed = counter("removed_rows", "Rows removed because of their age.", "table")
        self.rounds = counter("removal_rounds", "Rounds of removing old data.", "outcome")
        # Zero is what has not happened yet; a series that comes with its first count hides it.
        for reason in ("queue full", "stopping", "quota"):
            self.refused.labels(reason)
        for signal in ("metrics", "traces", "logs"):
            self.rejected.labels(signal)
        for outcome in ("done", "failed", "stopped"):
            self.rounds.labels(outcome)

    def answered(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        """Return what counts and times such requests. To find them by labels would take longer."""
        key = (route, method, status)
        metrics = self._answered.get(key)
        if metrics is None:
            metrics = self._answered[key] = (
                self.requests.labels(route, method, str(status)),
                self.request_seconds.labels(route, method),
            )
        return metrics
