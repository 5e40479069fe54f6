"""Transitions of tasks: noted on the scheduler's event loop, counted by whoever has the time.

There are some six per task, and whatever is done with each is done while the cluster waits. So the
loop only notes them, and a thread counts some hundred at a time. Whoever reads on the loop what is
counted calls :meth:`Transitions.count` first: until the loop goes on none is noted, and so nothing
is counted elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from dask.typing import Key
from distributed.metrics import monotonic, time
from distributed.scheduler import Scheduler, TaskState, WorkerState

from daskscope.observe.computations import Computations
from daskscope.observe.workers import Workers

#: Transitions that are counted together.
AT_ONCE = 300
#: Transitions that may wait. More are counted on the loop: none is ever left out.
MAX_WAITING = 3_000

#: What Dask tells of a transition beside the states.
Details = Mapping[str, Any]

# A task and its two states, details, when by the clock that is not set; and the worker, if one was
# given the task or is rid of it, with the tasks that it then had.
_Noted = tuple[TaskState, str, str, Details, float, WorkerState | None, int]


class Transitions:
    """Hands transitions on to ``computations`` and ``workers``, in their order.

    What has to be seen at once is told on the loop: to ``erred`` a task that Dask calls erred,
    which returns what it was before, to ``put_back`` one that was to run and now is not.
    ``many_wait`` is called there, too, whenever some more should be counted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        computations: Computations,
        workers: Workers,
        drops: Counter[str],
        *,
        put_back: Callable[[TaskState], None],
        erred: Callable[[TaskState, str, Details], str],
    ) -> None:
        self._scheduler = scheduler
        self._computations = computations
        self._workers = workers
        self._drops = drops
        self._put_back = put_back
        self._erred = erred
        self._noted: deque[_Noted] = deque()
        self._counting = Lock()
        self.many_wait: Callable[[], None] = self.count

    def note(self, key: Key, start: str, finish: str, *args: Any, **details: Any) -> None:
        """Dask's hook: a task went from one state to another. Every line counts."""
        try:
            scheduler = self._scheduler
            task = scheduler.tasks.get(key)
            # Dask tells of transitions that are none, too.
            if task is None or start == finish:
                return
            worker, busy = None, 0
            if finish == "processing":
                worker = task.processing_on
            elif start == "processing":
                if "worker" in details:
                    worker = scheduler.workers.get(details["worker"])
                if finish == "released":
                    self._put_back(task)
            if finish == "erred":
                start = self._erred(task, start, details)
            if worker is not None:
                busy = len(worker.processing)
            noted = self._noted
            noted.append((task, start, finish, details, monotonic(), worker, busy))
            waiting = len(noted)
            if not waiting % AT_ONCE:
                if waiting < MAX_WAITING:
                    self.many_wait()
                else:
                    self.count()
        except Exception:  # as in the plugin's other hooks, whose wrapper would cost a call more
            self._drops["internal error"] += 1

    def count(self) -> None:
        """Count all that were noted. In any thread: of two that want to one waits."""
        noted = self._noted
        with self._counting:
            ahead = time() - monotonic()
            while noted:
                task, start, finish, details, at, worker, busy = noted.popleft()
                try:
                    self._computations.transition(task, start, finish, details, at + ahead)
                    if worker is not None:
                        self._workers.looked_at(worker, busy, at)
                except Exception:
                    self._drops["internal error"] += 1
