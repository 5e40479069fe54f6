"""The evidence for the rules: typed rows of one computation and its cluster.

``None`` says that something was not measured. Times are seconds since the Unix epoch.

Over 400 lines: all that rules may look at is declared in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from daskscope.names import DURATION_BOUNDS
from daskscope_service.insight.findings.thresholds import DEFAULTS
from daskscope_service.insight.jobs.sizing import Sizing

#: Activities in which threads run a task's code; all others are waiting, or Dask's own work.
_COMPUTING = ("thread-cpu", "thread-noncpu")
#: The share of the workers that must have come: the last ones may never come. Then the number of
#: equal parts of a period that are compared to see whether memory grows.
GATHERED, PARTS = 0.8, 6


@dataclass(frozen=True, slots=True)
class Group:
    """A task group of the computation; see ``daskscope.protocol.TaskGroup``."""

    name: str
    prefix: str
    tasks: int
    completed: int
    erred: int
    seconds: Mapping[str, float]
    output_bytes: int
    durations: Sequence[int]
    longest: float | None
    first_runs: int | None = None
    first_seconds: float | None = None
    stopped_at: float | None = None

    @property
    def median(self) -> float | None:
        """The upper bound of the bucket that holds the median run, in seconds.

        None if no run was measured, or the median lies above all bounds.
        """
        runs = sum(self.durations)
        if not runs:
            return None
        for bound, up_to in zip(DURATION_BOUNDS, accumulate(self.durations), strict=False):
            if 2 * up_to >= runs:
                return bound
        return None

    def runs_over(self, seconds: float) -> int:
        """Count the runs whose whole bucket lies above ``seconds``."""
        lower = (0.0, *DURATION_BOUNDS)
        return sum(
            count
            for least, count in zip(lower, self.durations, strict=False)
            if least >= seconds * (1 - 1e-9)
        )


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker did for the computation; see ``daskscope.protocol.WorkerShare``."""

    worker: str
    runs: int
    seconds: float
    usual_seconds: float
    longest: float


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Equal exceptions of one ``computation``.

    ``message`` is that of the first one, None if it was not sent.
    """

    type: str
    function: str
    count: int
    retried: int
    fingerprint: str
    computation: str
    first_at: float
    last_at: float
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that left; see ``daskscope.protocol.WorkerLoss``."""

    id: str
    at: float
    reason: str
    expected: bool
    processing: int
    memory_used: int | None
    memory_limit: int | None
    nanny_memory: int | None
    tasks: Mapping[str, int]
    peak_memory: int | None = None
    computations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """A computation. ``status`` is that of its verdict, so it may be ``lost``.

    ``blamed`` and ``blames`` are as in ``daskscope.protocol.Computation``.
    """

    id: str
    status: Literal["running", "finished", "erred", "cancelled", "lost"]
    started_at: float
    duration: float
    tasks: int
    done: int
    completed: int
    erred: int
    retried: int
    cancelled: int
    states: Mapping[str, int]
    seconds: Mapping[str, float]
    graph_bytes: int | None
    groups: Sequence[Group] = ()
    failures: Sequence[FailureGroup] = ()
    workers: int | None = None
    shares: Sequence[Share] = ()
    blamed: int = 0
    blames: Mapping[str, str] = field(default_factory=dict)
    worker_seconds: Mapping[str, float] = field(default_factory=dict)
    spilled_bytes: int | None = None
    unspilled_bytes: int | None = None
    transferred_bytes: int | None = None
    loop_interval: float | None = None
    host_load: float | None = None
    unrunnable_seconds: float | None = None
    asks: Mapping[str, int] = field(default_factory=dict)
    largest_output: int | None = None
    began_at: float | None = None

    @property
    def ended_at(self) -> float:
        """When it ended or, while it runs, until when it is known."""
        return self.started_at + self.duration

    @property
    def compute(self) -> float:
        """Thread-seconds that its tasks computed."""
        return self.seconds.get("compute", 0.0)

    @property
    def computed(self) -> float:
        """Of :attr:`compute`, what fits into its own time.

        Older exporters add to ``compute`` what was computed again after its end.
        """
        busy = self.worker_seconds.get("busy")
        if busy is None or self.status == "running" or self.completed <= self.done:
            return self.compute
        return min(self.compute, busy)

    @property
    def thread_seconds(self) -> float:
        """The thread-seconds of all workers from its start to its end; 0 if not measured."""
        return sum(self.worker_seconds.values())

    @property
    def failed_early(self) -> bool:
        """Whether less than half of its tasks were done when it ended badly."""
        return self.status in ("erred", "cancelled", "lost") and 2 * self.done < self.tasks


