"""The time of tasks that were in a thread when they were cancelled, or when their worker left.

Workers report what a task took once it has ended. They report nothing of a task that they were
running when they left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dask.typing import Key
from distributed.metrics import monotonic, time
from distributed.scheduler import TaskState, WorkerState

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
        # The worker of each task that is in a thread, from when it is asked for to the next tick.
        self._worker_of: dict[TaskState, WorkerState] | None = None

    def tick(self) -> None:
        """Forget what workers were doing. Call it at each tick of the event loop."""
        self._worker_of = None

    def cancelled(self, task: TaskState, workers: Iterable[WorkerState]) -> None:
        """Count the time of a task that was taken from its worker, one of ``workers``."""
        if self._worker_of is None:
            # Many are cancelled at once.
            self._worker_of = {task: worker for worker in workers for task in worker.executing}
        worker = self._worker_of.get(task)
        if worker is not None:
            self._count(self.given_up, task, worker)

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
