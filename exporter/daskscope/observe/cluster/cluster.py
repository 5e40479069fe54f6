"""The cluster's row, and its status now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from distributed.scheduler import ALL_TASK_STATES, Scheduler, WorkerState

from daskscope import protocol
from daskscope.config import Settings, in_force
from daskscope.containment import guarded
from daskscope.observe.cluster.clients import Clients
from daskscope.observe.cluster.cost import Cost
from daskscope.observe.cluster.environment import (
    UNKNOWN_USER,
    deployment,
    environment,
    host,
    name_and_kind,
    name_and_kind_here,
)
from daskscope.observe.cluster.idle import Idle, manager_of
from daskscope.observe.cluster.load import Load
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.cluster.versions import Versions
from daskscope.observe.workers.workers import WorkerTotals

#: Prefixes of Dask's own, which forgets none, that are looked at for the states of their tasks.
MAX_DASK_PREFIXES = 1_000

#: Seconds before the end in which workers that leave do so as part of it.
LEAVING = 60.0

# Those of a task that the scheduler holds.
_STATES = sorted(frozenset(ALL_TASK_STATES) - {"forgotten"})


# What a LocalCluster, Dask Gateway's clusters and others are called where nobody gave them a name.
_OF_NOBODY = re.compile("[0-9a-f]{8}|[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}")


class Cluster:
    """Makes the rows of one cluster, which belongs to the user of ``registrant``.

    ``load`` and ``idle`` are to be looked at regularly. ``at_work`` is as of ``protocol.Status``,
    ``worked`` as of :class:`.Idle`. ``user_of`` returns whose client that is.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        registrant: Registrant,
        drops: Counter[str],
        *,
        refusals: OptOuts,
        at_work: Callable[[], bool],
        worked: Callable[[], int],
        user_of: Callable[[str], str],
    ) -> None:
        self._scheduler = scheduler
        self._settings = settings
        self._drops = drops
        self._refusals = refusals
        self._user, self._program = registrant.user, registrant.program
        self._host = host()
        self._id = scheduler.id
        self._environment = environment()
        self.load = Load(scheduler)
        self._cost = Cost(settings.prices)
        self.idle = Idle(scheduler, worked=worked)
        self._versions = Versions(scheduler)
        self._clients = Clients(scheduler, user_of, drops)
        # What there was to keep it for at the last beat: when, and which clients were there.
        self._last_held: tuple[float, dict[str, int], tuple[protocol.ConnectedClient, ...]] = (
            0.0, {}, ()
        )  # fmt: skip
        self._at_work = at_work
        self._called = name_and_kind_here()
        self._peaks = (0, 0, 0)
        self._peak_of_worker: int | None = None
        # What there was when there last were workers: when, how many, threads, bytes and limit.
        self._last = (0.0, 0, 0, 0, 0)

    def worker_added(self, worker: WorkerState) -> None:
        """Count a worker from now on."""
        guarded(self._drops, None, self._versions.added, worker)
        self._cost.added(worker)

    def worker_removed(self, address: str) -> None:
        """Do not count it any more."""
        guarded(self._drops, None, self._versions.removed, address)
        self._cost.removed(address)

    def row(self) -> protocol.Cluster:
        """Return what the cluster is."""
        self._called = name_and_kind(self._scheduler) or self._called
        name, kind = self._called
        return protocol.Cluster(
            id=self._id,
            name=(self._settings.name or self._said(name))[: protocol.MAX_NAME],
            kind=kind,
            user=self._user,
            host=self._host,
            started_at=self._scheduler.time_started,
            interval=self._settings.interval,
            environment=self._environment,
            tags=self._settings.tags,
            workspace=self._settings.workspace,
            prices=self._settings.prices,
            deployment=deployment(),
            idle_timeout=self._settings.idle_timeout,
            settings=in_force(self._refusals.in_force(self._settings)),
            in_client=manager_of(self._scheduler) is not None,
        )

    def _said(self, name: str) -> str:
        """Return what people call the cluster that its manager calls ``name``."""
        if name and not _OF_NOBODY.fullmatch(name):
            return name
        who = "a cluster" if self._user == UNKNOWN_USER else self._user
        return self._program or f"{who} on {self._host}"

    def worker_had(self, address: str, memory: int) -> None:
        """Take notice of what the process of a worker had, between two beats of its."""
        others = sum(
            worker.metrics.get("memory") or 0
            for worker in self._scheduler.workers.values()
            if worker.address != address
        )
        workers, threads, used = self._peaks
        self._peaks = workers, threads, max(used, others + memory)
        self._peak_of_worker = max(self._peak_of_worker or 0, memory)

    def status(
        self,
        workers: WorkerTotals,
        worker_seconds: dict[str, float],
        now: float,
        stopped_at: float | None,
    ) -> protocol.Status:
        """Return how it is ``now``, with these ``workers``."""
        tasks = self._tasks_by_state()
        # Spilled data is on disk.
        used = workers.memory["managed"] + workers.memory["unmanaged"]
        seen = (workers.count, workers.threads, used)
        self._peaks = tuple(map(max, self._peaks, seen))  # type: ignore[assignment]  # as many
        if workers.peak_memory is not None:
            self._peak_of_worker = max(self._peak_of_worker or 0, workers.peak_memory)
        last = (now, workers.count, workers.threads, used, workers.memory_limit)
        if workers.count:
            self._last = last
        elif stopped_at is not None and now - self._last[0] < LEAVING:
            # They leave before the scheduler does: what it had until then is what there is to show.
            last = self._last
        clients = sum(1 for client in self._scheduler.clients if client != "fire-and-forget")
        self.idle.count_tasks(tasks)
        self.idle.look()
        idle = self.idle.seconds()
        cost, priced = self._cost, self._settings.prices is not None
        cost.look(workers.capacity, worker_seconds["idle"], cluster_idle=idle is not None)
        held_by = self.idle.held_by(tasks, clients)
        connected = guarded(self._drops, (), self._clients.rows)
        last_held_by: dict[str, int] = {}
        if stopped_at is None:
            self._last_held = now, held_by, connected
        elif now - self._last_held[0] < LEAVING:
            _, last_held_by, connected = self._last_held
        return protocol.Status(
            at=now,
            workers=last[1],
            threads=last[2],
            memory_used=last[3],
            memory_limit=last[4],
            worker_seconds=worker_seconds,
            tasks=tasks,
            clients=clients,
            idle_seconds=idle,
            peak_workers=self._peaks[0],
            peak_threads=self._peaks[1],
            peak_memory_used=self._peaks[2],
            stopped_at=stopped_at,
            scheduler=self.load.take(),
            gpu=workers.gpu,
            cost=cost.total if priced else None,
            idle_cost=cost.idle if priced else None,
            gib_seconds=cost.gib_seconds,
            gpu_seconds=cost.gpu_seconds,
            held_by=held_by,
            busy_by=self.idle.busy_by(),
            mismatches=self._versions.mismatches(),
            at_work=self._at_work(),
            peak_worker_memory=self._peak_of_worker,
            connected=connected,
            last_held_by=last_held_by,
        )

    def _tasks_by_state(self) -> dict[str, int]:
        scheduler = self._scheduler
        if len(scheduler.task_prefixes) > MAX_DASK_PREFIXES:
            # Of the other states there is no number to be had at once, and none is sent.
            return {
                "processing": sum(len(worker.processing) for worker in scheduler.workers.values()),
                "queued": len(scheduler.queued),
                "no-worker": len(scheduler.unrunnable),
            }
        found: dict[str, int] = dict.fromkeys(_STATES, 0)
        for prefix in scheduler.task_prefixes.values():
            for state, count in prefix.states.items():
                if count and state in found:
                    found[state] += count
        return found
