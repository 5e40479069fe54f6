"""The workers' current threads, memory and GPUs, and their thread-seconds so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dask.typing import Key
from distributed.core import Status
from distributed.metrics import monotonic, time
from distributed.scheduler import TaskPrefix, TaskState, WorkerState

from daskscope import protocol
from daskscope.observe.workers.cpu import peak_memory_of
from daskscope.observe.workers.gpus import total_of
from daskscope.observe.workers.unfinished import MAX_PREFIXES, Unfinished

#: Workers per step.
WORKERS_AT_ONCE = 500
#: Seceded tasks whose time is counted separately; the time of further ones counts as in threads.
MAX_SECEDED = 1_000


# The states of tasks that have to run once more, or do so elsewhere.
_TO_RUN = frozenset({"waiting", "queued", "no-worker", "processing"})


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    """Totals of all workers. ``cpu`` is in cores, memory in bytes, times in thread-seconds.

    ``peak_memory`` is the highest of all processes so far; None if no worker reports it.
    ``capacity`` is the time of all threads, ``unassigned`` the part without a task, ``paused`` the
    part in paused workers. By Dask's own prefix, names that must not be sent: ``running`` is the
    time so far of the tasks that are in a thread now, ``ended`` the part of it of tasks that have
    ended and whose workers have not reported that yet; ``lost`` the time of tasks that had not
    ended when their workers left; ``given_up`` that of cancelled tasks until then, which workers
    report once these have ended; ``elsewhere`` the time of ended runs before all this began, or
    after they had seceded; ``unreported`` the compute time, also after tasks seceded, beside what
    ended runs have reported.
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
    unreported: dict[str, float]
    running: dict[str, float]
    ended: dict[str, float]
    lost: dict[str, float]
    given_up: dict[str, float]
    elsewhere: dict[str, float]
    gpu: protocol.Gpu | None
    peak_memory: int | None = None


