"""The snapshot: one immutable value per interval, of all that was observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from daskscope import protocol
from daskscope.observe.errors.failures import RawFailure
from daskscope.observe.messages.events import RawEvent
from daskscope.observe.messages.logs import LogRecord
from daskscope.observe.tasks.groups import Traced
from daskscope.observe.tasks.prefixes import PrefixRow
from daskscope.observe.workers.metrics import Measured
from daskscope.observe.workers.workers import WorkerTotals

EventKind = TypeVar("EventKind", RawEvent, protocol.Event)
FailureKind = TypeVar("FailureKind", RawFailure, protocol.Failure)


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[EventKind, FailureKind]):
    """What is to be sent of one interval.

    ``cluster`` to ``exceptions`` are the state at ``status.at``; the rest are the rows that changed
    since the last snapshot. A ``Snapshot[RawEvent, RawFailure]`` is as observed and stays in the
    process; a ``Snapshot[protocol.Event, protocol.Failure]`` has been cleared by
    ``daskscope.privacy`` and may leave.
    """

    phase: protocol.Phase
    cluster: protocol.Cluster
    status: protocol.Status
    workers: WorkerTotals
    prefixes: tuple[PrefixRow, ...]
    times: tuple[protocol.Activity, ...]
    measured: Measured
    computations_running: int
    exceptions: dict[str, int]
    events_by_topic: dict[str, int]
    losses_by_reason: dict[str, int]
    drops: dict[str, int]
    hook_seconds: float
    computations: tuple[protocol.Computation, ...]
    task_groups: tuple[protocol.TaskGroup, ...]
    traced: dict[str, Traced]
    failures: tuple[FailureKind, ...]
    worker_losses: tuple[protocol.WorkerLoss, ...]
    events: tuple[EventKind, ...]
    code: tuple[protocol.Code, ...]
    logs: tuple[LogRecord, ...]
    activities: tuple[protocol.Activity, ...]
    shutdowns: tuple[protocol.Shutdown, ...]
    profiles: tuple[protocol.Profile, ...]


#: As observed: must not leave the process.
Observed = Snapshot[RawEvent, RawFailure]
