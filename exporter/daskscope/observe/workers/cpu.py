"""Whether workers use CPU or GPU without a task: in threads, or in child processes.

Dask's heartbeats contain the workers' metrics. If our own metric (:mod:`daskscope.worker_process`)
is missing, Dask's is used: the current CPU of the worker's process, without its child processes.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice

from distributed.scheduler import Scheduler, WorkerState, heartbeat_interval

from daskscope import deployment, protocol, worker_process
from daskscope.containment import Contained
from daskscope.observe.workers.gpus import utilization_of
from daskscope.sent_code import put_on_workers, sent, texts_of
from daskscope.worker_process import METRIC

_TEXTS = texts_of(deployment, worker_process)

#: The name of the worker plugin.
NAME = "daskscope-process"

#: The share of one core above which a worker's process, with its child processes, is at work. An
#: idle one uses 0.01 to 0.05 for heartbeats and its profiler, a computing thread 1. Further workers
#: in the same process add WORKER_MORE each, a scheduler with client and daskscope adds
#: SCHEDULER_MORE.
AT_WORK = 0.10
WORKER_MORE, SCHEDULER_MORE = 0.02, 0.10
#: The longest period, in seconds, over which the share is computed.
WINDOW = 60.0
#: CPU seconds that do not count as work, such as an import or a garbage collection.
NOTHING = 0.3
#: Seconds of a window after which a worker that was at work can be found at rest.
SURE = 5.0
#: Percent of GPU use above which a worker is at work, and how many samples in a row must exceed it:
#: a display may use the GPU now and then.
GPU_AT_WORK, GPU_SAMPLES = 10.0, 2
#: The most seconds between two samples of a worker. If there are more, its clock may have been set.
MAX_STEP = 30.0
#: Workers per look.
AT_ONCE = 500
#: Seconds without a heartbeat after which a worker counts as silent: its event loop is blocked.
#: Twice the heartbeat interval is added.
SILENT = 20.0
#: Seconds without a heartbeat after which it is not known what a worker uses now: one on a busy
#: host reads its use every five seconds only. Here, too, twice the heartbeat interval is added.
LATE = 8.0
#: Entries of a worker's deployment that are read; workers send fewer.
MAX_NAMES = 50
#: The place of the machine's type in the metric.
_PLACE_OF_TYPE = 9


def peak_memory_of(worker: WorkerState) -> int | None:
    """Return a worker process's peak memory in bytes; None if the worker does not report it."""
    sample = worker.metrics.get(METRIC)
    peak = sample[3] if sample and len(sample) > 3 else None
    return peak if isinstance(peak, int) else None


def deployment_of_worker(worker: WorkerState) -> dict[str, str]:
    """Return how and where a worker was started, such as a batch job or a pod, if it reports it."""
    sample = worker.metrics.get(METRIC)
    reported = sample[4] if sample and len(sample) > 4 else None
    if not isinstance(reported, dict):
        return {}
    return {
        str(name)[: protocol.MAX_NAME]: str(value)[: protocol.MAX_NAME]
        for name, value in islice(reported.items(), MAX_NAMES)
    }


def instance_type_of_worker(worker: WorkerState) -> str | None:
    """Return the type of a worker's machine; "" if the worker does not know it.

    None: the worker has not reported yet, or never will.
    """
    sample = worker.metrics.get(METRIC)
    if not sample or len(sample) <= _PLACE_OF_TYPE:
        return None
    type_name = sample[_PLACE_OF_TYPE]
    return type_name[: protocol.MAX_NAME] if isinstance(type_name, str) else ""


@dataclass(slots=True)
class _Window:
    """The CPU that one worker used since ``began``, by the worker's clock.

    ``at`` is the time of its last sample. ``base`` is its CPU seconds when the window began; None
    until the first new sample after the first look. Only with one more sample it is ``measured``
    what the worker uses.
    """

    at: float
    heard_at: float
    began: float = 0.0
    base: float | None = None
    used: float = 0.0
    share: float = 0.0
    at_work: bool = False
    measured: bool = False
    gpu: float = 0.0
    gpu_samples: int = 0

    def add(self, at: float, used: float | None, percent: float) -> None:
        """Add a sample: the CPU seconds ``used`` so far or, if unknown, the current ``percent``."""
        step, self.at = at - self.at, at
        self.measured = self.base is not None
        if self.base is None or not 0 < step <= MAX_STEP or at - self.began > WINDOW:
            self.began, self.base, self.used = at, 0.0 if used is None else used, 0.0
            return
        self.used = self.used + percent / 100 * step if used is None else used - self.base
        span = at - self.began
        if span >= SURE or not self.at_work:
            self.share = self.used / span
            self.at_work = self.used > NOTHING and self.share > AT_WORK

    def add_gpu(self, percent: float) -> None:
        """Add a sample of the use of the worker's GPU, by all processes."""
        self.gpu = percent
        self.gpu_samples = self.gpu_samples + 1 if percent > GPU_AT_WORK else 0


