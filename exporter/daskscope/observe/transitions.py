"""Transitions of tasks: noted on the event loop, counted in a thread or when it is quiet.

There are some six per task, and whatever is done with each is done while the cluster waits. So the
loop only notes them, and a thread counts a thousand at a time, and what is left when the loop gets
quiet. Whoever reads on the loop what is counted calls :meth:`Transitions.count` first: until the
loop goes on none is noted, and so nothing is counted elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from dask.typing import Key
from distributed.metrics import monotonic, time
from distributed.scheduler import Scheduler, TaskState

from daskscope.containment import contain, guarded
from daskscope.observe.tasks.computations import ENDS, PUT_BACK, Computations
from daskscope.observe.tasks.groups import Group
from daskscope.observe.workers.workers import Workers

#: Transitions that are counted together: to wake the thread costs the loop what some 80 cost.
AT_ONCE = 1_000
#: As many of these may wait. More are counted on the loop: none is ever left out.
MAX_WAITING = 3
#: Fewer are not worth to wake the thread for when the loop is quiet.
WORTHWHILE = 250

# Items that are noted of each step, run and end: see ``Step``, ``Run`` and ``End``.
_OF_STEP, _OF_RUN, _OF_END = 3, 5, 2
# What is noted of a run beside the time, as Dask calls it.
_DETAILS = ("worker", "nbytes", "typename", "startstops")

#: What Dask reports of a transition beside the states, in a dictionary of our own.
Details = dict[str, Any]


class Transitions:
    """Hands transitions on to ``computations``, in their order, and to ``workers`` at once.

    What else has to be seen at once is reported on the loop: to ``erred`` a task that Dask calls
    erred, which returns what it was before, to ``put_back`` one that was to run and now is not.
    ``many_wait`` is called there, too, whenever another thread should call
    :meth:`count_waiting`; without it they are counted on the loop.
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
        many_wait: Callable[[], None] | None,
    ) -> None:
        self._computations = computations
        self._drops = drops
        # Flat lists: an object for each would make work for the garbage collector. And of most only
        # the key is held: what goes is to go where it is at hand, on the loop.
        self._steps: list[Any] = []
        self._runs: list[Any] = []
        self._ends: list[Any] = []
        self._waiting: deque[tuple[list[Any], list[Any], list[Any]]] = deque()
        self._counting = Lock()
        self._noted_before = 0
        self._many_wait = many_wait or self.count
        # Of those that have been counted: see ``worked``.
        self._worked = 0
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
        run, end, drops = self._runs.extend, self._ends.extend, self._drops

        def turn(key: Key, start: str, finish: str, details: Details) -> str:
            """Report a task that did not finish. Return its state before."""
            if finish == "erred":
                start = guarded(drops, start, lambda: erred(tasks[key], start, details))
            elif finish == "released":
                if start == "processing":
                    guarded(drops, None, lambda: put_back(tasks[key]))
                if guarded(drops, False, lambda: _goes_on(tasks[key])):
                    end((monotonic(), PUT_BACK))
                    return start
            end((monotonic(), details))
            return start

        # Most of what a call costs is to bring all that it touches into the processor's caches. So
        # it is no method, and what most calls need are locals: Dask gives three by position. And
        # what it gives each has a name here, for the rest makes a dictionary. Of a run that ended
        # well is kept what came, for whatever is made of it here takes longer than in the thread.
        def note(
            key: Key,
            start: str,
            finish: str,
            step: Callable[[Any], None] = self._steps.extend,
            steps: list[Any] = self._steps,
            full: int = AT_ONCE * _OF_STEP,
            ends: frozenset[str] = ENDS,
            with_room: set[str] = workers.with_room,
            len: Callable[[list[Any]], int] = len,
            /,
            *,
            stimulus_id: str = "",
            **details: Any,
        ) -> None:
            try:
                if finish in ends:
                    if start == "processing":
                        # Among those that Dask calls idle is each with a thread without a task.
                        if idle or with_room:
                            workers.look(workers_by_address.get(details.get("worker", "")))
                        if finish == "memory":
                            try:
                                worker, nbytes = details["worker"], details["nbytes"]
                                typename, startstops = details["typename"], details["startstops"]
                                run((monotonic(), worker, nbytes, typename, startstops))
                            except KeyError:  # which no Dask that is supported leaves out
                                run((monotonic(), *map(details.get, _DETAILS)))
                        else:
                            start = turn(key, start, finish, details)
                    elif start == finish:
                        return  # Dask reports transitions that are none, too
                    elif start != "memory" or finish == "erred":
                        # From memory: an actor that was lost.
                        start = turn(key, start, finish, details)
                elif with_room and finish == "processing":
                    workers.look(tasks[key].processing_on)
                step((key, start, finish))
                # Of each kind: whatever Dask does with all of its tasks, it may do in one go.
                if len(steps) >= full:
                    self._hand_over()
            except Exception as error:  # no wrapper, which would cost a call for each
                contain(error, drops)

        return note

    def added(self, group: Group, count: int) -> None:
        """Note that so many tasks of a graph that arrives are in ``group``."""
        self._steps.extend((None, group, count))
        if len(self._steps) >= AT_ONCE * _OF_STEP:
            self._hand_over()

    def count_if_quiet(self) -> None:
        """Have those counted that are left, if no more have come since the last call.

        So a graph that comes later does not have to wait until they are.
        """
        noted = len(self._steps)
        if noted == self._noted_before and noted >= WORTHWHILE * _OF_STEP:
            self._hand_over()
        self._noted_before = len(self._steps)

    def _hand_over(self) -> None:
        self._let_wait()
        if len(self._waiting) < MAX_WAITING:
            self._many_wait()
        else:
            self.count_waiting()

    def _let_wait(self) -> None:
        self._waiting.append((self._steps.copy(), self._runs.copy(), self._ends.copy()))
        self._steps.clear()
        self._runs.clear()
        self._ends.clear()

    def count(self) -> None:
        """Count all that were noted. On the event loop."""
        self._let_wait()
        self.count_waiting()

    def worked(self) -> int:
        """Return how many steps there have been, but for those that only put something away. On the
        event loop, where none is counted for that.
        """
        noted = _works(self._steps, self._runs, self._ends)
        return self._worked + noted + sum(_works(*batch) for batch in tuple(self._waiting))

    def count_waiting(self) -> None:
        """Count those that wait for it. In any thread: of two that want to one waits."""
        with self._counting:
            ahead = time() - monotonic()
            while self._waiting:
                steps, runs, ends = self._waiting.popleft()
                self._worked += _works(steps, runs, ends)
                self._computations.count(
                    _each(steps, _OF_STEP), _each(runs, _OF_RUN), _each(ends, _OF_END), ahead
                )


def _works(steps: list[Any], runs: list[Any], ends: list[Any]) -> int:
    """Return how many steps do not only put a result or a task away."""
    count = steps[2::_OF_STEP].count
    # Of what leaves memory nothing is noted as a run, or as an end.
    put_away = sum(map(count, ENDS)) - len(runs) // _OF_RUN - len(ends) // _OF_END
    return len(steps) // _OF_STEP - put_away - count("forgotten")


def _goes_on(task: TaskState) -> bool:
    # As Dask decides whether what is released waits again, or is forgotten.
    return bool(task.waiters or task.who_wants) and not task.has_lost_dependencies


def _each(flat: list[Any], items: int) -> Iterator[Any]:
    """Return, as tuples, what stands in a ``flat`` list, so many ``items`` each."""
    return zip(*[iter(flat)] * items, strict=True)
