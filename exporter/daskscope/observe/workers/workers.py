"""Workers: threads, memory and GPUs now, thread-seconds so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from dask.typing import Key
from distributed.core import Status
from distributed.metrics import monotonic, time
from distributed.scheduler import TaskPrefix, TaskState, WorkerState

from daskscope import protocol
from daskscope.observe.workers.cpu import peak_memory_of
from daskscope.observe.workers.gpus import total_of

#: Workers that are looked at in one step.
WORKERS_AT_ONCE = 500
#: Tasks that have seceded and whose time is kept apart; that of others counts as in the threads.
MAX_SECEDED = 1_000


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    """All workers together. ``cpu`` in cores, memory in bytes; all times are thread-seconds.

    ``peak_memory`` is the most that the process of any of them has had, None where none says so.
    ``capacity`` is what all threads had, ``unassigned`` how much of it there was no task for, and
    ``paused`` how much in workers that took none. ``computing`` is what tasks computed, those that
    have seceded too. ``running`` is what the tasks that are in a thread now took so far, by Dask's
    own prefix: it has not been cleared to leave.
    """

    count: int
    threads: int
    cpu: float
    memory_limit: int
    memory: dict[str, int]
    states: dict[str, int]
    capacity: float
    unassigned: float
    paused: float
    computing: float
    running: dict[str, float]
    gpu: protocol.Gpu | None
    peak_memory: int | None = None


class Workers:
    """Adds up the workers' threads over time, and reads the rest off them at each snapshot.

    All time begins with this object: of a task that ran before, only what it took since counts.
    A task that secedes (``worker_client``) leaves its thread to others, and goes on in one beyond
    those that are counted.
    """

    def __init__(self) -> None:
        self._began_at = self._looked_at = monotonic()
        # What the tasks that were in a thread at the last snapshot had taken until then.
        self._running: dict[Key, float] = {}
        # Of tasks that were running when all this began: where, and what they had taken by then.
        self._from_before: dict[TaskState, tuple[WorkerState, float]] = {}
        # Of all that have ended since, by Dask's own prefix; and of those that had ended by then,
        # and whose workers had not reported it.
        self._took_before: defaultdict[str, float] = defaultdict(float)
        # Tasks that have seceded: where, and since when. What those that have ended took since
        # then, by Dask's own prefix.
        self._seceded: dict[TaskState, tuple[WorkerState, float]] = {}
        # Those of them that have ended since their worker last reported what it executes.
        self._seceded_till_now: dict[TaskState, tuple[WorkerState, float]] = {}
        self._took_apart: defaultdict[str, float] = defaultdict(float)
        # Whether threads may have become free on a worker that no hook names.
        self._unclear = False
        # Threads of each worker: without a task, and paused.
        self._slots: dict[str, tuple[int, int]] = {}
        self._threads_of: dict[str, int] = {}
        #: Addresses of those that have such threads.
        self.with_room: set[str] = set()
        self._accrued_at = monotonic()
        self._threads = 0
        self._free_threads = 0
        self._paused_threads = 0
        self._capacity = 0.0
        self._unassigned = 0.0
        self._paused = 0.0
        self._compute_before = 0.0
        self._vanished = 0.0
        self._computing = 0.0

    def added(self, worker: WorkerState) -> None:
        """Count the threads of a worker from now on."""
        self.removed(worker.address)
        self._threads_of[worker.address] = worker.nthreads
        self._slots[worker.address] = (0, 0)
        self._threads += worker.nthreads
        for task in worker.long_running:
            self.secedes(task, worker)
        self.look_closely(worker)

    def threads(self) -> tuple[int, int, int]:
        """Return how many threads there are, how many without a task, and how many paused."""
        return self._threads, self._free_threads, self._paused_threads

    def spent(self, now: float) -> tuple[float, float, float]:
        """Return the thread-seconds of these until ``now``."""
        self._accrue(now)
        return self._capacity, self._unassigned, self._paused

    def removed(self, address: str) -> None:
        """Do not count them any more."""
        self._accrue(monotonic())
        self._threads -= self._threads_of.pop(address, 0)
        free, paused = self._slots.pop(address, (0, 0))
        self.with_room.discard(address)
        self._free_threads -= free
        self._paused_threads -= paused

    def look(self, worker: WorkerState | None) -> None:
        """Note how many threads of a worker have no task now, if it is known to run.

        To be called whenever it is given a task, if it is among those :attr:`with_room`, and
        whenever a task leaves it, unless neither it nor any other has room. None is one that has
        left, or that Dask does not name, as where a task is cancelled.
        """
        if worker is None:
            self._unclear = True
            return
        free = worker.nthreads - len(worker.processing) + len(worker.long_running)
        if self._slots.get(worker.address) != (free if free > 0 else 0, 0):
            self.look_closely(worker)

    def look_closely(self, worker: WorkerState) -> None:
        """Note how many threads of a worker have no task now, or are paused."""
        before = self._slots.get(worker.address)
        if before is None:
            return
        if worker.status is Status.paused:
            now = (0, max(worker.nthreads - len(worker.executing), 0))
        else:
            at_work = len(worker.processing) - len(worker.long_running)
            now = (max(worker.nthreads - at_work, 0), 0)
        if now != before:
            self._accrue(monotonic())
            self._slots[worker.address] = now
            (self.with_room.add if any(now) else self.with_room.discard)(worker.address)
            self._free_threads += now[0] - before[0]
            self._paused_threads += now[1] - before[1]

    def secedes(self, task: TaskState, worker: WorkerState) -> None:
        """A task leaves its thread to others, and goes on."""
        if len(self._seceded) < MAX_SECEDED:
            self._seceded.setdefault(task, (worker, monotonic()))
        self._unclear = True

    def look_again(self, workers: Iterable[WorkerState]) -> None:
        """Look at all ``workers`` if something has happened since the last call that no hook names
        a worker for. To be called at each tick of the event loop.
        """
        if self._seceded:
            self._end_seceded()
        if self._unclear:
            self._unclear = False
            for worker in workers:
                self.look(worker)

    def _end_seceded(self) -> None:
        now = monotonic()
        for task, (worker, since) in tuple(self._seceded.items()):
            if task.processing_on is not worker:
                del self._seceded[task]
                if worker.status is Status.closed:
                    continue  # its worker was lost, and will not report its time
                self._took_apart[task.prefix.name] += now - since
                if task in worker.executing and len(self._seceded_till_now) < MAX_SECEDED:
                    self._seceded_till_now[task] = worker, since

    def vanished(self, task: TaskState) -> None:
        """A task left its worker and reported no time: it was cancelled, or the worker was lost."""
        self._from_before.pop(task, None)
        took = self._running.pop(task.key, None)
        if took is not None:
            self._vanished += took + monotonic() - self._looked_at

    def took_elsewhere(self) -> dict[str, float]:
        """Return what tasks took before all this began, and in threads beyond those that are
        counted, by Dask's own prefix: once they have ended.

        Each is reported once. What their worker reports of them after they have ended contains it.
        """
        self._end_seceded()
        for task, (worker, took) in tuple(self._from_before.items()):
            if task.processing_on is not worker:
                del self._from_before[task]
                self._compute_before += took
                self._took_before[task.prefix.name] += took
        seconds = dict(self._took_before)
        for prefix, took in self._took_apart.items():
            seconds[prefix] = seconds.get(prefix, 0.0) + took
        self._took_before.clear()
        self._took_apart.clear()
        return seconds

    def totals(
        self, workers: Sequence[WorkerState], compute_seconds: float
    ) -> Generator[None, None, WorkerTotals]:
        """Add up ``workers``, Dask's own records, some at a time; return the totals.

        ``compute_seconds`` is what all finished task runs computed; what the running ones computed
        so far is added. A worker's metrics are read as they came: its ``memory`` property costs
        five times as much, too much for a thousand workers.
        """
        now, at = time(), monotonic()
        first = self._looked_at == self._began_at
        count = len(workers)
        threads = limit = 0
        managed = unmanaged = spilled = 0
        executing = percent = 0.0
        peak: int | None = None
        seconds_of: defaultdict[TaskPrefix | None, float] = defaultdict(float)
        running = 0
        other_states: Counter[str] = Counter()
        processes: set[tuple[str, int]] = set()
        with_gpu: list[WorkerState] = []
        slots = self._slots
        in_threads: dict[Key, float] = {}
        status_running = Status.running  # an enumeration is slow to look up its members
        for number, worker in enumerate(workers):
            if number and not number % WORKERS_AT_ONCE:
                yield
                now, at = time(), monotonic()
            nthreads = worker.nthreads
            threads += nthreads
            limit += worker.memory_limit or 0
            status = worker.status
            if status is status_running:
                running += 1
                free = nthreads - len(worker.processing) + len(worker.long_running)
                if slots.get(worker.address) != (free if free > 0 else 0, 0):
                    self.look_closely(worker)
            else:
                other_states[status.name] += 1
                self.look_closely(worker)
            if worker.executing:
                since = now - worker.last_seen
                if since < 0.0:
                    since = 0.0
                most = at - self._began_at
                for task, took in worker.executing.items():
                    # One that has ended since the worker's last beat is reported in its next.
                    if task.processing_on is worker:
                        took += since
                        if first:
                            self._from_before[task] = worker, took - most
                        if took > most:
                            took = most
                        executing += took
                        in_threads[task.key] = took
                        if task in self._seceded:
                            took = max(took - (at - self._seceded[task][1]), 0.0)
                    else:
                        if first:
                            self._took_before[task.prefix.name] += took
                        took = min(took, max(most - since, 0.0))
                        if task in self._seceded_till_now:
                            apart = at - since - self._seceded_till_now[task][1]
                            took = max(took - max(apart, 0.0), 0.0)
                    seconds_of[task.group.prefix] += took
            metrics = worker.metrics
            managed += metrics.get("managed_bytes") or 0
            in_stores = metrics.get("spilled_bytes")
            if in_stores:
                spilled += in_stores.get("disk") or 0
                # A worker manages what is on its disk, too; it is in no memory.
                managed -= in_stores.get("memory") or 0
            had = peak_memory_of(worker)
            if had is not None and (peak is None or had > peak):
                peak = had
            if "gpu_utilization" in metrics or "gpu" in metrics:
                with_gpu.append(worker)
            # Workers without a nanny may share a process: then each reports all of it.
            if not worker.nanny:
                process = (worker.host, worker.pid)
                if process in processes:
                    continue
                processes.add(process)
            unmanaged += metrics.get("memory") or 0
            percent += metrics.get("cpu") or 0.0
        gpu = total_of(with_gpu)
        self._seceded_till_now = {
            task: (worker, since)
            for task, (worker, since) in self._seceded_till_now.items()
            if task in worker.executing
        }
        self._running, self._looked_at = in_threads, monotonic()
        self._accrue(self._looked_at)
        computed = compute_seconds - self._compute_before
        # A task that was running may end up having computed less: totals only ever grow.
        self._computing = max(self._computing, computed + self._vanished + executing)
        states = dict(other_states)
        if running:
            states[Status.running.name] = running
        return WorkerTotals(
            count=count,
            threads=threads,
            cpu=percent / 100,
            memory_limit=limit,
            memory={
                "managed": max(min(managed, unmanaged), 0),
                "unmanaged": max(unmanaged - max(managed, 0), 0),
                "spilled": spilled,
            },
            states=states,
            capacity=self._capacity,
            unassigned=self._unassigned,
            paused=self._paused,
            computing=self._computing,
            running={
                prefix.name: took for prefix, took in seconds_of.items() if prefix is not None
            },
            gpu=gpu,
            peak_memory=peak,
        )

    def _accrue(self, now: float) -> None:
        # Not the wall clock, which may be set: an hour ahead is no hour that the threads had.
        elapsed = now - self._accrued_at
        self._accrued_at = now
        self._capacity += self._threads * elapsed
        self._unassigned += self._free_threads * elapsed
        self._paused += self._paused_threads * elapsed
