"""How long a cluster has been idle, and what there is to keep it for.

Dask has a measure of its own, ``Scheduler.check_idle``. It goes by the wall clock, which may jump;
it begins while the first workers still start; and to ask it may itself close the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import attrgetter

from distributed.deploy.spec import SpecCluster
from distributed.scheduler import Scheduler

#: Seconds that workers which were asked for, and do not come, keep a cluster from being idle: they
#: may wait in a queue of Slurm's, or may be dead for good.
PATIENCE = 3600.0
#: Seconds between two looks that count, at most: a process that was halted, or an event loop that
#: was held up, did not watch the cluster for longer.
MAX_STEP = 10.0

#: What a client may have asked the scheduler for itself, that takes as long as it takes:
#: ``client.run``, ``client.run_on_scheduler``, and moving data.
_CALLS = frozenset(("broadcast", "run_function", "gather", "scatter", "rebalance", "replicate"))

#: Of a worker; there are many to go through.
_ACTORS = attrgetter("actors")


class Idle:
    """Watches whether a cluster is at work. Not thread-safe.

    Idle is a cluster without a task that runs, is queued or waits for a worker that can run it,
    without a graph on its way in, a worker that starts, or a call of :data:`_CALLS`. What came and
    went between two looks begins idleness anew. Connected clients and data in memory do not count:
    they are what a forgotten notebook looks like.

    ``watched`` are the seconds that it was watched for, by a clock that does not jump. ``looked``
    is called at each look with how many of the seconds since the last one were idle.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Callable[[], float] = time.monotonic,
        looked: Callable[[float], None] = lambda idle: None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._looked = looked
        self._looked_at = clock()
        self._since: float | None = None
        self._transitions = scheduler.transition_counter
        self._called = self.calls_begun()
        self._missing = 0
        self._missing_since = 0.0
        self._workers_came = False
        self._jupyter_was_used: object = None
        self.watched = 0.0

    def look(self) -> None:
        """See whether the cluster is idle now. To be called more often than every ten seconds."""
        now = self._clock()
        step = min(max(now - self._looked_at, 0.0), MAX_STEP)
        self.watched += step
        self._looked_at = now
        transitions, called = self._scheduler.transition_counter, self.calls_begun()
        used = self._jupyter_used()
        before = self._transitions, self._called, self._jupyter_was_used
        moved = (transitions, called, used) != before
        self._transitions, self._called, self._jupyter_was_used = transitions, called, used
        idle = 0.0
        if self.work() is not None:
            self._since = None
        elif moved or self._since is None:
            self._since = self.watched
        else:
            idle = step
        self._looked(idle)

    def restart(self) -> None:
        """Count from now on: someone wants the cluster, though it does nothing."""
        self._since = None

    def seconds(self) -> float | None:
        """Return for how long it was seen idle, None while it is at work."""
        return None if self._since is None else self.watched - self._since

    def work(self) -> str | None:
        """Return in words what the cluster is at, None if it is idle."""
        scheduler = self._scheduler
        if scheduler.queued or any(worker.processing for worker in scheduler.workers.values()):
            return "tasks are running"
        if scheduler.unrunnable:
            return "tasks wait for a worker that can run them"
        asked = self.asked()
        if asked is not None:
            return asked
        if self.workers_starting():
            return "workers are starting"
        return None

    def asked(self) -> str | None:
        """Return in words what clients ask the scheduler for now, None if it is nothing."""
        if getattr(self._scheduler, "_active_graph_updates", 0) > 0:
            return "a graph is arriving"
        if self.calls():
            return "a client's call is in progress"
        return None

    def calls(self) -> int:
        """Return how many calls of :data:`_CALLS` are in progress."""
        # Dask notes for each connection what it is being used for.
        return sum(operation in _CALLS for operation in self._scheduler._comms.values())

    def calls_begun(self) -> int:
        """Return how many calls of :data:`_CALLS` there have been, those that were short too."""
        # Dask counts operations for its dashboard, and lets counts age: what it takes from one
        # component it puts into the next.
        counts = self._scheduler.counters["op"].components
        return round(sum(count.get(operation, 0) for count in counts for operation in _CALLS))

    def workers_starting(self) -> int:
        """Return how many workers are still to come.

        Only a cluster's manager knows how many it has asked for. Where there is none in this
        process, one is expected until the first one has come.
        """
        connected = len(self._scheduler.workers)
        self._workers_came = self._workers_came or connected > 0
        manager = manager_of(self._scheduler)
        if manager is not None:
            missing = max(len(manager.plan) - connected, 0)
        else:
            missing = 0 if self._workers_came else 1
        if missing != self._missing:
            self._missing, self._missing_since = missing, self.watched
        return missing if self.watched - self._missing_since < PATIENCE else 0

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
        found = {
            "processing": tasks.get("processing", 0),
            "queued": tasks.get("queued", 0),
            "unrunnable": tasks.get("no-worker", 0),
            "calls": self.calls(),
            "workers starting": self.workers_starting(),
            "clients": clients,
            # To Dask an actor is a result too.
            "results": max(results - actors, 0),
            "actors": actors,
        }
        return {kind: count for kind, count in found.items() if count}

    def _jupyter_used(self) -> object:
        # ``dask scheduler --jupyter`` runs notebooks in the scheduler's process.
        if not getattr(self._scheduler, "jupyter", False):
            return None
        return self._scheduler._jupyter_server_application.web_app.last_activity()


def manager_of(scheduler: Scheduler) -> SpecCluster | None:
    """Return the object in this process that started ``scheduler``, such as a LocalCluster."""
    for cluster in list(SpecCluster._instances):
        if cluster.scheduler is scheduler:
            return cluster
    return None
