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
from distributed.scheduler import Scheduler, TaskState

from daskscope.observe.computations import ACTIVE, Computations
from daskscope.observe.workers import Workers

#: Transitions that are counted together.
AT_ONCE = 300
#: As many of these may wait. More are counted on the loop: none is ever left out.
MAX_WAITING = 10

#: Items that are noted of each: the task, its two states; of tasks that have nothing to do from
#: then on also when, by the clock that is not set, and the details.
ITEMS = 5

#: What Dask tells of a transition beside the states.
Details = Mapping[str, Any]


class Transitions:
    """Hands transitions on to ``computations``, in their order, and tells ``workers`` at once.

    What else has to be seen at once is told on the loop: to ``erred`` a task that Dask calls erred,
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
        self._computations = computations
        self._drops = drops
        # One flat list: an object for each would make work for the garbage collector.
        self._noted: list[Any] = []
        self._waiting: deque[list[Any]] = deque()
        self._counting = Lock()
        self.many_wait: Callable[[], None] = self.count
        #: Dask's hook.
        self.note = self._hook(scheduler, workers, put_back, erred)

    def _hook(
        self,
        scheduler: Scheduler,
        workers: Workers,
        put_back: Callable[[TaskState], None],
        erred: Callable[[TaskState, str, Details], str],
    ) -> Callable[..., None]:
        # Not a method, and Dask names none of the first three: both make a call cheaper. Every line
        # counts.
        tasks, workers_by_address = scheduler.tasks, scheduler.workers
        noted, full = self._noted, AT_ONCE * ITEMS

        def note(key: Key, start: str, finish: str, /, *args: Any, **details: Any) -> None:
            try:
                task = tasks[key]
                if finish == "processing":
                    noted.extend((task, start, finish, 0.0, None))
                    workers.look(task.processing_on)
                elif start == "processing":
                    if "worker" in details:
                        workers.look(workers_by_address.get(details["worker"]))
                    if finish == "erred":
                        start = erred(task, start, details)
                    elif finish == "released":
                        put_back(task)
                    noted.extend((task, start, finish, monotonic(), details))
                elif finish in ACTIVE or (start not in ACTIVE and finish != "erred"):
                    noted.extend((task, start, finish, 0.0, None))
                else:
                    if start == finish:
                        return  # Dask tells of transitions that are none, too
                    if finish == "erred":
                        start = erred(task, start, details)
                    noted.extend((task, start, finish, monotonic(), details))
                if len(noted) >= full:
                    self._hand_over()
            except Exception:  # as in the plugin's other hooks, whose wrapper costs a call more
                self._drops["internal error"] += 1

        return note

    def _hand_over(self) -> None:
        self._let_wait()
        if len(self._waiting) < MAX_WAITING:
            self.many_wait()
        else:
            self.count_waiting()

    def _let_wait(self) -> None:
        noted = self._noted.copy()
        del self._noted[: len(noted)]
        self._waiting.append(noted)

    def count(self) -> None:
        """Count all that were noted. On the event loop."""
        self._let_wait()
        self.count_waiting()

    def count_waiting(self) -> None:
        """Count those that wait for it. In any thread: of two that want to one waits."""
        with self._counting:
            ahead = time() - monotonic()
            while self._waiting:
                noted = iter(self._waiting.popleft())
                self._computations.count(zip(*[noted] * ITEMS, strict=True), ahead)