class Workers:
    """Adds up the time of the workers' threads, and reads the other totals at each snapshot.

    Time counts from the creation of this object, also for tasks that were running before. A task
    that secedes (``worker_client``) leaves its thread to others and continues in a thread that is
    not counted.
    """

    def __init__(self) -> None:
        self._began_at = self._looked_at = monotonic()
        # Tasks in a thread at the last snapshot, and their seconds until then.
        self._running: dict[Key, float] = {}
        # Tasks that were running when this object was created: their worker, and their seconds by
        # then.
        self._from_before: dict[TaskState, tuple[WorkerState, float]] = {}
        # Such seconds of tasks that have ended since, by Dask's own prefix; also of tasks that had
        # ended before but were not reported yet.
        self._took_before: defaultdict[str, float] = defaultdict(float)
        # Tasks that have seceded: their worker, and since when.
        self._seceded: dict[TaskState, tuple[WorkerState, float]] = {}
        # Seceded tasks that have ended since their worker last reported what it executes.
        self._seceded_till_now: dict[TaskState, tuple[WorkerState, float]] = {}
        # Seconds of ended tasks after they seceded, by Dask's own prefix.
        self._took_apart: defaultdict[str, float] = defaultdict(float)
        # Whether threads may have become free on a worker that is not known.
        self._unclear = False
        # Threads of each worker: without a task, and paused.
        self._slots: dict[str, tuple[int, int]] = {}
        self._threads_of: dict[str, int] = {}
        #: Addresses of workers that have such threads.
        self.with_room: set[str] = set()
        self._accrued_at = monotonic()
        self._threads = 0
        self._free_threads = 0
        self._paused_threads = 0
        self._capacity = 0.0
        self._unassigned = 0.0
        self._paused = 0.0
        # By Dask's own prefix: what finished runs took before all this began, and what those took
        # that report nothing.
        self._computed_before: defaultdict[str, float] = defaultdict(float)
        self._vanished: defaultdict[str, float] = defaultdict(float)
        # By Dask's own prefix: seconds of ended tasks after they seceded, in all.
        self._apart: defaultdict[str, float] = defaultdict(float)
        #: The time of tasks that were cancelled or lost.
        self.unfinished = Unfinished(self._began_at, self._seceded)

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
        """Return the numbers of threads: all, without a task, and paused."""
        return self._threads, self._free_threads, self._paused_threads

    def spent(self, now: float) -> tuple[float, float, float]:
        """Return the thread-seconds until ``now``: all, without a task, and paused."""
        self._accrue(now)
        return self._capacity, self._unassigned, self._paused

    def removed(self, address: str) -> None:
        """Stop counting a worker's threads."""
        self._accrue(monotonic())
        self._threads -= self._threads_of.pop(address, 0)
        free, paused = self._slots.pop(address, (0, 0))
        self.with_room.discard(address)
        self._free_threads -= free
        self._paused_threads -= paused

    def look(self, worker: WorkerState | None) -> None:
        """Note how many threads of a running worker have no task now.

        Call it when a worker in :attr:`with_room` gets a task, and when a task leaves a worker,
        unless no worker has a free thread. Pass None if the worker has left or is not known, as
        when a task is cancelled.
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
        """Note that a task has seceded: it leaves its thread to others, and continues."""
        if len(self._seceded) < MAX_SECEDED:
            self._seceded.setdefault(task, (worker, monotonic()))
        self._unclear = True

    def look_again(self, workers: Iterable[WorkerState]) -> None:
        """Look at all ``workers`` if threads may have become free on one that is not known.

        Call it at each tick of the event loop.
        """
        self.unfinished.tick()
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
                    continue  # its worker was lost and will not report the time
                self._took_apart[task.prefix.name] += now - since
                prefix = task.prefix.name
                if prefix in self._apart or len(self._apart) < MAX_PREFIXES:
                    self._apart[prefix] += now - since
                if task in worker.executing and len(self._seceded_till_now) < MAX_SECEDED:
                    self._seceded_till_now[task] = worker, since

    def vanished(self, task: TaskState) -> None:
        """Count the time of a task that did not report it: cancelled, or its worker was lost."""
        self._from_before.pop(task, None)
        took = self._running.pop(task.key, None)
        prefix = task.prefix.name
        if took is not None and (prefix in self._vanished or len(self._vanished) < MAX_PREFIXES):
            self._vanished[prefix] += took + monotonic() - self._looked_at

    def took_elsewhere(self) -> dict[str, float]:
        """Return time to subtract from the workers' reports, by Dask's own prefix, once each.

        It is the time that ended tasks spent before this object was created, or after they seceded.
        Their workers' reports include it.
        """
        self._end_seceded()
        for task, (worker, took) in tuple(self._from_before.items()):
            if task.processing_on is not worker:
                del self._from_before[task]
                self._computed_before[task.prefix.name] += took
                self._took_before[task.prefix.name] += took
        seconds = dict(self._took_before)
        for prefix, took in self._took_apart.items():
            seconds[prefix] = seconds.get(prefix, 0.0) + took
        self._took_before.clear()
        self._took_apart.clear()
        return seconds

    def totals(self, workers: Sequence[WorkerState]) -> Generator[None, None, WorkerTotals]:
        """Add up ``workers``, Dask's own records, in steps; return the totals.

        A worker's metrics are read directly: its ``memory`` property takes five times as long, too
        long for a thousand workers.
        """
        now, at = time(), monotonic()
        first = self._looked_at == self._began_at
        count = len(workers)
        threads = limit = 0
        managed = unmanaged = spilled = 0
        percent = 0.0
        peak: int | None = None
        seconds_of: defaultdict[TaskPrefix | None, float] = defaultdict(float)
        executing: defaultdict[TaskPrefix | None, float] = defaultdict(float)
        ended: defaultdict[TaskPrefix | None, float] = defaultdict(float)
        running = 0
        other_states: Counter[str] = Counter()
        processes: set[tuple[str, int]] = set()
        with_gpu: list[WorkerState] = []
        cancelled = self.unfinished.cancelled_lately
        cancelled_before, still_there = cancelled.copy(), set[TaskState]()
        slots = self._slots
        in_threads: dict[Key, float] = {}
        status_running = Status.running  # looking up a member of an enum is slow
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
                    # A task that has ended since the worker's last heartbeat is reported in its
                    # next one.
                    if task.processing_on is worker:
                        took += since
                        if first:
                            self._from_before[task] = worker, took - most
                        if took > most:
                            took = most
                        executing[task.group.prefix] += took
                        in_threads[task.key] = took
                        if task in self._seceded:
                            took = max(took - (at - self._seceded[task][1]), 0.0)
                    elif task in cancelled:
                        still_there.add(task)  # its time is in ``given_up``
                        continue
                    else:
                        if first:
                            self._took_before[task.prefix.name] += took
                        took = min(took, max(most - since, 0.0))
                        if task in self._seceded_till_now:
                            apart = at - since - self._seceded_till_now[task][1]
                            took = max(took - max(apart, 0.0), 0.0)
                        if task.state not in _TO_RUN:
                            ended[task.group.prefix] += took
                    seconds_of[task.group.prefix] += took
            metrics = worker.metrics
            managed += metrics.get("managed_bytes") or 0
            in_stores = metrics.get("spilled_bytes")
            if in_stores:
                spilled += in_stores.get("disk") or 0
                # managed_bytes includes spilled data, which is not in memory.
                managed -= in_stores.get("memory") or 0
            had = peak_memory_of(worker)
            if had is not None and (peak is None or had > peak):
                peak = had
            if "gpu_utilization" in metrics or "gpu" in metrics:
                with_gpu.append(worker)
            # Workers without a nanny may share a process; each then reports all of the process.
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
        cancelled -= cancelled_before - still_there
        self._accrue(self._looked_at)
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
            unreported=self._unreported(executing),
            running=_named(seconds_of),
            ended=_named(ended),
            lost=dict(self.unfinished.lost),
            given_up=dict(self.unfinished.given_up),
            elsewhere={
                prefix: self._computed_before.get(prefix, 0.0) + self._apart.get(prefix, 0.0)
                for prefix in self._computed_before.keys() | self._apart.keys()
            },
            gpu=gpu,
            peak_memory=peak,
        )

    def unreported(self, workers: Iterable[WorkerState]) -> dict[str, float]:
        """Return ``WorkerTotals.unreported`` as it is now."""
        now, most = time(), monotonic() - self._began_at
        executing: defaultdict[TaskPrefix | None, float] = defaultdict(float)
        for worker in workers:
            since = max(now - worker.last_seen, 0.0)
            for task, took in worker.executing.items():
                if task.processing_on is worker:
                    executing[task.group.prefix] += min(took + since, most)
        return self._unreported(executing)

    def _unreported(self, executing: Mapping[TaskPrefix | None, float]) -> dict[str, float]:
        seconds: defaultdict[str, float] = defaultdict(float, _named(executing))
        for prefix, took in self._vanished.items():
            seconds[prefix] += took
        for prefix, took in self._computed_before.items():
            seconds[prefix] -= took
        return dict(seconds)

    def _accrue(self, now: float) -> None:
        # ``now`` is a monotonic time: the wall clock may be set.
        elapsed = now - self._accrued_at
        self._accrued_at = now
        self._capacity += self._threads * elapsed
        self._unassigned += self._free_threads * elapsed
        self._paused += self._paused_threads * elapsed


def _named(seconds: Mapping[TaskPrefix | None, float]) -> dict[str, float]:
    return {prefix.name: took for prefix, took in seconds.items() if prefix is not None}
