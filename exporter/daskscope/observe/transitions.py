"""Notes tasks' transitions on the event loop, to be counted in batches in a thread.

There are some six transitions per task, and the cluster waits while one is handled. So the loop
only notes them, and a thread counts a thousand at a time, and the rest when the loop gets quiet.
Code on the loop that reads the counts calls :meth:`Transitions.count` first. Until it returns to
the loop no transition is noted, so no other thread counts meanwhile.
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

#: Transitions per batch: waking the thread costs the loop as much as some 80 transitions.
AT_ONCE = 1_000
#: Batches that may wait. Further ones are counted on the loop: none is ever left out.
MAX_WAITING = 3
#: Transitions from which it pays to wake the thread when the loop is quiet.
WORTHWHILE = 250

# Items per ``Step``, ``Run`` and ``End`` in the flat lists.
_OF_STEP, _OF_RUN, _OF_END = 3, 5, 2
# Dask's names of the items of a ``Run``, except the time.
_DETAILS = ("worker", "nbytes", "typename", "startstops")

#: The keyword arguments of Dask's transition, in a dictionary of our own.
Details = dict[str, Any]


class Transitions:
    """Passes transitions to ``workers`` at once, and to ``computations`` later, in order.

    Two kinds cannot wait: on the loop, ``erred`` is called with a task that erred, and returns the
    task's state before; ``put_back`` is called with a task that left its worker without a result.
    ``many_wait`` is also called on the loop, whenever another thread should call
    :meth:`count_waiting`; if it is None, the transitions are counted on the loop.
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
        # Flat lists, because an object for each would burden the garbage collector. They hold keys,
        # not tasks: otherwise the counting thread would free the tasks, which is slower.
        self._steps: list[Any] = []
        self._runs: list[Any] = []
        self._ends: list[Any] = []
        self._waiting: deque[tuple[list[Any], list[Any], list[Any]]] = deque()
        self._counting = Lock()
        self._noted_before = 0
        self._many_wait = many_wait or self.count
        # The part of ``worked`` that has been counted.
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
            """Note the end of a task that did not finish. Return its state before."""
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

        # Most of the cost of a call is loading what it touches into the processor's caches. So this
        # is a function, not a method, and default arguments make its data locals: Dask passes three
        # arguments by position. ``stimulus_id`` is named, because it would make a dictionary of
        # ``details`` for every call. The data of a successful run is stored as it is: converting it
        # is faster in the thread.
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
                        # Dask's ``idle`` contains every worker that has a thread without a task.
                        if idle or with_room:
                            workers.look(workers_by_address.get(details.get("worker", "")))
                        if finish == "memory":
                            try:
                                worker, nbytes = details["worker"], details["nbytes"]
                                typename, startstops = details["typename"], details["startstops"]
                                run((monotonic(), worker, nbytes, typename, startstops))
                            except KeyError:  # no supported Dask omits one
                                run((monotonic(), *map(details.get, _DETAILS)))
                        else:
                            start = turn(key, start, finish, details)
                    elif start == finish:
                        return  # Dask also reports transitions to the same state
                    elif start != "memory" or finish == "erred":
                        # An actor that was lost errs from memory.
                        start = turn(key, start, finish, details)
                elif with_room and finish == "processing":
                    workers.look(tasks[key].processing_on)
                step((key, start, finish))
                # Checked for all kinds: Dask may make any transition for all its tasks at once.
                if len(steps) >= full:
                    self._hand_over()
            except Exception as error:  # no wrapper, which would cost one more call
                contain(error, drops)

        return note

    def added(self, group: Group, count: int) -> None:
        """Note that ``count`` tasks of an arriving graph are in ``group``."""
        self._steps.extend((None, group, count))
        if len(self._steps) >= AT_ONCE * _OF_STEP:
            self._hand_over()

    def count_if_quiet(self) -> None:
        """Start counting if transitions wait and none was noted since the last call.

        So a graph that arrives later need not wait until they are counted.
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
        """Count all noted transitions. On the event loop."""
        self._let_wait()
        self.count_waiting()

    def worked(self) -> int:
        """Return the number of steps so far, except those that only release a result, an exception
        or a task.

        On the event loop. It does not count the pending transitions for this.
        """
        noted = _works(self._steps, self._runs, self._ends)
        return self._worked + noted + sum(_works(*batch) for batch in tuple(self._waiting))

    def count_waiting(self) -> None:
        """Count the batches that wait. In any thread; a lock admits one thread at a time."""
        with self._counting:
            ahead = time() - monotonic()
            while self._waiting:
                steps, runs, ends = self._waiting.popleft()
                self._worked += _works(steps, runs, ends)
                self._computations.count(
                    _each(steps, _OF_STEP), _each(runs, _OF_RUN), _each(ends, _OF_END), ahead
                )


def _works(steps: list[Any], runs: list[Any], ends: list[Any]) -> int:
    """Return how many steps do more than release a result, an exception or a task."""
    finishes = steps[2::_OF_STEP]
    count = finishes.count
    # Steps from memory have neither a run nor an end.
    put_away = sum(map(count, ENDS)) - len(runs) // _OF_RUN - len(ends) // _OF_END
    if "erred" in (starts := steps[1::_OF_STEP]):
        put_away += sum(map(("erred", "released").__eq__, zip(starts, finishes, strict=True)))
    return len(steps) // _OF_STEP - put_away - count("forgotten")


def _goes_on(task: TaskState) -> bool:
    # Dask's own condition for a released task to wait again instead of being forgotten.
    return bool(task.waiters or task.who_wants) and not task.has_lost_dependencies


def _each(flat: list[Any], items: int) -> Iterator[Any]:
    """Return the content of a ``flat`` list as tuples of ``items`` items."""
    return zip(*[iter(flat)] * items, strict=True)
