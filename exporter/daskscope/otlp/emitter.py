"""Emit one snapshot after the other through OpenTelemetry."""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AnyValue

from daskscope import names, protocol
from daskscope.config import Settings
from daskscope.containment import Contained, each_guarded
from daskscope.observe.messages.logs import LogRecord
from daskscope.otlp.environment import OTLPEnvironment
from daskscope.otlp.exporters import Exporters
from daskscope.otlp.logs import ERROR, INFO, Logs, severity
from daskscope.otlp.metrics import Metrics
from daskscope.otlp.providers import Who
from daskscope.otlp.traces import Traces
from daskscope.privacy import Cleared
from daskscope.scrubbing import Scrubber

Row = TypeVar("Row")

#: Computations whose log records are remembered; beyond it the oldest are forgotten.
MAX_TOLD = 5_000
#: Intervals between two log events about a computation's progress.
PROGRESS_EVERY = 3


@dataclass(slots=True)
class _Told:
    """Up to where a computation was logged; ``at`` is in seconds since the epoch."""

    at: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _Parts:
    who: Who
    metrics: Metrics
    traces: Traces | None
    logs: Logs


class Emitter:
    """Turns cleared snapshots into metrics, spans and log events. Runs in a thread of its own.

    ``send_failures`` returns what others count of failed requests, by what was sent; ``waiting``
    what waits in each queue; ``service_is_well`` whether heartbeats arrive. ``drops`` counts what a
    bound left out.
    """

    def __init__(
        self,
        settings: Settings,
        destination: OTLPEnvironment,
        send_failures: Callable[[], Mapping[str, int]],
        waiting: Callable[[], Mapping[str, int]],
        service_is_well: Callable[[], bool],
        drops: Counter[str],
    ) -> None:
        self._settings = settings
        self._drops = drops
        self._contained = Contained(drops)
        self._exporters = Exporters(destination, settings.interval, service_is_well, drops)
        self._others_failures = send_failures
        self._waiting = waiting
        self._parts: _Parts | None = None
        self._logged: OrderedDict[str, _Told] = OrderedDict()

    def emit(self, snapshot: Cleared) -> None:
        """Tell of one snapshot."""
        if self._parts is None:
            self._parts = self._start(snapshot.cluster)
        self._parts.who.name = snapshot.cluster.name
        logs = self._parts.logs
        with self._contained:
            self._parts.metrics.observe(snapshot)
        if self._parts.traces is not None:
            with self._contained:
                self._parts.traces.observe(snapshot)
        if snapshot.phase == "start":
            self._tell_cluster(logs, names.LOG_CLUSTER_STARTED, "Cluster started", snapshot)
        now = snapshot.status.at
        self._each(partial(self._tell_computation, logs, now), snapshot.computations)
        self._each(partial(self._tell_failure, logs), snapshot.failures)
        self._each(partial(_tell_loss, logs), snapshot.worker_losses)
        self._each(partial(self._tell_record, logs), snapshot.logs)
        self._each(partial(_tell_event, logs), snapshot.events)
        self._each(partial(_tell_shutdown, logs), snapshot.shutdowns)
        self._each(partial(self._tell_end, logs), snapshot.computations)
        if snapshot.phase == "stop":
            self._tell_cluster(logs, names.LOG_CLUSTER_STOPPED, "Cluster stopped", snapshot)

    def _each(self, emit: Callable[[Row], None], rows: Iterable[Row]) -> None:
        """Emit each row. One that cannot be emitted costs that one."""
        each_guarded(self._drops, emit, rows)

    def send_failures(self) -> dict[str, int]:
        """Return how many requests failed, by what was sent: the others' too."""
        return {**self._others_failures(), **self._exporters.failures}

    def end_overdue(self) -> None:
        """End requests that take too long. From any thread."""
        self._exporters.end_overdue()

    def close(self) -> None:
        """Try each thing once from now on. From any thread."""
        self._exporters.close()

    def give_up(self) -> None:
        """Count all that waits as lost, and what is under way. From any thread."""
        self._exporters.give_up()

    def shutdown(self) -> None:
        """Send what waits and end. Takes as long as the exporters' timeouts."""
        self._exporters.close()
        if self._parts is not None:
            self._parts.logs.shutdown()
            if self._parts.traces is not None:
                self._parts.traces.shutdown()
            self._parts.metrics.shutdown(timeout=10)

    def _start(self, cluster: protocol.Cluster) -> _Parts:
        who = Who(cluster, Scrubber(self._settings.scrub))
        traces = None
        if self._settings.traces_transmit:
            traces = Traces(self._exporters.spans(), who, self._settings, self._drops)
        return _Parts(
            who,
            Metrics(
                self._exporters.metrics(),
                who,
                self._settings.interval,
                self.send_failures,
                self._waiting,
                cluster.prices,
                self._drops,
            ),
            traces,
            Logs(self._exporters.logs(), who),
        )

    def _tell_computation(self, logs: Logs, now: float, computation: protocol.Computation) -> None:
        """Tell that a computation began, or how far it has come."""
        logged = self._logged.get(computation.id)
        attributes: dict[str, str | int] = {
            names.COMPUTATION_ID: computation.id,
            names.COMPUTATION_TASKS: computation.tasks,
            names.USER_NAME: computation.user,
        }
        if logged is None:
            self._logged[computation.id] = _Told(computation.started_at)
            if len(self._logged) > MAX_TOLD:
                self._logged.popitem(last=False)
            logs.emit(
                names.LOG_COMPUTATION_STARTED,
                f"Computation of {computation.tasks} tasks started",
                computation.started_at,
                attributes,
                span=self._span(computation.id),
            )
        elif (
            computation.status == "running"
            and not logged.ended
            and now - logged.at >= PROGRESS_EVERY * self._settings.interval
        ):
            logged.at = now
            logs.emit(
                names.LOG_COMPUTATION_PROGRESS,
                f"Computation: {computation.done} of {computation.tasks} tasks done",
                now,
                {**attributes, names.COMPUTATION_DONE: computation.done},
                span=self._span(computation.id),
            )

    def _tell_end(self, logs: Logs, computation: protocol.Computation) -> None:
        logged = self._logged.get(computation.id)
        if computation.status == "running" or logged is None or logged.ended:
            return
        logged.ended = True
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
            span=self._span(computation.id),
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

    def _span(self, computation: str) -> SpanContext | None:
        if self._parts is None or self._parts.traces is None:
            return None
        return self._parts.traces.context(computation)

    @staticmethod
    def _tell_cluster(logs: Logs, event: names.LogEvent, body: str, snapshot: Cleared) -> None:
        logs.emit(
            event,
            f"{body}: {snapshot.cluster.name} ({snapshot.cluster.kind})",
            snapshot.status.at,
            {names.USER_NAME: snapshot.cluster.user},
        )


