"""The time of tasks that were in a thread when they were cancelled, or when their worker left.

Workers report what a task took once it has ended. They report nothing of a task that they were
running when they left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dask.typing import Key
from distributed.metrics import monotonic, time
from distributed.scheduler import TaskState, WorkerState

#: Cancelled tasks that are remembered until their workers have sent another heartbeat.
MAX_CANCELLED = 1_000
#: Seconds for which a look at what all workers' threads do is good enough: that changes only with
#: heartbeats, twice a second.
PAUSE = 0.2
#: Prefixes of tasks that were cancelled, or lost with their workers, whose time is counted.
MAX_PREFIXES = 500


class Unfinished:
    """Adds up that time, by Dask's own prefix, from ``began_at`` on, a monotonic time.

    ``lost`` is of tasks whose worker left, ``given_up`` of tasks until they were cancelled.
    ``seceded`` are tasks that have left their thread: their worker, and since when.
    """

    def __init__(
        self, began_at: float, seceded: Mapping[TaskState, tuple[WorkerState, float]]
    ) -> None:
        self._began_at = began_at
        self._seceded = seceded
        self.lost: dict[str, float] = {}
        self.given_up: dict[str, float] = {}
        #: Tasks that are in :attr:`given_up` and may still be in :attr:`WorkerState.executing`.
        self.cancelled_lately: set[TaskState] = set()
        # The worker of each task that is in a thread, and until when that may be used.
        self._worker_of: dict[TaskState, WorkerState] = {}
        self._valid_until = 0.0

    def tick(self) -> None:
        """Forget what workers were doing, if that is old. Call it at each of the loop's ticks."""
        if self._worker_of and monotonic() > self._valid_until:
            self._worker_of = {}

    def cancelled(self, task: TaskState, workers: Iterable[WorkerState]) -> None:
        """Count the time of a task that was taken from its worker, one of ``workers``."""
        if monotonic() > self._valid_until:
            # Many are cancelled at once, or one after the other.
            self._worker_of = {task: worker for worker in workers for task in worker.executing}
            self._valid_until = monotonic() + PAUSE
        worker = self._worker_of.get(task)
        if worker is not None:
            self._count(self.given_up, task, worker)
            if len(self.cancelled_lately) < MAX_CANCELLED:
                self.cancelled_lately.add(task)

    def left(self, worker: WorkerState, keys: Collection[Key]) -> None:
        """Count the time of the tasks in the threads of a worker that has left.

        ``keys`` are those of the tasks that it had. Call it before they go elsewhere.
        """
        for task in worker.executing:
            if task.key in keys:  # else it has ended, or was cancelled
                self._count(self.lost, task, worker)

    def _count(self, seconds: dict[str, float], task: TaskState, worker: WorkerState) -> None:
        at = monotonic()
        took = worker.executing.get(task, 0.0) + max(time() - worker.last_seen, 0.0)
        took = min(took, at - self._began_at)
        if task in self._seceded:
            took = max(took - (at - self._seceded[task][1]), 0.0)
        prefix = task.prefix.name
        if prefix in seconds or len(seconds) < MAX_PREFIXES:
            seconds[prefix] = seconds.get(prefix, 0.0) + took
