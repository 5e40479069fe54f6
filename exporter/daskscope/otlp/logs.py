"""Sends log events: events in a snapshot, and log records of scheduler and workers."""

from __future__ import annotations

import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context
from opentelemetry.util.types import AnyValue

from daskscope import names, protocol
from daskscope.containment import each_guarded
from daskscope.names import LogEvent
from daskscope.observe.messages.logs import LogRecord
from daskscope.otlp import sdk_private
from daskscope.otlp.environment import SCOPE
from daskscope.otlp.exception_text import text_of
from daskscope.otlp.limits import invalid_limits
from daskscope.otlp.sdk_private import LoggerProvider, LogRecordProcessor, SeverityNumber
from daskscope.privacy import Cleared
from daskscope.version import __version__

Row = TypeVar("Row")

INFO, ERROR = SeverityNumber.INFO, SeverityNumber.ERROR

#: Computations whose logged state is stored. Beyond it the oldest are forgotten.
MAX_LOGGED = 5_000
#: Intervals between two log events about a computation's progress.
PROGRESS_EVERY = 3

_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
    (logging.DEBUG, SeverityNumber.DEBUG),
)


def severity(level: int) -> SeverityNumber:
    """Return OpenTelemetry's severity for a level of Python's ``logging``."""
    return next((number for least, number in _SEVERITIES if level >= least), SeverityNumber.TRACE)


@dataclass(slots=True)
class _Logged:
    """The logged state of a computation; ``at`` is in seconds since the epoch."""

    at: float
    ended: bool = False


