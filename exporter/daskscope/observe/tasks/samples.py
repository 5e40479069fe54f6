"""A few of a task group's runs, to become spans: failed ones, the slowest, and some others."""

from __future__ import annotations

from collections import deque
from heapq import heappush, heapreplace
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

Outcome = Literal["finished", "erred", "retried"]


class TaskSample(NamedTuple):
    """One run of a task. ``exception`` is the type of what it raised, None if it finished."""

    started_at: float
    stopped_at: float
    worker: str
    outcome: Outcome
    exception: str | None


class Samples:
    """Keeps at most ``places`` runs of each sort. Adding one takes the same time for any number.

    The others are the 1st, the 2nd, the 4th, the 8th run and so on: they spread over the whole of
    it without a die.
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
        """Return the runs that are worth a span, the weightiest first: no more than the places.

        Failed ones first, but two places are for runs to compare them with.
        """
        slowest = (sample for _, _, sample in sorted(self._slowest, reverse=True))
        mixed = chain.from_iterable(zip_longest(slowest, reversed(self._others)))
        finished = list(dict.fromkeys(sample for sample in mixed if sample is not None))
        most = max(self._places - 2, 1)
        return (*self._failed[:most], *finished, *self._failed[most:])[: self._places]
