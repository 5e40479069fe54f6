"""Workers that left: when, why, and with which tasks."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Any

from dask.typing import Key
from distributed.metrics import time
from distributed.scheduler import Scheduler, TaskState, WorkerState

from daskscope import names, protocol
from daskscope.containment import guarded
from daskscope.observe.workers.cpu import deployment_of_worker, peak_memory_of
from daskscope.size import size_of

#: The last log lines that are stored of each worker.
LAST_LINES = 10
#: Losses that are stored between two heartbeats, for a fleet that leaves at once. Beyond it the
#: oldest are dropped and counted.
MAX_LOSSES = 5_000
#: Losses per snapshot.
LOSSES_AT_ONCE = 500
#: Bytes of the stored losses' log lines and task prefixes. Beyond it losses are stored without
#: these details, and counted.
MAX_DETAIL_BYTES = 4 << 20
#: Tasks of a lost worker that are counted by prefix, and prefixes; the others count as ``other``.
MAX_TASKS = 500
MAX_PREFIXES = 20
#: Seconds to wait for the nanny's report on a worker that left without a reason.
NANNY_PATIENCE = 10.0
#: Seconds to wait for the last log lines of a worker without a nanny that left without a reason.
LINES_PATIENCE = 2.0

#: How Dask's reasons for closing a worker begin, and our reason for each.
_SPOKEN = (
    ("worker-handle-scheduler-connection-broken", names.LOSS_LOST_CONNECTION),
    ("worker-heartbeat", names.LOSS_LOST_CONNECTION),
    ("check-worker-ttl", names.LOSS_TIMED_OUT),
    ("client-restart", names.LOSS_RESTARTED),
    ("nanny-restart", names.LOSS_RESTARTED),
    ("nanny-plugin", names.LOSS_RESTARTED),
    ("retire-workers", names.LOSS_RETIRED),
    ("worker-close-gracefully", names.LOSS_RETIRED),
    ("worker-lifetime-reached", names.LOSS_RETIRED),
    ("signal-", names.LOSS_TERMINATED),
)
_EXPECTED = frozenset(
    {names.LOSS_CLOSED, names.LOSS_RETIRED, names.LOSS_RESTARTED, names.LOSS_TERMINATED}
)
#: Reasons that are expected only if no task was lost: the end of a lifetime, a job or a pod.
_UNLESS_AT_WORK = frozenset({names.LOSS_RETIRED, names.LOSS_TERMINATED})


def spoken(text: str) -> str:
    """Return our reason for Dask's ``text``."""
    if text.endswith("-fail-hard"):
        return names.LOSS_FAILED
    return next((reason for words, reason in _SPOKEN if text.startswith(words)), names.LOSS_CLOSED)


def _likeliest(task: TaskState) -> tuple[int, Any]:
    """Return the sort key of a task that may have run when its worker was lost.

    Tasks that were there when the most workers were lost come first, then those of the highest
    priority: a worker starts these first.
    """
    return -task.suspicious, task.priority


def _most(*amounts: int | None) -> int | None:
    return max((amount for amount in amounts if amount is not None), default=None)


@dataclass(slots=True)
class _Known:
    # Dask drops its record when the worker leaves, so this keeps it.
    worker: WorkerState
    since: float
    reason: str = ""
    nanny_memory: int | None = None
    lines: deque[str] | None = None


@dataclass(slots=True)
class _Unclear:
    """A loss of which more may become known until ``until``.

    ``size`` is the bytes of its details; ``cut`` is whether there was no room for them.
    """

    loss: protocol.WorkerLoss
    nanny: str | None
    until: float
    size: int
    cut: bool = False