class Logs:
    """Logs the events of filtered snapshots through a logger provider.

    ``interval`` is that of snapshots, in seconds. ``span`` returns the span of a computation, by
    its id. A row that cannot be logged is left out, and counted in ``drops``.
    """

    def __init__(
        self,
        queue: LogRecordProcessor,
        resource: Resource,
        interval: float,
        span: Callable[[str], SpanContext | None],
        drops: Counter[str],
    ) -> None:
        # Older versions of the SDK read limits for each record.
        self._hides = sdk_private.without_invalid_limits if invalid_limits() else nullcontext
        with self._hides():
            self._provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
            self._provider.add_log_record_processor(queue)
            self._logger = self._provider.get_logger(SCOPE, __version__)
        self._interval = interval
        self._span = span
        self._drops = drops
        self._logged: OrderedDict[str, _Logged] = OrderedDict()

    def observe(self, snapshot: Cleared) -> None:
        """Log what happened in ``snapshot``."""
        if snapshot.phase == "start":
            self._log_cluster(names.LOG_CLUSTER_STARTED, "Cluster started", snapshot)
        self._each(partial(self._log_computation, snapshot.status.at), snapshot.computations)
        self._each(self._log_failure, snapshot.failures)
        self._each(self._log_loss, snapshot.worker_losses)
        self._each(self._log_record, snapshot.logs)
        self._each(self._log_event, snapshot.events)
        self._each(self._log_shutdown, snapshot.shutdowns)
        self._each(self._log_end, snapshot.computations)
        if snapshot.phase == "stop":
            self._log_cluster(names.LOG_CLUSTER_STOPPED, "Cluster stopped", snapshot)

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
        """Log an event at ``at`` (seconds since the epoch), as part of ``span``'s trace."""
        context = Context()
        if span is not None:
            context = set_span_in_context(NonRecordingSpan(span), context)
        record = sdk_private.LogRecord(
            timestamp=int(at * 1e9),
            context=context,
            severity_number=severity,
            severity_text=severity.name,
            body=body,
            # Also as an attribute, because the collector's InfluxDB exporter drops event_name.
            attributes={names.EVENT_NAME: event.name, **attributes},
            event_name=event.name,
        )
        with self._hides():
            self._logger.emit(record)

    def shutdown(self) -> None:
        """Send waiting records and shut down. It may take as long as the exporter's timeout."""
        self._provider.shutdown()

    def _each(self, log: Callable[[Row], None], rows: Iterable[Row]) -> None:
        each_guarded(self._drops, log, rows)

    def _log_computation(self, now: float, computation: protocol.Computation) -> None:
        """Log that a computation began, or its progress."""
        logged = self._logged.get(computation.id)
        attributes: dict[str, str | int] = {
            names.COMPUTATION_ID: computation.id,
            names.COMPUTATION_TASKS: computation.tasks,
            names.USER_NAME: computation.user,
        }
        if logged is None:
            self._logged[computation.id] = _Logged(computation.started_at)
            if len(self._logged) > MAX_LOGGED:
                self._logged.popitem(last=False)
            self.emit(
                names.LOG_COMPUTATION_STARTED,
                f"Computation of {_tasks(computation)} started",
                computation.started_at,
                attributes,
                span=self._span(computation.id),
            )
        elif (
            computation.status == "running"
            and computation.done < computation.tasks  # else it waits for more tasks of a loop
            and not logged.ended
            and now - logged.at >= PROGRESS_EVERY * self._interval
        ):
            logged.at = now
            self.emit(
                names.LOG_COMPUTATION_PROGRESS,
                f"Computation: {computation.done} of {_tasks(computation)} done",
                now,
                {**attributes, names.COMPUTATION_DONE: computation.done},
                span=self._span(computation.id),
            )

    def _log_end(self, computation: protocol.Computation) -> None:
        logged = self._logged.get(computation.id)
        if computation.status == "running" or logged is None or logged.ended:
            return
        logged.ended = True
        self.emit(
            names.LOG_COMPUTATION_FINISHED,
            _ended(computation),
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

    def _log_failure(self, failure: protocol.Failure) -> None:
        identity = failure.computation or ""
        attributes: dict[str, str | int] = {
            names.COMPUTATION_ID: identity,
            names.EXCEPTION_TYPE: failure.type,
            names.EXCEPTION_OCCURRENCES: failure.count,
            names.TASK_PREFIX: failure.function,
        }
        if failure.message is not None:
            attributes[names.EXCEPTION_MESSAGE] = text_of(failure.message, failure.type)
        if failure.traceback is not None:
            attributes[names.EXCEPTION_STACKTRACE] = failure.traceback
        self.emit(
            names.LOG_EXCEPTION,
            failure.message or failure.type,
            failure.last_at,
            attributes,
            severity=ERROR,
            span=self._span(identity),
        )

    def _log_record(self, record: LogRecord) -> None:
        attributes = {
            names.LOGGER: record.logger,
            names.WORKER_ADDRESS: record.worker,
            names.COMPUTATION_ID: record.computation,
            names.TASK_PREFIX: record.prefix,
            names.EXCEPTION_TYPE: record.exception_type,
            names.EXCEPTION_MESSAGE: record.exception,
            names.EXCEPTION_STACKTRACE: record.traceback,
        }
        self.emit(
            names.LOG_RECORD,
            record.text,
            record.at,
            {name: value for name, value in attributes.items() if value is not None},
            severity=severity(record.level),
            span=self._span(record.computation or ""),
        )

    def _log_cluster(self, event: names.LogEvent, body: str, snapshot: Cleared) -> None:
        self.emit(
            event,
            f"{body}: {snapshot.cluster.name} ({snapshot.cluster.kind})",
            snapshot.status.at,
            {names.USER_NAME: snapshot.cluster.user},
        )

    def _log_loss(self, loss: protocol.WorkerLoss) -> None:
        attributes: dict[str, AnyValue] = {
            names.WORKER_ADDRESS: loss.address,
            names.WORKER_NAME: loss.name,
            names.WORKER_LOSS_REASON: loss.reason,
            names.WORKER_LOSS_EXPECTED: loss.expected,
            names.WORKER_LOSS_TASKS: loss.processing,
            # JSON, because not every backend accepts a mapping.
            names.WORKER_LOSS_PREFIXES: json.dumps(loss.tasks, ensure_ascii=False),
            names.WORKER_LIFETIME: loss.lifetime,
            names.WORKER_LAST_SEEN: None
            if loss.last_seen_at is None
            else loss.at - loss.last_seen_at,
            names.WORKER_MEMORY_USED: loss.memory_used,
            names.WORKER_MEMORY_LIMIT: loss.memory_limit,
            names.WORKER_LOSS_NANNY_MEMORY: loss.nanny_memory,
            names.WORKER_LOSS_DEPLOYMENT: json.dumps(loss.deployment, ensure_ascii=False)
            if loss.deployment
            else None,
            names.WORKER_LOSS_LOG: None if loss.log is None else "\n".join(loss.log),
        }
        self.emit(
            names.LOG_WORKER_LOST,
            f"Worker {loss.name} left: {loss.reason}",
            loss.at,
            {name: value for name, value in attributes.items() if value is not None},
            severity=INFO if loss.expected else ERROR,
        )

    def _log_event(self, event: protocol.Event) -> None:
        attributes: dict[str, AnyValue] = {
            names.EVENT_TOPIC: event.topic,
            names.EVENT_CUT: event.cut,
        }
        self.emit(names.LOG_EVENT, event.message, event.at, attributes)

    def _log_shutdown(self, shutdown: protocol.Shutdown) -> None:
        self.emit(
            names.LOG_CLUSTER_SHUTDOWN,
            f"Shutdown {shutdown.state}: {shutdown.detail}",
            shutdown.at,
            {
                names.SHUTDOWN_STATE: shutdown.state,
                names.SHUTDOWN_REQUESTED_BY: shutdown.requested_by,
            },
            severity=ERROR if shutdown.state == "failed" else INFO,
        )


def _tasks(computation: protocol.Computation) -> str:
    return f"{computation.tasks} task{'' if computation.tasks == 1 else 's'}"


def _ended(computation: protocol.Computation) -> str:
    """Describe how a computation ended, with the number of tasks that are done and that raised."""
    whole = f"Computation of {_tasks(computation)} {computation.status}"
    if computation.status == "finished":
        return whole
    raised = f", {computation.erred} raised" if computation.erred else ""
    need = "needs" if computation.blamed == 1 else "need"
    blamed = f", {computation.blamed} {need} one that failed" if computation.blamed else ""
    return f"{whole}: {computation.done} done{raised}{blamed}"
