"""The snapshot: one immutable value per interval with everything observed; and its size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from daskscope import protocol
from daskscope.observe.errors.failures import RawFailure
from daskscope.observe.meanwhile import Most
from daskscope.observe.messages.events import RawEvent
from daskscope.observe.messages.logs import LogRecord
from daskscope.observe.tasks.computation import Traced
from daskscope.observe.tasks.prefixes import PrefixRow
from daskscope.observe.tasks.stream import RawStream
from daskscope.observe.workers.metrics import Measured
from daskscope.observe.workers.workers import WorkerTotals

EventKind = TypeVar("EventKind", RawEvent, protocol.Event)
FailureKind = TypeVar("FailureKind", RawFailure, protocol.Failure)
StreamKind = TypeVar("StreamKind", RawStream, protocol.TaskStream)


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[EventKind, FailureKind, StreamKind]):
    """Everything to send for one interval.

    ``cluster`` to ``exceptions`` are the state at ``status.at``, ``most`` the highest values that
    workers reported since the last snapshot; the rest are the rows that changed since then. An
    ``Observed`` is unfiltered and stays in the process. ``daskscope.privacy`` makes a ``Cleared``
    of it, which may be sent.
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
    most: Most = Most()  # noqa: RUF009 - it cannot change
    computations: tuple[protocol.Computation, ...] = ()
    task_groups: tuple[protocol.TaskGroup, ...] = ()
    traced: dict[str, Traced] = field(default_factory=dict)
    failures: tuple[FailureKind, ...] = ()
    worker_losses: tuple[protocol.WorkerLoss, ...] = ()
    events: tuple[EventKind, ...] = ()
    code: tuple[protocol.Code, ...] = ()
    logs: tuple[LogRecord, ...] = ()
    activities: tuple[protocol.Activity, ...] = ()
    shutdowns: tuple[protocol.Shutdown, ...] = ()
    profiles: tuple[protocol.Profile, ...] = ()
    task_streams: tuple[StreamKind, ...] = ()


#: Unfiltered: must not leave the process.
Observed = Snapshot[RawEvent, RawFailure, RawStream]

# Approximate bytes of a snapshot without rows, of a row, and of an entry of a mapping in a row.
_SNAPSHOT = 20_000
_ROW = 2_000
_ENTRY = 150


def weight(snapshot: Observed) -> int:
    """Return about how many bytes of memory ``snapshot`` takes, to bound a queue of snapshots.

    This runs on the event loop, so it does not walk through the rows: it counts each with a usual
    size, and measures only long texts and mappings.
    """
    rows = (
        len(snapshot.prefixes)
        + len(snapshot.measured.seconds)
        + len(snapshot.activities)
        + len(snapshot.computations)
        + len(snapshot.task_groups)
        + len(snapshot.failures)
        + len(snapshot.worker_losses)
        + len(snapshot.shutdowns)
    )
    # Their texts are short, or measured below.
    small = len(snapshot.events) + len(snapshot.code) + len(snapshot.logs)
    texts = sum(event.size for event in snapshot.events)
    for code in snapshot.code:
        texts += len(code.text)
    for record in snapshot.logs:
        texts += _length(record.text, record.exception, record.traceback)
    for failure in snapshot.failures:
        texts += _length(failure.row.message, failure.row.traceback)
        texts += failure.causes.characters()
    entries = 0
    for loss in snapshot.worker_losses:
        texts += _length(*loss.log or ())
        entries += len(loss.tasks)
    for group in snapshot.task_groups:
        entries += len(group.dependencies) + len(group.types)
    for computation in snapshot.computations:
        texts += _length(*computation.annotations.values())
        entries += len(computation.spans) + len(computation.frames or ())
    for traced in snapshot.traced.values():
        entries += 2 + 2 * len(traced.samples)
    for stream in snapshot.task_streams:
        entries += stream.noted()
    for profile in snapshot.profiles:
        entries += 3 * len(profile.lines) + len(profile.parent)
    return _SNAPSHOT + _ROW * rows + _ROW // 4 * small + _ENTRY * entries + texts


def _length(*texts: str | None) -> int:
    return sum(len(text) for text in texts if text)
