"""Measures how long a cluster has been idle, and finds what keeps it busy.

Dask's own measure, ``Scheduler.check_idle``, does not serve: it uses the wall clock, which may
jump; it counts the time while the first workers still start; and the call itself may close the
cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter

from distributed.deploy.spec import SpecCluster
from distributed.scheduler import Scheduler, WorkerState, heartbeat_interval

from daskscope.observe.cluster.calls import MEETINGS, Calls
from daskscope.observe.cluster.other_plugins import Others
from daskscope.observe.workers.cpu import WorkersCpu

#: Seconds for which requested workers that do not arrive keep a cluster from being idle: they may
#: wait in Slurm's queue, or may never start.
PATIENCE = 3600.0
#: The most seconds that count between two looks: a halted process or a blocked event loop did not
#: watch the cluster for longer.
MAX_STEP = 10.0
#: Seconds between two looks after which work may have arrived that the event loop has not read yet:
#: its process was halted, or something blocked it.
UNWATCHED = 1.0

#: Seconds without a sign of work before a cluster may be closed, and the workers' heartbeats that
#: must fall into that time: without them the load of the workers' processes is not known.
SETTLED, BEATS = 3.0, 2

#: Fast, because it runs for every worker.
_ACTORS = attrgetter("actors")


class Idle:
    """Watches whether a cluster is at work. Not thread-safe.

    A cluster is idle without any sign of work. Signs are: a task that runs, is queued, or waits for
    others or for a worker that can run it; a graph that arrives; a worker that starts; a client's
    call (:mod:`.calls`); a worker whose processes use the CPU or a GPU, or that does not report
    (:mod:`~daskscope.observe.workers.cpu`); another plugin that reports work
    (:mod:`.other_plugins`). Work that came and went between two looks starts the idle time again.
    Released results and failed tasks do not: that is no work. Connected clients and data in memory
    do not count either: a forgotten notebook has them, too.

    ``watched`` is for how many seconds the cluster was watched, by a monotonic clock. ``worked``
    returns a count that grows with every step of a task.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], int] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._worked = worked or (lambda: scheduler.transition_counter)
        self._looked_at = clock()
        self._since: float | None = None
        self._calls = Calls(scheduler)
        self._cpu = WorkersCpu()
        self._others = Others(scheduler)
        self._steps = self._worked()
        self._transitions = scheduler.transition_counter
        self._called = self.calls_begun()
        # Since when there is neither a task nor a call, and the cluster is watched without a gap.
        # The workers may still be busy.
        self._quiet_since: float | None = None
        self._busy_by: tuple[str, ...] = ()
        # Tasks that wait for others, and Dask's transition counter when they were counted.
        self._waiting = (0, -1)
        # How many workers were requested, the most that were there since, and since when.
        self._asked_for = self._most = 0
        self._most_since = 0.0
        self._workers_came = False
        self._jupyter_was_used: object = None
        self.watched = 0.0

    def look(self) -> None:
        """Update whether the cluster is idle. Call it about twice a second."""
        now = self._clock()
        since_last = now - self._looked_at
        step = min(max(since_last, 0.0), MAX_STEP)
        self.watched += step
        self._looked_at = now
        steps, called = self._worked(), self.calls_begun()
        used = self._jupyter_used()
        before = self._steps, self._called, self._jupyter_was_used
        moved = (steps, called, used) != before
        self._steps, self._called, self._jupyter_was_used = steps, called, used
        self._calls.look(self.watched)
        asked = tuple(self._asked())
        quiet = not (moved or asked)
        # Dask itself resets its idle time at any transition; only without one can a reset come from
        # another plugin.
        transitions = self._scheduler.transition_counter
        still, self._transitions = transitions == self._transitions, transitions
        self._others.look(self.watched, quiet=quiet and still)
        if not quiet:
            self._quiet_since = None
            self._cpu.restart()
        else:
            if self._quiet_since is None or since_last > UNWATCHED:
                self._quiet_since = self.watched
            # dict.values: Dask itself iterates by address, which takes several times as long.
            self._cpu.look(dict.values(self._scheduler.workers), self.watched)
        self._busy_by = asked + tuple(self._unasked())
        if self._busy_by:
            self._since = None
        elif moved or self._since is None:
            self._since = self.watched

    def restart(self) -> None:
        """Start the idle time again: someone wants the cluster, although it does nothing."""
        self._since = None

    @contextmanager
    def our_call(self) -> Iterator[None]:
        """Do not count the call that runs inside, such as ``explain()``, as work."""
        self._calls.ours += 1
        try:
            yield
        finally:
            self._calls.ours -= 1

    def count_tasks(self, tasks: Mapping[str, int]) -> None:
        """Store the current number of ``tasks`` by Dask's state."""
        self._waiting = (tasks.get("waiting", 0), self._scheduler.transition_counter)

    def seconds(self) -> float | None:
        """Return for how many seconds the cluster has been idle; None while it is at work."""
        return None if self._since is None else self.watched - self._since

    def settled(self) -> bool:
        """Return whether there was no task and no call for long enough to see all signs of work."""
        # A worker whose event loop is blocked does not report what blocks it.
        if self._quiet_since is None or self._cpu.unheard:
            return False
        beats = BEATS * heartbeat_interval(len(self._scheduler.workers))
        return self.watched - self._quiet_since >= SETTLED + beats

    def work(self) -> str | None:
        """Describe the first work that the cluster does right now; return None if it is idle."""
        self._calls.look(self.watched)
        return next(chain(self._asked(), self._unasked()), None)

    def asked(self) -> str | None:
        """Describe the first work of the cluster other than tasks; return None without any."""
        self._calls.look(self.watched)
        return next(chain(self._requests(), self._unasked()), None)

    def busy_by(self) -> tuple[str, ...]:
        """Describe all work at the last look: see ``protocol.Status.busy_by``."""
        return self._busy_by

    def _asked(self) -> Iterator[str]:
        """Yield the work that the scheduler itself knows."""
        scheduler = self._scheduler
        run = any(worker.processing for worker in dict.values(scheduler.workers))
        if run:
            yield "tasks are running"
        # Tasks are queued behind others that run or, without any worker, until one comes.
        if scheduler.unrunnable or (scheduler.queued and not run):
            yield "tasks wait for a worker that can run them"
        waiting, counted_at = self._waiting
        if waiting and counted_at == scheduler.transition_counter:
            yield "tasks wait for other tasks"
        yield from self._requests()
        if self.workers_starting():
            yield "workers are starting"

    def _requests(self) -> Iterator[str]:
        """Yield the requests to the scheduler."""
        if getattr(self._scheduler, "_active_graph_updates", 0) > 0:
            yield "a graph is arriving"
        if self._calls.in_progress:
            yield "a client's call is in progress"
        if self._calls.transfers:
            yield "a large message is on its way to or from a client"
        if self._calls.waits_for_workers:
            yield "a client waits for more workers"
        if self._calls.lasting:
            meets = any(operation in MEETINGS for operation in self._calls.lasting)
            yield (
                "a program waits for a Dask Event, Queue, Variable or Lock"
                if meets
                else "a call to the scheduler is in progress"
            )
        if self._calls.locked:
            yield "a program holds a Dask Lock, Semaphore or MultiLock"

    def _unasked(self) -> Iterator[str]:
        """Yield the work that only shows on workers or in other plugins."""
        cpu = self._cpu
        if cpu.calls:
            yield "a call to a worker is in progress, such as a method of an actor"
        if cpu.busy:
            who = "a worker uses" if cpu.busy == 1 else f"{cpu.busy} workers use"
            up_to = "" if cpu.busy == 1 else "up to "
            yield f"{who} the CPU without a task, {up_to}{cpu.share:.0%} of a core"
        if cpu.gpu:
            yield f"a worker's GPU is in use without a task, {cpu.gpu:.0%} of it"
        if cpu.silent:
            yield f"{'a worker does' if cpu.silent == 1 else f'{cpu.silent} workers do'} not report"
        others = self._others.at_work()
        if others is not None:
            yield others

    def calls(self) -> int:
        """Return how many calls are in progress now, on the scheduler and on workers."""
        self._calls.look(self.watched)
        calls = self._calls
        return calls.in_progress + len(calls.lasting) + calls.transfers + self._cpu.calls

    def calls_begun(self) -> int:
        """Return a count of calls begun, including short ones: to the scheduler, and to workers as
        of their last heartbeats.
        """
        return self._calls.begun() + self._cpu.begun

    def workers_starting(self) -> int:
        """Return how many workers are still starting.

        Only a cluster's manager knows how many it requested. Without a manager in this process, one
        worker counts as starting until the first has arrived.
        """
        connected = len(self._scheduler.workers)
        self._workers_came = self._workers_came or connected > 0
        manager = manager_of(self._scheduler)
        there = connected if manager is not None else int(self._workers_came)
        asked_for = len(manager.plan) if manager is not None else 1
        # A worker that ends again and again must not start the wait again each time.
        if asked_for != self._asked_for or there > self._most:
            self._asked_for, self._most, self._most_since = asked_for, there, self.watched
        return max(asked_for - there, 0) if self.watched - self._most_since < PATIENCE else 0

    def held_by(self, tasks: Mapping[str, int], clients: int) -> dict[str, int]:
        """Return reasons not to close the cluster: see ``protocol.Status.held_by``.

        ``tasks`` counts tasks by Dask's state, as in that status.
        """
        # dict.values: Dask itself iterates by address, which takes several times as long.
        workers = dict.values(self._scheduler.workers)
        actors = sum(map(len, map(_ACTORS, workers)))
        results = tasks.get("memory")
        if results is None:
            results = sum(len(worker.has_what) for worker in workers)
        processing = tasks.get("processing", 0)
        held = {
            "running": _in_threads(workers) if processing else 0,
            "processing": processing,
            "queued": tasks.get("queued", 0),
            "unrunnable": tasks.get("no-worker", 0),
            "calls": self.calls(),
            "workers starting": self.workers_starting(),
            "clients": clients,
            # To Dask an actor is a result too.
            "results": max(results - actors, 0),
            "actors": actors,
            "other schedulers": self._others.schedulers(),
        }
        return {kind: count for kind, count in held.items() if count}

    def _jupyter_used(self) -> object:
        # ``dask scheduler --jupyter`` runs notebooks in the scheduler's process.
        if not getattr(self._scheduler, "jupyter", False):
            return None
        return self._scheduler._jupyter_server_application.web_app.last_activity()


def _in_threads(workers: Iterable[WorkerState]) -> int:
    """Return how many tasks have a thread: Dask sends a worker more tasks than it has threads."""
    count = 0
    for worker in workers:
        given, seceded = len(worker.processing), len(worker.long_running)
        count += min(given - seceded, worker.nthreads) + seceded
    return count


def manager_of(scheduler: Scheduler) -> SpecCluster | None:
    """Return the object in this process that started ``scheduler``, such as a LocalCluster."""
    for cluster in list(SpecCluster._instances):
        if cluster.scheduler is scheduler:
            return cluster
    return None
