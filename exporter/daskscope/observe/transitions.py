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

from distributed.metrics import monotonic, time
from distributed.scheduler import TaskState, WorkerState

from daskscope.observe.computations import Computations
from daskscope.observe.workers import Workers

#: Transitions that are counted together.
AT_ONCE = 300
#: Transitions that may wait. More are counted on the loop: none is ever left out.
MAX_WAITING = 3_000

# A task and its two states, details, when by the clock that is not set; and the worker, if one was
# given the task or is rid of it, with the tasks that it then had.
_Noted = tuple[TaskState, str, str, Mapping[str, Any], float, WorkerState | None, int]


class Transitions:
    """Hands transitions on to ``computations`` and ``workers``, in their order.

    ``many_wait`` is called on the loop whenever some more should be counted.
    """

    def __init__(self, computations: Computations, workers: Workers, drops: Counter[str]) -> None:
        self._computations = computations
        self._workers = workers
        self._drops = drops
        self._noted: deque[_Noted] = deque()
        self._counting = Lock()
        self.many_wait: Callable[[], None] = self.count

    def note(
        self,
        task: TaskState,
        start: str,
        finish: str,
        details: Mapping[str, Any],
        worker: WorkerState | None,
    ) -> None:
        """Note a transition. Every line counts."""
        noted = self._noted
        busy = 0 if worker is None else len(worker.processing)
        noted.append((task, start, finish, details, monotonic(), worker, busy))
        waiting = len(noted)
        if not waiting % AT_ONCE:
            if waiting < MAX_WAITING:
                self.many_wait()
            else:
                self.count()

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
