"""One snapshot after the other, told to OpenTelemetry."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from opentelemetry.trace import Span

from daskscope import names, protocol
from daskscope.config import Settings
from daskscope.emit.destination import Destination
from daskscope.emit.exporters import Exporters
from daskscope.emit.logs import ERROR, INFO, Logs, severity
from daskscope.emit.metrics import Metrics
from daskscope.emit.providers import resource
from daskscope.emit.traces import Traces
from daskscope.observe.logs import LogRecord
from daskscope.privacy import Cleared

#: Running computations with an open span, and ended ones that must not get a second one.
MAX_OPEN = 1_000
MAX_ENDED = 5_000


class Emitter:
    """Turns cleared snapshots into metrics, spans and log events. Runs in a thread of its own.

    ``send_failures`` returns what others count of failed requests, by what was sent; ``waiting``
    what waits in each queue; ``service_is_well`` whether heartbeats arrive.
    """

    def __init__(
        self,
        settings: Settings,
        destination: Destination,
        send_failures: Callable[[], Mapping[str, int]],
        waiting: Callable[[], Mapping[str, int]],
        service_is_well: Callable[[], bool],
        drops: Counter[str],
    ) -> None:
        self._settings = settings
        self._exporters = Exporters(destination, settings.interval, service_is_well, drops)
        self._others_failures = send_failures
        self._waiting = waiting
        self._parts: tuple[Metrics, Traces, Logs] | None = None
        self._open: OrderedDict[str, tuple[Span, dict[str, protocol.TaskGroup]]] = OrderedDict()
        self._ended: OrderedDict[str, Span] = OrderedDict()

    def emit(self, snapshot: Cleared) -> None:
        """Tell of one snapshot."""
        if self._parts is None:
            self._parts = self._start(snapshot.cluster)
        metrics, _, logs = self._parts
        metrics.observe(snapshot)
        if snapshot.phase == "start":
            self._tell_cluster(logs, names.LOG_CLUSTER_STARTED, "Cluster started", snapshot)
        for computation in snapshot.computations:
            self._begin(computation)
        for group in snapshot.task_groups:
            if group.computation in self._open:
                self._open[group.computation][1][group.name] = group
        for failure in snapshot.failures:
            self._tell_failure(logs, failure)
        for loss in snapshot.worker_losses:
            logs.emit(
                names.LOG_WORKER_LOST,
                f"Worker {loss.name} left: {loss.reason}",
                loss.at,
                {names.WORKER_ADDRESS: loss.address, names.WORKER_LOSS_REASON: loss.reason},
                severity=INFO if loss.expected else ERROR,
            )
        for record in snapshot.logs:
            self._tell_record(logs, record)
        for event in snapshot.events:
            logs.emit(names.LOG_EVENT, event.message, event.at, {names.EVENT_TOPIC: event.topic})
        for shutdown in snapshot.shutdowns:
            logs.emit(
                names.LOG_CLUSTER_SHUTDOWN,
                f"Shutdown {shutdown.state}: {shutdown.detail}",
                shutdown.at,
                {
                    names.SHUTDOWN_STATE: shutdown.state,
                    names.SHUTDOWN_REQUESTED_BY: shutdown.requested_by,
                },
                severity=ERROR if shutdown.state == "failed" else INFO,
            )
        for computation in snapshot.computations:
            if computation.status != "running":
                self._finish(computation)
        if snapshot.phase == "stop":
            self._tell_cluster(logs, names.LOG_CLUSTER_STOPPED, "Cluster stopped", snapshot)

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        self._exporters.end_overdue()

    def shutdown(self) -> None:
        """Send what waits and end. Takes as long as the exporters' timeouts."""
        self._exporters.close()
        if self._parts is not None:
            metrics, traces, logs = self._parts
            logs.shutdown()
            traces.shutdown()
            metrics.shutdown(timeout=10)

    def _start(self, cluster: protocol.Cluster) -> tuple[Metrics, Traces, Logs]:
        who = resource(cluster)
        return (
            Metrics(
                self._exporters.metrics(),
                who,
                self._settings.interval,
                lambda: {**self._others_failures(), **self._exporters.failures},
                self._waiting,
                cluster.prices,
            ),
            Traces(self._exporters.spans(), who),
            Logs(self._exporters.logs(), who),
        )

    def _begin(self, computation: protocol.Computation) -> None:
        assert self._parts is not None
        _, traces, logs = self._parts
        if computation.id in self._open or computation.id in self._ended:
            return
        span = traces.start(computation)
        self._open[computation.id] = (span, {})
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        logs.emit(
            names.LOG_COMPUTATION_STARTED,
            f"Computation of {computation.tasks} tasks started",
            computation.started_at,
            {
                names.COMPUTATION_ID: computation.id,
                names.COMPUTATION_TASKS: computation.tasks,
                names.USER_NAME: computation.user,
            },
            span=span,
        )

    def _finish(self, computation: protocol.Computation) -> None:
        assert self._parts is not None
        _, traces, logs = self._parts
        span, groups = self._open.pop(computation.id, (None, {}))
        if span is None:
            return
        traces.end(span, computation, list(groups.values()))
        self._ended[computation.id] = span
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        logs.emit(
            names.LOG_COMPUTATION_FINISHED,
            f"Computation of {computation.tasks} tasks {computation.status}",
            computation.stopped_at or computation.started_at,
            {
                names.COMPUTATION_ID: computation.id,
                names.COMPUTATION_STATUS: computation.status,
                names.COMPUTATION_TASKS: computation.tasks,
                names.USER_NAME: computation.user,
            },
            severity=ERROR if computation.status == "erred" else INFO,
            span=span,
        )

    def _tell_failure(self, logs: Logs, failure: protocol.Failure) -> None:
        identity = failure.computation or ""
        attributes: dict[str, str | int] = {
            names.COMPUTATION_ID: identity,
            names.EXCEPTION_TYPE: failure.type,
            names.EXCEPTION_OCCURRENCES: failure.count,
            names.TASK_PREFIX: failure.function,
        }
        if failure.message is not None:
            attributes[names.EXCEPTION_MESSAGE] = failure.message
        if failure.traceback is not None:
            attributes[names.EXCEPTION_STACKTRACE] = failure.traceback
        logs.emit(
            names.LOG_EXCEPTION,
            failure.message or failure.type,
            failure.last_at,
            attributes,
            severity=ERROR,
            span=self._span(identity),
        )

    def _tell_record(self, logs: Logs, record: LogRecord) -> None:
        attributes = {
            names.LOGGER: record.logger,
            names.WORKER_ADDRESS: record.worker,
            names.COMPUTATION_ID: record.computation,
            names.TASK_PREFIX: record.prefix,
            names.EXCEPTION_TYPE: record.exception_type,
            names.EXCEPTION_MESSAGE: record.exception,
            names.EXCEPTION_STACKTRACE: record.traceback,
        }
        logs.emit(
            names.LOG_RECORD,
            record.text,
            record.at,
            {name: value for name, value in attributes.items() if value is not None},
            severity=severity(record.level),
            span=self._span(record.computation or ""),
        )

    def _span(self, computation: str) -> Span | None:
        if computation in self._open:
            return self._open[computation][0]
        return self._ended.get(computation)

    @staticmethod
    def _tell_cluster(logs: Logs, event: names.LogEvent, body: str, snapshot: Cleared) -> None:
        logs.emit(
            event,
            f"{body}: {snapshot.cluster.name} ({snapshot.cluster.kind})",
            snapshot.status.at,
            {names.USER_NAME: snapshot.cluster.user},
        )


def disabled_by_environment() -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` says so."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
