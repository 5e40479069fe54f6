"""Workers: threads and memory now, thread-seconds so far, and those that left."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.bounded import Bounded, Count

#: Losses that are kept between two beats; beyond it the oldest go, and are counted.
MAX_LOSSES = 500


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    """All workers together. Memory in bytes; ``seconds`` are thread-seconds by state."""

    count: int
    threads: int
    memory_limit: int
    memory: dict[str, int]
    states: dict[str, int]
    seconds: dict[str, float]


@dataclass(slots=True)
class _Known:
    name: str
    since: float
    threads: int
    memory_used: int | None = None
    reason: str = ""
    announced: bool = False


class Workers:
    """What the plugin remembers of the workers, and what it read off them at each snapshot."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._known: dict[str, _Known] = {}
        self._losses: deque[protocol.WorkerLoss] = deque()
        self._lost = 0
        self._reasons = Bounded(Count, 20, "worker loss reason", drops)
        self._accrued_at = time()
        self._threads = 0
        self._paused_threads = 0
        self._capacity = 0.0
        self._paused = 0.0
        self._busy = 0.0
        self._idle = 0.0

    def added(self, worker: WorkerState) -> None:
        """Remember a worker: Dask's own record is gone when it leaves."""
        self._accrue()
        self._known[worker.address] = _Known(
            str(worker.name)[: protocol.MAX_NAME], time(), worker.nthreads
        )
        self._threads += worker.nthreads

    def event(self, topic: str, message: Any) -> None:
        """Read from Dask's event log why workers leave: only there it says so."""
        if not isinstance(message, Mapping):
            return
        action = message.get("action")
        if action == "remove-worker" and topic == "all":
            self._removed(message)
        elif action == "closing-worker" and topic in self._known:
            self._known[topic].reason = str(message.get("reason") or "")[: protocol.MAX_NAME]
            self._known[topic].announced = True
        elif topic == "worker-restart-memory" and message.get("worker") in self._known:
            self._known[message["worker"]].reason = "out of memory"

    def _removed(self, message: Mapping[str, Any]) -> None:
        address = str(message.get("worker"))
        known = self._known.pop(address, None)
        if known is None:
            return
        self._accrue()
        self._threads -= known.threads
        now = time()
        # Dask expects only workers that it retired itself; one that said goodbye was closed too.
        expected = bool(message.get("expected")) or known.announced
        reason = known.reason or ("closed" if expected else "lost connection")
        self._reasons[reason].value += 1
        self._lost += 1
        if len(self._losses) >= MAX_LOSSES:
            self._losses.popleft()
            self._drops["worker loss"] += 1
        self._losses.append(
            protocol.WorkerLoss(
                id=f"{int(now * 1000):x}-{self._lost:x}",
                address=address,
                name=known.name,
                at=now,
                reason=reason,
                expected=expected,
                processing=len(message.get("processing-tasks") or ()),
                memory_used=known.memory_used,
                lifetime=now - known.since,
            )
        )

    def losses(self) -> tuple[protocol.WorkerLoss, ...]:
        """Return the losses since the last call."""
        losses = tuple(self._losses)
        self._losses.clear()
        return losses

    def losses_by_reason(self) -> dict[str, int]:
        """Return how many workers left, by reason."""
        return {reason: count.value for reason, count in self._reasons.values.items()}

    def totals(self, workers: Iterable[WorkerState], compute_seconds: float) -> WorkerTotals:
        """Return the totals over ``workers``, Dask's own records.

        ``compute_seconds`` is what all finished task runs computed; what the running ones computed
        so far is added. A worker's metrics are read as they came: its ``memory`` property costs
        five times as much, too much for a thousand workers.
        """
        count = threads = limit = paused_threads = 0
        managed = unmanaged = spilled = 0
        executing = 0.0
        states: Counter[str] = Counter()
        processes: set[tuple[str, int]] = set()
        for worker in workers:
            count += 1
            threads += worker.nthreads
            limit += worker.memory_limit or 0
            states[worker.status.name] += 1
            if worker.status is Status.paused:
                paused_threads += worker.nthreads
            if worker.executing:
                executing += sum(worker.executing.values())
            metrics = worker.metrics
            used = metrics.get("memory") or 0
            known = self._known.get(worker.address)
            if known is not None:
                known.memory_used = used
            held = metrics.get("managed_bytes") or 0
            managed += held
            spilled += (metrics.get("spilled_bytes") or {}).get("disk") or 0
            # Workers that share a process each report the memory of all of it.
            process = (worker.host, worker.pid)
            if process not in processes:
                processes.add(process)
                unmanaged += used
        self._accrue()
        self._threads = threads
        self._paused_threads = paused_threads
        # A task that was running may end up having computed less: totals only ever grow.
        self._busy = max(self._busy, compute_seconds + executing)
        self._idle = max(self._idle, self._capacity - self._busy - self._paused)
        return WorkerTotals(
            count=count,
            threads=threads,
            memory_limit=limit,
            memory={
                "managed": min(managed, unmanaged),
                "unmanaged": max(unmanaged - managed, 0),
                "spilled": spilled,
            },
            states=dict(states),
            seconds={"busy": self._busy, "idle": self._idle, "paused": self._paused},
        )

    def _accrue(self) -> None:
        now = time()
        elapsed = max(now - self._accrued_at, 0.0)
        self._accrued_at = now
        self._capacity += self._threads * elapsed
        self._paused += self._paused_threads * elapsed
