"""The row that describes the cluster, and the row of its current status."""

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
from daskscope.observe.cluster.instances import Instances
from daskscope.observe.cluster.load import Load
from daskscope.observe.cluster.opt_outs import OptOuts
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.cluster.versions import Versions
from daskscope.observe.workers.workers import WorkerTotals

#: Dask's task prefixes whose states are added up. Dask never forgets a prefix.
MAX_DASK_PREFIXES = 1_000

#: Seconds before the cluster's end in which leaving workers count as part of the shutdown.
LEAVING = 60.0

# The states of a task that the scheduler knows.
_STATES = sorted(frozenset(ALL_TASK_STATES) - {"forgotten"})


# Names that a LocalCluster, Dask Gateway and others generate for a cluster without a name. On
# Kubernetes, Dask Gateway puts the namespace before it. Eight digits that are a date are a name.
_OF_NOBODY = re.compile(
    r"(?!(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])$)[0-9a-f]{8}"
    r"|(?:[a-z0-9-]+\.)?[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}"
)


class Cluster:
    """Makes the rows of one cluster. The cluster belongs to the user of ``registrant``.

    Call ``load.look`` and ``idle.look`` regularly. ``at_work`` returns ``protocol.Status.at_work``;
    see :class:`.Idle` for ``worked``. ``user_of`` returns the user of a client.
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
        self._pipeline = registrant.pipeline
        self._host = host()
        self._id = scheduler.id
        self._environment = environment()
        self.load = Load(scheduler)
        self._cost = Cost(settings.prices)
        self._instances = Instances(
            drops, wanted=settings.instances_transmit, default=settings.instances_type
        )
        self.idle = Idle(scheduler, worked=worked)
        self._versions = Versions(scheduler)
        self._clients = Clients(scheduler, user_of, drops)
        # At the last status before the stop: its time, and what held the cluster.
        self._last_held: tuple[float, dict[str, int]] = (0.0, {})
        self._at_work = at_work
        self._called = name_and_kind_here()
        self._peaks = (0, 0)
        # The most memory of all workers, and the limit of those that there were then.
        self._peak_memory = (0, 0)
        self._peak_of_worker: int | None = None
        # At the last status with workers: its time, workers, threads, bytes used, and memory limit.
        self._last = (0.0, 0, 0, 0, 0)

    def worker_added(self, worker: WorkerState) -> None:
        """Count a worker from now on."""
        guarded(self._drops, None, self._versions.added, worker)
        self._cost.added(worker)
        guarded(self._drops, None, self._instances.added, worker)

    def worker_removed(self, address: str) -> None:
        """Stop counting the worker."""
        guarded(self._drops, None, self._versions.removed, address)
        self._cost.removed(address)
        guarded(self._drops, None, self._instances.removed, address)

    def row(self) -> protocol.Cluster:
        """Return the row that describes the cluster."""
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
            deployment=deployment() | self._pipeline,
            idle_timeout=self._settings.idle_timeout,
            settings=in_force(self._refusals.in_force(self._settings)),
            in_client=manager_of(self._scheduler) is not None,
        )

    def _said(self, name: str) -> str:
        """Return the name to show for a cluster whose manager calls it ``name``."""
        if name and not _OF_NOBODY.fullmatch(name):
            return name
        who = "a cluster" if self._user == UNKNOWN_USER else self._user
        return self._program or f"{who} on {self._host}{self._which_there()}"

    def _which_there(self) -> str:
        """Return what tells the cluster from that user's others on the host, "" if nothing does."""
        for how, value in deployment().items():
            if how.endswith(".job.id"):
                return f", job {value}"
        if manager_of(self._scheduler) is not None:
            return ""  # nobody knows the port of a LocalCluster
        try:
            port = self._scheduler.port
        except ValueError:  # it listens on none
            return ""
        return "" if port == self._scheduler.default_port else f":{port}"

    def worker_had(self, address: str, memory: int) -> None:
        """Note the memory of a worker's process, in bytes, that it had between two heartbeats."""
        others = sum(
            worker.metrics.get("memory") or 0
            for worker in self._scheduler.workers.values()
            if worker.address != address
        )
        limit = sum(worker.memory_limit or 0 for worker in self._scheduler.workers.values())
        if address not in self._scheduler.workers:  # it has left meanwhile
            limit = max(limit, self._last[4])
        self._peak_memory = max(self._peak_memory, (others + memory, limit))
        self.process_had(memory)

    def process_had(self, memory: int) -> None:
        """Note the memory of one worker's process, in bytes, at any time."""
        self._peak_of_worker = max(self._peak_of_worker or 0, memory)

    def status(
        self,
        workers: WorkerTotals,
        worker_seconds: dict[str, float],
        now: float,
        stopped_at: float | None,
    ) -> protocol.Status:
        """Return the cluster's status at ``now``, with the totals of its ``workers``."""
        tasks = self._tasks_by_state()
        # Spilled data is on disk.
        used = workers.memory["managed"] + workers.memory["unmanaged"]
        seen = (workers.count, workers.threads)
        self._peaks = tuple(map(max, self._peaks, seen))  # type: ignore[assignment]  # as many
        self._peak_memory = max(self._peak_memory, (used, workers.memory_limit))
        if workers.peak_memory is not None:
            self.process_had(workers.peak_memory)
        last = (now, workers.count, workers.threads, used, workers.memory_limit)
        if workers.count:
            self._last = last
        elif stopped_at is not None and now - self._last[0] < LEAVING:
            # Workers leave before the scheduler does: show what the cluster had until then.
            last = self._last
        clients = sum(1 for client in self._scheduler.clients if client != "fire-and-forget")
        self.idle.count_tasks(tasks)
        self.idle.look()
        idle = self.idle.seconds()
        cost, priced = self._cost, self._settings.prices is not None
        cost.look(workers.capacity, worker_seconds["idle"], cluster_idle=idle is not None)
        held_by = self.idle.held_by(tasks, clients)
        last_held_by: dict[str, int] = {}
        if stopped_at is not None and now - self._last_held[0] < LEAVING:
            # Clients leave before the scheduler does, too.
            _, last_held_by = self._last_held
            connected = guarded(self._drops, (), self._clients.last_rows)
        else:
            connected = guarded(self._drops, (), self._clients.rows)
        if stopped_at is None:
            self._last_held = now, held_by
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
            peak_memory_used=self._peak_memory[0],
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
            peak_memory_limit=self._peak_memory[1],
            connected=connected,
            last_held_by=last_held_by,
            instances=guarded(self._drops, (), self._instances.rows),
        )

    def _tasks_by_state(self) -> dict[str, int]:
        scheduler = self._scheduler
        if len(scheduler.task_prefixes) > MAX_DASK_PREFIXES:
            # The other states would take too long to count, so they are not sent.
            return {
                "processing": sum(len(worker.processing) for worker in scheduler.workers.values()),
                "queued": len(scheduler.queued),
                "no-worker": len(scheduler.unrunnable),
            }
        counts: dict[str, int] = dict.fromkeys(_STATES, 0)
        for prefix in scheduler.task_prefixes.values():
            for state, count in prefix.states.items():
                if count and state in counts:
                    counts[state] += count
        return counts
