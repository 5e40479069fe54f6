"""Transitions of tasks: noted on the scheduler's event loop, counted by whoever has the time.

There are some six per task, and whatever is done with each is done while the cluster waits. So the
loop only notes them, and a thread counts a thousand at a time. Whoever reads on the loop what is
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

from daskscope.observe.computations import ENDS, Computations
from daskscope.observe.groups import Group
from daskscope.observe.runs import Action, action_of
from daskscope.observe.workers import Workers

#: Transitions that are counted together: to wake the thread costs the loop what some 80 cost.
AT_ONCE = 1_000
#: As many of these may wait. More are counted on the loop: none is ever left out.
MAX_WAITING = 3

# Items that are noted of each step and of each end: see ``Step`` and ``End``.
_ITEMS = 3

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
        # Flat lists: an object for each would make work for the garbage collector. And of most only
        # the key is held: what goes is to go where it is at hand, on the loop.
        self._noted: list[Any] = []
        self._ends: list[Any] = []
        self._waiting: deque[tuple[list[Any], list[Any]]] = deque()
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
        tasks, workers_by_address, idle = scheduler.tasks, scheduler.workers, scheduler.idle
        end = self._ends.extend

        def turn(key: Key, start: str, finish: str, details: Details) -> str:
            """Tell of a task that did not finish. Return what it was before."""
            if finish == "erred":
                return erred(tasks[key], start, details)
            if start == "processing" and finish == "released":
                put_back(tasks[key])
            return start

        # Most of what a call costs is to bring all that it touches into the processor's caches. So
        # it is no method, and what most calls need are locals: Dask gives three by position. And
        # what it gives each has a name here, for the rest makes a dictionary.
        def note(
            key: Key,
            start: str,
            finish: str,
            step: Callable[[Any], None] = self._noted.extend,
            noted: list[Any] = self._noted,
            full: int = AT_ONCE * _ITEMS,
            ends: frozenset[str] = ENDS,
            with_room: set[str] = workers.with_room,
            len: Callable[[list[Any]], int] = len,
            action_of: Callable[[Any], Action] = action_of,
            /,
            *,
            stimulus_id: str = "",
            **details: Any,
        ) -> None:
            try:
                if start == "processing":
                    # Among those that Dask calls idle is each that has a thread without a task.
                    if idle or with_room:
                        workers.look(workers_by_address.get(details.get("worker", "")))
                    if finish == "memory":
                        tell = details.get
                        actions = tuple(map(action_of, tell("startstops") or ()))
                        told: Any = (tell("worker"), tell("nbytes"), tell("typename"), actions)
                    else:
                        start = turn(key, start, finish, details)
                        told = details
                    end((key, monotonic(), told))
                elif start == finish:
                    return  # Dask tells of transitions that are none, too
                elif finish == "processing":
                    if with_room:
                        workers.look(tasks[key].processing_on)
                elif finish in ends and (start != "memory" or finish == "erred"):
                    # From memory: an actor that was lost.
                    start = turn(key, start, finish, details)
                    end((key, monotonic(), details))
                step((key, start, finish))
                # Of each kind: whatever Dask does with all of its tasks, it may do in one go.
                if len(noted) >= full:
                    self._hand_over()
            except Exception:  # as in the plugin's other hooks, whose wrapper costs a call more
                self._drops["internal error"] += 1

        return note

    def added(self, group: Group, count: int) -> None:
        """Note that so many tasks of a graph that arrives are in ``group``."""
        self._noted.extend((None, group, count))
        if len(self._noted) >= AT_ONCE * _ITEMS:
            self._hand_over()

    def _hand_over(self) -> None:
        self._let_wait()
        if len(self._waiting) < MAX_WAITING:
            self.many_wait()
        else:
            self.count_waiting()

    def _let_wait(self) -> None:
        self._waiting.append((self._noted.copy(), self._ends.copy()))
        self._noted.clear()
        self._ends.clear()

    def count(self) -> None:
        """Count all that were noted. On the event loop."""
        self._let_wait()
        self.count_waiting()

    def count_waiting(self) -> None:
        """Count those that wait for it. In any thread: of two that want to one waits."""
        with self._counting:
            ahead = time() - monotonic()
            while self._waiting:
                noted, ends = self._waiting.popleft()
                steps, details = ([iter(flat)] * _ITEMS for flat in (noted, ends))
                self._computations.count(
                    zip(*steps, strict=True), zip(*details, strict=True), ahead
                )
