"""The evidence for the rules: typed rows of one computation and its cluster.

``None`` says that something was not measured. Times are seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from daskscope.names import DURATION_BOUNDS
from daskscope_service.insight.findings.thresholds import DEFAULTS

#: Activities of threads that belong to tasks: all others are waiting, or Dask's own.
_COMPUTING = ("thread-cpu", "thread-noncpu")
#: How many of the workers must have come: the last ones may never. Parts of a time in which memory
#: is looked at.
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

        None where no run was measured, or where the median lies above all bounds.
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
class Failed:
    """Equal exceptions: ``computation`` is the one that raised them.

    ``message`` is that of the first one, None where it was refused.
    """

    type: str
    function: str
    count: int
    retried: int
    fingerprint: str
    computation: str
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
    """A computation. ``status`` is as people see it: it may be lost.

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
    failures: Sequence[Failed] = ()
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

    @property
    def ended_at(self) -> float:
        """When it ended, or up to when it is known."""
        return self.started_at + self.duration

    @property
    def compute(self) -> float:
        """Thread-seconds that its tasks computed."""
        return self.seconds.get("compute", 0.0)

    @property
    def thread_seconds(self) -> float:
        """Threads of all workers times time, from its start to its end; 0 where not measured."""
        return sum(self.worker_seconds.values())

    @property
    def failed_early(self) -> bool:
        """Whether less than half of its tasks were done when it ended badly."""
        return self.status in ("erred", "cancelled", "lost") and 2 * self.done < self.tasks


@dataclass(frozen=True, slots=True)
class Holder:
    """A client that is connected; see ``daskscope.protocol.ConnectedClient``."""

    user: str
    host: str
    since: float
    results: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Loop:
    """Computations that came one after another from one ``line`` of code, as ``file:line``.

    ``seconds`` is the time from the first one's start to the last one's end, of which nothing ran
    for ``between``; ``pause`` is the median of the times between two of them. ``thread_seconds``
    are those of all workers in that time, of which ``busy`` had a task.
    """

    line: str
    times: int
    seconds: float
    between: float
    pause: float
    thread_seconds: float
    busy: float


@dataclass(frozen=True, slots=True)
class Coming:
    """Workers that were asked to leave before others came: how many, and for how long each was
    there, as a median in seconds. ``seconds`` is the time in which they came and went.
    """

    workers: int
    lifetime: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The cluster, as of its last beat. ``memory_limit`` is the largest that it had.

    ``peak_memory`` is the most that was seen at its beats, ``peak_worker_memory`` the most that one
    worker's process ever had. ``prices`` are per hour, and ``price_source`` says whose they are:
    "cluster", "workspace" or "list"; ``cost`` is in ``currency``.
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
        """What each worker may use, if all may use as much; None where no limit is known."""
        most = max(self.workers, self.peak_workers)
        return self.memory_limit / most if self.memory_limit and most else None

    @property
    def thread_seconds(self) -> float:
        """Threads times time since the plugin started."""
        return sum(self.worker_seconds.values())


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What the cluster did in a time: while a computation ran, or all the time that it was up.

    ``alone`` says that no other computation ran in that time for long. ``activities`` are
    thread-seconds by activity over all prefixes; ``whole`` says that they are all of the threads'
    time, idle time included. ``worker_cpu`` is how many cores one worker used at most, on average
    over the workers. ``line`` is the place in the code, as ``file:line``, where profiles saw
    threads most; ``waiting_lines`` how much of what they saw was in lines that wait rather than
    compute, 0 to 1. ``idle_longest`` is the longest that the cluster had no work.

    ``scheduler_cpu`` is how many cores the scheduler's process used, on average. ``first_workers``
    is how many workers there were at first, ``gathered`` the seconds until four fifths of the most
    that there were had come, None for as long as that is not known. ``worker_cpu_now`` is how many
    cores one worker used in the last minute at most. ``unmanaged`` is the memory of a worker that
    Dask does not know of: the least in each of several equal parts of the time, in bytes.
    ``collisions`` counts warnings of Dask's that two graphs gave one key to different tasks.
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
        """How much of the tasks' time in threads was on a CPU, 0 to 1."""
        computing = [self.activities[name] for name in _COMPUTING if name in self.activities]
        whole = sum(computing)
        return self.activities.get("thread-cpu", 0.0) / whole if whole > 0 else None


@dataclass(frozen=True, slots=True)
class Slower:
    """The last change of the computation's job, which it came after: runs take longer since.

    ``before`` and ``after`` are medians, in seconds, of so many passed runs; ``chance`` is how
    probable that is by chance, None where too few runs say it. ``run_before`` is the id of the last
    passed run before; ``candidates`` what changed at the same time, in words.
    """

    before: float
    after: float
    runs_before: int
    runs_after: int
    chance: float | None
    run_before: str
    candidates: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about one subject: a cluster or, with ``run``, a computation on it.

    ``losses`` are the workers that left; ``cause`` the failure in another computation for which
    its tasks never ran. ``interval`` is the time between two beats. Of a cluster, ``loops`` are
    computations that came one after another, and ``coming`` workers that came and went: None where
    nobody looked. Of one that is gone, ``waited`` is the unfinished computation that had tasks
    which no worker could run for longest. ``slower`` is None where the job of a computation did not
    become slower.
    """

    cluster: ClusterState
    meanwhile: Meanwhile
    run: Run | None = None
    losses: Sequence[Loss] = ()
    cause: Failed | None = None
    interval: float = 10.0
    loops: Sequence[Loop] | None = None
    coming: Coming | None = None
    slower: Slower | None = None
    waited: Run | None = None
    thresholds: Mapping[str, float] = field(default_factory=lambda: DEFAULTS)

    @property
    def threads(self) -> float | None:
        """How many threads the workers had while the computation ran; None where not known."""
        run = self.run
        if self.meanwhile.threads or run is None or not (run.thread_seconds and run.duration):
            return self.meanwhile.threads
        return run.thread_seconds / run.duration

    @property
    def capacity(self) -> float | None:
        """Thread-seconds that there were for the computation; None where nobody can say."""
        if self.run is not None and self.run.thread_seconds:
            return self.run.thread_seconds
        if self.run is None or not self.threads:
            return None
        return self.threads * self.run.duration

    @property
    def computed_share(self) -> float | None:
        """How much of the capacity its tasks computed, 0 to 1."""
        if self.run is None or not self.capacity:
            return None
        return min(self.run.compute / self.capacity, 1.0)

    @property
    def idle_share(self) -> float | None:
        """How much of the threads' time no task had been assigned to them; None: not known.

        It is the computation's own, from its start to its end, or what time series say of about
        that time. Where idleness itself was not measured, it is what the computation's own tasks
        leave, which holds only while nothing else ran.
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
        """What a thread costs a second, all that is paid for included; None without prices."""
        cost, seconds = self.cluster.cost, self.cluster.thread_seconds
        return cost / seconds if cost and seconds > 0 else None