@dataclass(frozen=True, slots=True)
class Holder:
    """A connected client; see ``daskscope.protocol.ConnectedClient``."""

    user: str
    host: str
    since: float
    results: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Loop:
    """Consecutive computations from one ``line`` of code, as ``file:line``.

    ``seconds`` is the time from the first one's start to the last one's end. In ``between`` of
    these, none of them ran; ``pause`` is the median time between two of them. ``thread_seconds``
    are those of all workers in ``seconds``; in ``busy`` of these, the threads had a task.
    """

    line: str
    times: int
    seconds: float
    between: float
    pause: float
    thread_seconds: float
    busy: float


@dataclass(frozen=True, slots=True)
class WorkerChurn:
    """Workers that were asked to leave before others came.

    ``workers`` is their number, and ``lifetime`` the median of how long each was there, in seconds.
    ``seconds`` is the time from the first one's start to the start of the last worker.
    """

    workers: int
    lifetime: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster, as of its last beat. ``memory_limit`` is the largest that it had.

    ``peak_memory`` is the most that was used at any beat, ``peak_worker_memory`` the most that the
    process of one worker ever used. ``prices`` are per hour, and ``price_source`` says who set
    them: "cluster", "workspace" or "list". ``cost`` is in ``currency``. ``in_client`` is False if
    the scheduler has a process of its own, and None if nobody knows.
    """

    id: str
    status: Literal["running", "stopped", "lost", "ended"]
    started_at: float
    duration: float
    workers: int
    threads: int
    peak_workers: int
    peak_threads: int
    peak_memory: int
    memory_limit: int | None
    idle_seconds: float | None
    held_by: Mapping[str, int]
    worker_seconds: Mapping[str, float]
    mismatches: Sequence[str] = ()
    gpu_workers: int = 0
    prices: Mapping[str, float] = field(default_factory=dict)
    currency: str | None = None
    price_source: str | None = None
    peak_worker_memory: int | None = None
    cost: float | None = None
    idle_cost: float | None = None
    connected: Sequence[Holder] = ()
    last_held_by: Mapping[str, int] = field(default_factory=dict)
    in_client: bool | None = None

    @property
    def memory_of_one(self) -> float | None:
        """The memory limit of one worker, if all have the same; None if no limit is known."""
        most = max(self.workers, self.peak_workers)
        return self.memory_limit / most if self.memory_limit and most else None

    @property
    def thread_seconds(self) -> float:
        """The thread-seconds of all workers since the plugin started."""
        return sum(self.worker_seconds.values())


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What the cluster did in a period: while a computation ran, or all the time that it was up.

    ``alone`` says whether no other computation ran for long in that period. ``activities`` are
    thread-seconds by activity, summed over all prefixes; ``whole`` says whether they are all of the
    threads' time, including idle time. ``worker_cpu`` is the most cores that one worker used, as an
    average over the workers. ``line`` is the line of code, as ``file:line``, in which profiles saw
    threads most; ``waiting_lines`` is the share, 0 to 1, of what they saw in lines that wait rather
    than compute. ``idle_longest`` is the longest time without work. ``not_done_then`` counts the
    tasks that were not done when ``most_waiting`` of them waited for others.

    ``scheduler_cpu`` is how many cores the scheduler's process used, on average. ``first_workers``
    is the number of workers at the start; ``gathered`` is the seconds until four fifths of the
    highest number had come. ``worker_cpu_now`` is like ``worker_cpu``, for the last minute.
    ``unmanaged`` is the unmanaged memory per worker: the least in each of several equal parts of
    the period, in bytes. ``collisions`` counts Dask's warnings that two graphs use the same key for
    different tasks.
    """

    alone: bool | None = None
    threads: float | None = None
    workers: float | None = None
    activities: Mapping[str, float] = field(default_factory=dict)
    whole: bool = False
    spilled: float | None = None
    unspilled: float | None = None
    transferred: float | None = None
    most_waiting: float | None = None
    not_done_then: float | None = None
    most_unrunnable: float | None = None
    worker_cpu: float | None = None
    profiled: float | None = None
    line: str | None = None
    waiting_lines: float | None = None
    gpu_utilization: float | None = None
    gpu_memory_share: float | None = None
    gpu_points: int = 0
    busy_seconds: float | None = None
    idle_longest: float | None = None
    most_clients: float | None = None
    scheduler_cpu: float | None = None
    first_workers: float | None = None
    gathered: float | None = None
    worker_cpu_now: float | None = None
    unmanaged: Sequence[float] = ()
    collisions: int | None = None

    @property
    def cpu_share(self) -> float | None:
        """The share, 0 to 1, of the tasks' time in threads that was on a CPU."""
        computing = [self.activities[name] for name in _COMPUTING if name in self.activities]
        whole = sum(computing)
        return self.activities.get("thread-cpu", 0.0) / whole if whole > 0 else None