class Losses:
    """Tracks the connected workers, and records those that leave.

    ``prefix_of`` returns a task's name. ``left`` is called with each worker that leaves, and the
    keys of the tasks that it had. ``unended`` returns those of some tasks whose computations had
    not ended. ``lost`` is called with such tasks that a lost worker was running, and returns their
    number by computation. ``peak`` is called with the address and the memory in bytes of a worker
    whose nanny ended it for its memory use, ``had`` with the peak memory in bytes of each worker
    that leaves.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        prefix_of: Callable[[TaskState], str],
        drops: Counter[str],
        *,
        left: Callable[[WorkerState, Collection[Key]], None],
        unended: Callable[[Collection[TaskState]], list[TaskState]],
        lost: Callable[[Collection[TaskState]], dict[str, int]],
        peak: Callable[[str, int], None],
        had: Callable[[int], None],
    ) -> None:
        self._scheduler = scheduler
        self._prefix_of = prefix_of
        self._left = left
        self._unended = unended
        self._lost_tasks = lost
        self._peak = peak
        self._had = had
        self._drops = drops
        self._known: dict[str, _Known] = {}
        self._losses: deque[protocol.WorkerLoss] = deque()
        # By the worker's address: the nanny's report and the last log lines may arrive after its
        # end.
        self._unclear: dict[str, _Unclear] = {}
        self._of_nanny: dict[str, str] = {}
        self._lost = 0
        self._detail_bytes = 0
        self._reasons: Counter[str] = Counter()

    def added(self, worker: WorkerState) -> None:
        """Track a worker."""
        joined_at = guarded(self._drops, None, self._joined_at, worker)
        self._known[worker.address] = _Known(worker, joined_at or time())
        if worker.nanny in self._of_nanny:
            # A nanny starts another worker only when the process of the last one has ended.
            self._clear_up(self._of_nanny[worker.nanny], reason=names.LOSS_DIED)
        if worker.address in self._unclear:
            self._clear_up(worker.address)

    def _joined_at(self, worker: WorkerState) -> float | None:
        """Return when a worker joined, which may be before the plugin came; None if unknown."""
        for at, message in reversed(self._scheduler.get_events(worker.address)):
            if type(message) is dict and message.get("action") == "add-worker":
                joined_at: float = at
                return joined_at
        return None

    def event(self, topic: str, message: Any) -> None:
        """Read from Dask's event log why workers leave: no hook gets the reason."""
        if type(message) is not dict:  # Dask's own are; a user's type may do anything when read
            return
        action = message.get("action")
        if action == "remove-worker" and topic == "all":
            self._removed(message)
        elif action == "closing-worker" and topic in self._known:
            self._says(topic, spoken(str(message.get("reason") or "")))
        elif action == "worker-ttl-timed-out" and topic == "scheduler":
            for address in message.get("workers") or ():
                self._says(address, names.LOSS_TIMED_OUT)
        elif topic == "worker-restart-memory":
            self._out_of_memory(str(message.get("worker")), message.get("rss"))

    def logged(self, address: str, line: str) -> None:
        """Store a line that a worker logged. Its last lines are sent if it is lost."""
        known = self._known.get(address)
        if known is None:
            self._late_line(address, line)
        elif known.lines is None:
            known.lines = deque((line,), LAST_LINES)
        else:
            known.lines.append(line)

    def _late_line(self, address: str, line: str) -> None:
        """Store a line of a worker that has left: it was logged before, and arrives only now."""
        unclear = self._unclear.get(address)
        if unclear is None or unclear.cut:
            return
        log = (*(unclear.loss.log or ()), line)[-LAST_LINES:]
        size = size_of(unclear.loss.tasks) + size_of(log)
        if self._detail_bytes + size - unclear.size > MAX_DETAIL_BYTES:
            unclear.cut = True
            self._drops["worker loss detail"] += 1
            return
        self._detail_bytes += size - unclear.size
        unclear.size = size
        unclear.loss = dataclasses.replace(unclear.loss, log=log)

    def take(self, *, last: bool) -> tuple[protocol.WorkerLoss, ...]:
        """Return some losses, each once, the oldest first.

        With ``last``, return all, including those of which more may become known.
        """
        now = time()
        for address, unclear in list(self._unclear.items()):
            if last or now > unclear.until:
                self._clear_up(address)
        count = len(self._losses) if last else min(len(self._losses), LOSSES_AT_ONCE)
        losses = tuple(self._losses.popleft() for _ in range(count))
        if not self._losses:
            self._detail_bytes = sum(unclear.size for unclear in self._unclear.values())
        return losses

    def many_wait(self) -> bool:
        """Return whether more losses wait than the next heartbeat can hold."""
        return len(self._losses) > LOSSES_AT_ONCE

    def by_reason(self) -> dict[str, int]:
        """Return how many workers left, by reason."""
        return dict(self._reasons)

    def _says(self, address: str, reason: str) -> None:
        known = self._known.get(address)
        # The first reason is the cause: a worker that timed out is asked to close afterwards.
        if known is not None and not known.reason:
            known.reason = reason

    def _out_of_memory(self, address: str, memory: Any) -> None:
        used = memory if isinstance(memory, int) else None
        if used is not None:
            self._peak(address, used)
        known = self._known.get(address)
        if known is not None:
            known.reason, known.nanny_memory = names.LOSS_OUT_OF_MEMORY, used
            return
        if address in self._unclear:
            peak = _most(self._unclear[address].loss.peak_memory, used)
            self._clear_up(
                address, reason=names.LOSS_OUT_OF_MEMORY, nanny_memory=used, peak_memory=peak
            )

    def _removed(self, message: Mapping[str, Any]) -> None:
        address = str(message.get("worker"))
        known = self._known.pop(address, None)
        if known is None:
            return
        worker, now = known.worker, time()
        stimulus = str(message.get("stimulus_id") or "")
        if message.get("expected"):
            # Dask expects only workers that it retires.
            reason = names.LOSS_RETIRED
        elif known.reason:
            reason = known.reason
        elif stimulus.startswith("handle-worker-cleanup"):
            reason = names.LOSS_LOST_CONNECTION
        elif stimulus.startswith("nanny-close"):
            reason = names.LOSS_DIED
        else:
            reason = spoken(stimulus)
        keys = message.get("processing-tasks") or ()
        guarded(self._drops, None, self._left, worker, keys)
        expected = reason in _EXPECTED
        if reason in _UNLESS_AT_WORK and keys and not message.get("expected"):
            # Its lifetime ended while it had tasks. Dask counts that as a failure of the tasks, and
            # gives up a task after too many.
            expected = False
        self._lost += 1
        loss = protocol.WorkerLoss(
            id=f"{int(now * 1000):x}-{self._lost:x}",
            address=address,
            name=guarded(self._drops, address, str, worker.name)[: protocol.MAX_NAME],
            at=now,
            reason=reason,
            expected=expected,
            processing=len(keys),
            memory_used=worker.metrics.get("memory"),
            lifetime=now - known.since,
            last_seen_at=worker.last_seen,
            memory_limit=worker.memory_limit or None,
            nanny_memory=known.nanny_memory,
            tasks=guarded(self._drops, {names.OTHER: len(keys)}, self._by_prefix, keys),
            log=None if known.lines is None else tuple(known.lines),
            peak_memory=_most(
                worker.metrics.get("memory"), peak_memory_of(worker), known.nanny_memory
            ),
            computations=guarded(self._drops, {}, self._computations, worker, keys),
            deployment=guarded(self._drops, {}, deployment_of_worker, worker),
        )
        if loss.peak_memory is not None:
            self._had(loss.peak_memory)
        size = size_of(loss.tasks) + size_of(loss.log)
        cut = self._detail_bytes + size > MAX_DETAIL_BYTES
        if cut:
            size, tasks = 0, {names.OTHER: len(keys)} if keys else {}
            loss = dataclasses.replace(loss, tasks=tasks, log=None)
            self._drops["worker loss detail"] += 1
        self._detail_bytes += size
        if known.reason or loss.expected:
            self._settle(loss)
            return
        until = now + (NANNY_PATIENCE if worker.nanny else LINES_PATIENCE)
        self._unclear[address] = _Unclear(loss, worker.nanny, until, size, cut)
        if worker.nanny:
            self._of_nanny[worker.nanny] = address
        if len(self._unclear) > MAX_LOSSES:
            self._clear_up(next(iter(self._unclear)))

    def _clear_up(self, address: str, **known: Any) -> None:
        """Record a loss for good, with what has become known of it."""
        unclear = self._unclear.pop(address)
        if unclear.nanny:
            self._of_nanny.pop(unclear.nanny, None)
        self._settle(dataclasses.replace(unclear.loss, **known))

    def _settle(self, loss: protocol.WorkerLoss) -> None:
        self._reasons[loss.reason] += 1
        if len(self._losses) >= MAX_LOSSES:
            self._losses.popleft()
            self._drops["worker loss"] += 1
        self._losses.append(loss)

    def _computations(self, worker: WorkerState, keys: Collection[Any]) -> dict[str, int]:
        tasks = [task for task in map(self._scheduler.tasks.get, keys) if task is not None]
        # Its last heartbeat says which tasks had begun. Those that have ended since are not among
        # the keys. A task that has seceded runs too, but leaves its thread to another.
        begun = [task for task in tasks if task in worker.executing or task in worker.long_running]
        in_threads = sum(task not in worker.long_running for task in begun)
        # What has begun since is not known. Lost results that are computed again have a higher
        # priority than what a worker is running, and may only wait beside it.
        free = max(worker.nthreads - in_threads, 0)
        others = self._unended(set(tasks).difference(begun))
        began_since = nsmallest(free, others, key=_likeliest)
        return self._lost_tasks([*self._unended(begun), *began_since])

    def _by_prefix(self, keys: Iterable[Any]) -> dict[str, int]:
        prefixes: Counter[str] = Counter()
        known = self._scheduler.tasks
        keys = list(keys)
        # Finding a name takes a while; all tasks of a collection's group have the same name.
        names_of: dict[str, str] = {}
        for key in islice(keys, MAX_TASKS):
            task = known.get(key)
            if task is None:
                name = names.OTHER
            elif task.group.name in names_of:
                name = names_of[task.group.name]
            else:
                name = self._prefix_of(task)
                if task.group.name != task.group.prefix.name:
                    names_of[task.group.name] = name
            prefixes[name] += 1
        counts = dict(prefixes.most_common(MAX_PREFIXES))
        rest = len(keys) - sum(counts.values())
        if rest:
            counts[names.OTHER] = counts.get(names.OTHER, 0) + rest
        return counts
