"""How long a cluster has been idle, and what keeps it up.

Dask has a measure of its own, ``Scheduler.check_idle``. It goes by the wall clock, which may jump;
it begins while the first workers still start; and to ask it may itself close the cluster.
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

#: Seconds that workers which were asked for, and do not come, keep a cluster from being idle: they
#: may wait in a queue of Slurm's, or may be dead for good.
PATIENCE = 3600.0
#: Seconds between two looks that count, at most: a process that was halted, or an event loop that
#: was held up, did not watch the cluster for longer.
MAX_STEP = 10.0

#: Seconds without a sign of work before a cluster may be closed, and how many of its workers' beats
#: they must hold at least: until then nobody has seen what the workers' processes are at.
SETTLED, BEATS = 3.0, 2

#: Of a worker; there are many to go through.
_ACTORS = attrgetter("actors")


class Idle:
    """Watches whether a cluster is at work. Not thread-safe.

    Idle is a cluster without any sign of work: a task that runs, is queued, or waits for others or
    for a worker that can run it; a graph on its way in; a worker that starts; a call of a client's
    (:mod:`.calls`); a worker whose processes use the CPU or a GPU, or that does not report
    (:mod:`~daskscope.observe.workers.cpu`); another plugin that says so (:mod:`.other_plugins`).
    What came and went between two looks begins idleness anew, but not that results were put away:
    that is no work. Connected clients and data in memory do not count: they are what a forgotten
    notebook looks like.

    ``watched`` are the seconds that it was watched for, by a clock that does not jump. ``worked``
    returns a count that grows with all that tasks do.
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
        # Since when there is neither a task nor a call, which alone says little.
        self._quiet_since: float | None = None
        self._busy_by: tuple[str, ...] = ()
        # Tasks that wait for others, and the count of transitions at which they did.
        self._waiting = (0, -1)
        # How many workers were asked for, the most of them that there were since, and since when.
        self._asked_for = self._most = 0
        self._most_since = 0.0
        self._workers_came = False
        self._jupyter_was_used: object = None
        self.watched = 0.0

    def look(self) -> None:
        """See whether the cluster is idle now. To be called more often than every ten seconds."""
        now = self._clock()
        step = min(max(now - self._looked_at, 0.0), MAX_STEP)
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
        # By all of them Dask goes, which then takes back that it is idle, as another plugin may.
        transitions = self._scheduler.transition_counter
        still, self._transitions = transitions == self._transitions, transitions
        self._others.look(self.watched, quiet=quiet and still)
        if not quiet:
            self._quiet_since = None
            self._cpu.restart()
        else:
            if self._quiet_since is None:
                self._quiet_since = self.watched
            # In any order: by their addresses, as Dask keeps them, it takes several times as long.
            self._cpu.look(dict.values(self._scheduler.workers), self.watched)
        self._busy_by = asked + tuple(self._unasked())
        if self._busy_by:
            self._since = None
        elif moved or self._since is None:
            self._since = self.watched

    def restart(self) -> None:
        """Count from now on: someone wants the cluster, though it does nothing."""
        self._since = None

    @contextmanager
    def our_call(self) -> Iterator[None]:
        """Do not count the call that this is done for, such as ``explain()``, as work."""
        self._calls.ours += 1
        try:
            yield
        finally:
            self._calls.ours -= 1

    def count_tasks(self, tasks: Mapping[str, int]) -> None:
        """Take notice of how many ``tasks`` there are in each of Dask's states now."""
        self._waiting = (tasks.get("waiting", 0), self._scheduler.transition_counter)

    def seconds(self) -> float | None:
        """Return for how long it was seen idle, None while it is at work."""
        return None if self._since is None else self.watched - self._since

    def settled(self) -> bool:
        """Return whether it has been without task and call for long enough to see all signs."""
        # A worker whose event loop is held up says nothing of what holds it up.
        if self._quiet_since is None or self._cpu.unheard:
            return False
        beats = BEATS * heartbeat_interval(len(self._scheduler.workers))
        return self.watched - self._quiet_since >= SETTLED + beats

    def work(self) -> str | None:
        """Return in words the first thing that the cluster is at right now, None if it is idle."""
        self._calls.look(self.watched)
        return next(chain(self._asked(), self._unasked()), None)

    def asked(self) -> str | None:
        """Return in words the first work of the cluster beside its tasks; None without any."""
        self._calls.look(self.watched)
        return next(chain(self._requests(), self._unasked()), None)

    def busy_by(self) -> tuple[str, ...]:
        """Return in words all that it was at: see ``protocol.Status.busy_by``."""
        return self._busy_by

    def _asked(self) -> Iterator[str]:
        """Yield what the scheduler itself knows of."""
        scheduler = self._scheduler
        if scheduler.queued or any(worker.processing for worker in dict.values(scheduler.workers)):
            yield "tasks are running"
        if scheduler.unrunnable:
            yield "tasks wait for a worker that can run them"
        waiting, counted_at = self._waiting
        if waiting and counted_at == scheduler.transition_counter:
            yield "tasks wait for other tasks"
        yield from self._requests()
        if self.workers_starting():
            yield "workers are starting"

    def _requests(self) -> Iterator[str]:
        """Yield what the scheduler is asked for."""
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
                "someone waits for an Event, a Queue, a Variable or a Lock of Dask's"
                if meets
                else "a call to the scheduler is in progress"
            )

    def _unasked(self) -> Iterator[str]:
        """Yield what only shows elsewhere."""
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
        """Return a count that grows with each call to the scheduler, and with those to workers
        between two of their beats, those that were short too.
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
        # A worker that ends again and again is not waited for anew each time it is missing.
        if asked_for != self._asked_for or there > self._most:
            self._asked_for, self._most, self._most_since = asked_for, there, self.watched
        return max(asked_for - there, 0) if self.watched - self._most_since < PATIENCE else 0

    def held_by(self, tasks: Mapping[str, int], clients: int) -> dict[str, int]:
        """Return what there is to keep the cluster for: see ``protocol.Status.held_by``.

        ``tasks`` counts tasks by Dask's state, as in that status.
        """
        # In any order: by their addresses, as Dask keeps them, it takes several times as long.
        workers = dict.values(self._scheduler.workers)
        actors = sum(map(len, map(_ACTORS, workers)))
        results = tasks.get("memory")
        if results is None:
            results = sum(len(worker.has_what) for worker in workers)
        processing = tasks.get("processing", 0)
        found = {
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
        return {kind: count for kind, count in found.items() if count}

    def _jupyter_used(self) -> object:
        # ``dask scheduler --jupyter`` runs notebooks in the scheduler's process.
        if not getattr(self._scheduler, "jupyter", False):
            return None
        return self._scheduler._jupyter_server_application.web_app.last_activity()


def _in_threads(workers: Iterable[WorkerState]) -> int:
    """Return how many tasks have a thread: each worker is given more than it has threads for."""
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