@dataclass(frozen=True, slots=True)
class Slower:
    """The last change of the computation's job before it: runs have taken longer since then.

    ``before`` and ``after`` are medians, in seconds, of ``runs_before`` and ``runs_after`` passed
    runs. ``chance`` is the probability of such a difference without a change, None if there are too
    few runs to compute it. ``run_before`` is the id of the last passed run before the change. It
    had ``tasks_before`` tasks, and the first one since ``tasks_since``; both are None if one of the
    two is not stored any more. ``candidates`` are what changed at the same time, in words.
    ``by_shape``: only the graphs of its runs are alike.
    """

    before: float
    after: float
    runs_before: int
    runs_after: int
    chance: float | None
    run_before: str
    candidates: Sequence[str] = ()
    tasks_before: int | None = None
    tasks_since: int | None = None
    by_shape: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about one subject: a cluster or, with ``run``, a computation on it.

    ``losses`` are the workers that left. ``interval`` is the time between two beats. For a
    computation, ``causes`` are the failures in other computations because of which its tasks never
    ran, and ``slower`` is None unless its job became slower. ``sizing`` is by the runs of its job
    up to this one, None unless this one passed. For a cluster, ``loops`` are
    consecutive computations, and ``coming`` is about workers that came and went; both are None if
    they were not read. For a cluster that is gone, or some of whose tasks wait now, ``waited``
    are the unfinished computations whose tasks waited because no worker could run them, the one
    that waited for longest first.
    """

    cluster: ClusterState
    meanwhile: Meanwhile
    run: Run | None = None
    losses: Sequence[Loss] = ()
    causes: tuple[FailureGroup, ...] = ()
    interval: float = 10.0
    loops: Sequence[Loop] | None = None
    coming: WorkerChurn | None = None
    slower: Slower | None = None
    sizing: Sizing | None = None
    waited: Sequence[Run] = ()
    thresholds: Mapping[str, float] = field(default_factory=lambda: DEFAULTS)

    @property
    def threads(self) -> float | None:
        """How many threads the workers had while the computation ran; None if not known."""
        run = self.run
        if self.meanwhile.threads or run is None or not (run.thread_seconds and run.duration):
            return self.meanwhile.threads
        return run.thread_seconds / run.duration

    @property
    def capacity(self) -> float | None:
        """The thread-seconds of all workers while the computation ran; None if not known."""
        if self.run is not None and self.run.thread_seconds:
            return self.run.thread_seconds
        if self.run is None or not self.threads:
            return None
        return self.threads * self.run.duration

    @property
    def computed_share(self) -> float | None:
        """The share of the capacity, 0 to 1, in which its tasks computed; None if not known."""
        if self.run is None or not self.capacity:
            return None
        return min(self.run.computed / self.capacity, 1.0)

    @property
    def idle_share(self) -> float | None:
        """The share of the threads' time, 0 to 1, in which they had no task; None if not known.

        The computation's own numbers come first, then the time series of about the same period. If
        neither measured idleness, it is the time that the computation's own tasks did not use,
        provided that nothing else ran.
        """
        if self.run is not None and self.run.thread_seconds:
            return self.run.worker_seconds.get("idle", 0.0) / self.run.thread_seconds
        measured = sum(self.meanwhile.activities.values())
        if self.meanwhile.whole and measured > 0:
            return self.meanwhile.activities.get("idle", 0.0) / measured
        if self.run is None or not self.meanwhile.alone or not self.capacity:
            return None
        return max(0.0, 1.0 - sum(self.run.seconds.values()) / self.capacity)

    @property
    def price_per_thread_second(self) -> float | None:
        """The cluster's cost for each second of a thread; None without prices."""
        cost, seconds = self.cluster.cost, self.cluster.thread_seconds
        return cost / seconds if cost and seconds > 0 else None