class WorkersCpu:
    """Looks at workers without tasks, some at each look. Not thread-safe.

    ``calls`` is the number of calls in progress on the workers, such as methods of actors.
    ``begun`` grows with each worker that began others, however short, between two heartbeats.
    ``busy`` is the number of workers whose processes are at work, and ``share`` the busiest one's
    share of one core; workers in one process each report all of it. ``gpu`` is the use of the
    busiest GPU as a share, 0 if none is at work. ``silent`` is the number of workers that stopped
    reporting, and ``unheard`` whether of some it is not known yet what they use.
    """

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        # By worker: the number of calls begun, as of the last look.
        self._begun: dict[str, int] = {}
        self.begun = 0
        self._gpu: float = 0.0
        self._begin(())
        self.calls = self.busy = self.silent = 0
        self.unheard = True
        self.share = self.gpu = 0.0

    def restart(self) -> None:
        """Start again: until now the workers used their CPUs for the cluster's tasks."""
        self._windows.clear()
        self._begin(())
        self.calls = self.busy = self.silent = 0
        self.unheard = True
        self.share = self.gpu = 0.0

    def look(self, workers: Collection[WorkerState], now: float) -> None:
        """Look at more of ``workers``; ``now`` is the time of a monotonic clock.

        The attributes change once all workers have been looked at.
        """
        if self._next >= len(self._round):
            self._begin(workers)
        windows = self._windows
        two_beats = 2 * heartbeat_interval(len(self._round))
        missed_at, late_at = now - SILENT - two_beats, now - LATE - two_beats
        calls = silent = 0
        busy = self._found
        for worker in self._round[self._next : self._next + AT_ONCE]:
            metrics = worker.metrics
            sample = metrics.get(METRIC)
            if sample:
                at, used, called, *others = sample
                calls += called
            else:
                at, used, others = metrics.get("time") or 0.0, None, ()
            begun = others[3] if len(others) > 3 else 0
            if self._begun.setdefault(worker.address, begun) != begun:
                self._begun[worker.address] = begun
                self.begun += 1
            window = windows.get(worker.address)
            if window is None:
                windows[worker.address] = _Window(at, now)
                self._unheard = True
                continue
            if at != window.at:
                window.add(at, used, metrics.get("cpu") or 0.0)
                of_others = len(others) > 2 and others[2] is True
                window.add_gpu(0.0 if of_others else utilization_of(worker) or 0.0)
                window.heard_at = now
            elif window.heard_at < missed_at:
                silent += 1
            if not window.measured or window.heard_at < late_at:
                self._unheard = True
            if window.at_work:
                busy.append((worker, window))
            if window.gpu_samples >= GPU_SAMPLES and window.gpu > self._gpu:
                self._gpu = window.gpu
        self._next += AT_ONCE
        self._calls += calls
        self._silent += silent
        if self._next >= len(self._round):
            self._end()

    def _begin(self, workers: Collection[WorkerState]) -> None:
        self._round, self._next = tuple(workers), 0
        self._calls = self._silent = 0
        self._unheard = False
        self._gpu = 0.0
        self._found: list[tuple[WorkerState, _Window]] = []

    def _end(self) -> None:
        windows, workers, at_work = self._windows, self._round, self._found
        if len(windows) > len(workers):
            there = {worker.address for worker in workers}
            self._windows = {name: one for name, one in windows.items() if name in there}
        if len(self._begun) > len(workers):
            there = {worker.address for worker in workers}
            self._begun = {name: one for name, one in self._begun.items() if name in there}
        if at_work:
            at_work = _without_shares(at_work, workers)
        self.calls, self.silent, self.busy = self._calls, self._silent, len(at_work)
        self.unheard, self.gpu = self._unheard, self._gpu / 100
        self.share = max((one.share for _, one in at_work), default=0.0)


def _without_shares(
    at_work: list[tuple[WorkerState, _Window]], workers: Collection[WorkerState]
) -> list[tuple[WorkerState, _Window]]:
    """Return ``at_work`` without workers in processes that are busy only by being shared."""
    if all(worker.nanny for worker, _ in at_work):
        return at_work
    sharing = Counter((worker.host, worker.pid) for worker in workers)
    return [
        (worker, one)
        for worker, one in at_work
        if one.share
        > AT_WORK
        + WORKER_MORE * (sharing[worker.host, worker.pid] - 1)
        + (SCHEDULER_MORE if worker.pid == os.getpid() else 0.0)
    ]


def watch_processes(scheduler: Scheduler, drops: Counter[str]) -> Callable[[], None]:
    """Make present and future workers report on their processes. Return a function to stop it."""
    # A unique name: a worker may get the end of one plugin after the start of the next.
    name = f"{NAME}-{uuid.uuid4().hex[:8]}"
    return put_on_workers(scheduler, name, lambda: sent(_TEXTS, "WorkerProcess"), Contained(drops))