def _tell_loss(logs: Logs, loss: protocol.WorkerLoss) -> None:
    attributes: dict[str, AnyValue] = {
        names.WORKER_ADDRESS: loss.address,
        names.WORKER_NAME: loss.name,
        names.WORKER_LOSS_REASON: loss.reason,
        names.WORKER_LOSS_EXPECTED: loss.expected,
        names.WORKER_LOSS_TASKS: loss.processing,
        # Not every backend takes an attribute that is a mapping.
        names.WORKER_LOSS_PREFIXES: json.dumps(loss.tasks, ensure_ascii=False),
        names.WORKER_LIFETIME: loss.lifetime,
        names.WORKER_LAST_SEEN: None if loss.last_seen_at is None else loss.at - loss.last_seen_at,
        names.WORKER_MEMORY_USED: loss.memory_used,
        names.WORKER_MEMORY_LIMIT: loss.memory_limit,
        names.WORKER_LOSS_NANNY_MEMORY: loss.nanny_memory,
        names.WORKER_LOSS_LOG: None if loss.log is None else "\n".join(loss.log),
    }
    logs.emit(
        names.LOG_WORKER_LOST,
        f"Worker {loss.name} left: {loss.reason}",
        loss.at,
        {name: value for name, value in attributes.items() if value is not None},
        severity=INFO if loss.expected else ERROR,
    )


def _tell_event(logs: Logs, event: protocol.Event) -> None:
    attributes: dict[str, AnyValue] = {
        names.EVENT_TOPIC: event.topic,
        names.EVENT_CUT: event.cut,
    }
    logs.emit(names.LOG_EVENT, event.message, event.at, attributes)


def _tell_shutdown(logs: Logs, shutdown: protocol.Shutdown) -> None:
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


def disabled_by_environment() -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` says so."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
