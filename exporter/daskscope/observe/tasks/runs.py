"""Runs of tasks as Dask reports them, and the few runs of a group that become spans.

Work on the event loop costs several times as much as in a thread's own loop, because Dask's code
has filled the processor's caches. So the hook stores the data of a successful run as Dask reports
it, without converting it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heappush, heapreplace
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, Literal, NamedTuple

#: The actions of a run, as Dask reports them: a dictionary for each action.
StartStops = Iterable[Mapping[str, Any]] | None
#: An action of a run ("compute", "transfer", …), its start and its stop in epoch seconds.
Action = tuple[str, float, float]
#: A run that ended in memory: its end by the monotonic clock, the worker's address, bytes and type
#: of the result, and its actions.
Run = tuple[float, str | None, int | None, str | None, StartStops]

#: What Dask calls getting a task's inputs out of the worker's memory or from its disk, and storing
#: the result there, if that takes long.
DISK_READ, DISK_WRITE = "disk-read", "disk-write"
DISK_ACTIONS = frozenset({DISK_READ, DISK_WRITE})

Outcome = Literal["finished", "erred", "retried"]

_action_of = itemgetter("action", "start", "stop")


def actions_of(startstops: StartStops) -> list[Action]:
    """Return the actions of the run that ended.

    A worker that gets a task again which it still has also reports the actions of earlier runs. The
    actions of a run are in this order: transfers and reads from disk, computing, and writes of the
    result to disk.
    """
    actions = list(map(_action_of, startstops or ()))
    if len(actions) < 2:
        return actions
    computed = [place for place, (name, _, _) in enumerate(actions) if name == "compute"]
    if len(computed) < 2:
        return actions
    before, last = computed[-2:]
    return [
        action
        for place, action in enumerate(actions)
        if place >= last or (place > before and action[0] != DISK_WRITE)
    ]


class TaskSample(NamedTuple):
    """One run of a task. ``exception`` is the type that it raised, None if it finished."""

    started_at: float
    stopped_at: float
    worker: str
    outcome: Outcome
    exception: str | None


class Samples:
    """Stores at most ``places`` runs of each sort: failed ones, the slowest, and some others.

    Adding a run takes the same time for any number of runs. The others are the 1st, 2nd, 4th, 8th
    run and so on: these spread over the whole time without random numbers.
    """

    __slots__ = ("_failed", "_finished", "_others", "_places", "_slowest")

    def __init__(self, places: int) -> None:
        self._places = places
        self._finished = 0
        self._failed: list[TaskSample] = []
        self._slowest: list[tuple[float, int, TaskSample]] = []
        self._others: deque[TaskSample] = deque(maxlen=places)

    def failed(self, sample: TaskSample) -> None:
        """Add a run that raised an exception."""
        if len(self._failed) < self._places:
            self._failed.append(sample)

    def finished(self, start: float, stop: float, worker: str) -> None:
        """Add a run that finished."""
        self._finished = count = self._finished + 1
        slowest = self._slowest
        seconds = stop - start
        slow = len(slowest) < self._places or seconds > slowest[0][0]
        other = not count & (count - 1)
        if not slow and not other:
            return
        sample = TaskSample(start, stop, worker, "finished", None)
        if other:
            self._others.append(sample)
        if len(slowest) < self._places:
            heappush(slowest, (seconds, count, sample))
        elif slow:
            heapreplace(slowest, (seconds, count, sample))

    def chosen(self) -> tuple[TaskSample, ...]:
        """Return at most ``places`` runs to make spans of, the most important first.

        Failed ones come first, but two places are reserved for finished runs to compare with.
        """
        slowest = (sample for _, _, sample in sorted(self._slowest, reverse=True))
        mixed = chain.from_iterable(zip_longest(slowest, reversed(self._others)))
        finished = list(dict.fromkeys(sample for sample in mixed if sample is not None))
        most = max(self._places - 2, 1)
        return (*self._failed[:most], *finished, *self._failed[most:])[: self._places]
