"""Workers: threads and memory now, thread-seconds so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import WorkerState


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    """All workers together. Memory in bytes; ``seconds`` are thread-seconds by state."""

    count: int
    threads: int
    memory_limit: int
    memory: dict[str, int]
    states: dict[str, int]
    seconds: dict[str, float]


class Workers:
    """Adds up the workers' threads over time, and reads the rest off them at each snapshot."""

    def __init__(self) -> None:
        self._threads_of: dict[str, int] = {}
        self._accrued_at = time()
        self._threads = 0
        self._paused_threads = 0
        self._capacity = 0.0
        self._paused = 0.0
        self._busy = 0.0
        self._idle = 0.0

    def added(self, worker: WorkerState) -> None:
        """Count the threads of a worker from now on."""
        self.removed(worker.address)
        self._threads_of[worker.address] = worker.nthreads
        self._threads += worker.nthreads

    def removed(self, address: str) -> None:
        """Do not count them any more."""
        self._accrue()
        self._threads -= self._threads_of.pop(address, 0)

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
