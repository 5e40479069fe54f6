"""Totals by task prefix, for the metrics. They only grow."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from daskscope.names import DURATION_BOUNDS
from daskscope.observe.naming import Naming
from daskscope.observe.tasks.runs import Outcome, StartStops, actions_of
from daskscope.observe.tasks.stream import Stream

#: Pairs of a prefix and a worker that are remembered, each some 100 bytes. Beyond it no run counts
#: as the first.
MAX_FIRST_RUNS = 20_000


class FirstRuns:
    """Stores which prefixes each worker has run. A worker's first run of a prefix may be slower,
    because it imports, compiles or connects first.
    """

    def __init__(self) -> None:
        self._prefixes_of: dict[str, set[PrefixTotals]] = {}
        self._room = MAX_FIRST_RUNS

    def is_first(self, worker: str, prefix: PrefixTotals) -> bool:
        """Return whether this is the first run of ``prefix`` on ``worker``, and remember it."""
        prefixes = self._prefixes_of.get(worker)
        if prefixes is None:
            prefixes = self._prefixes_of[worker] = set()
        elif prefix in prefixes:
            return False
        if self._room <= 0:
            return False
        self._room -= 1
        prefixes.add(prefix)
        return True

    def left(self, worker: str) -> None:
        """Forget a worker that has left."""
        self._room += len(self._prefixes_of.pop(worker, ()))


class PrefixTotals:
    """The totals of the tasks of one prefix. All prefixes share ``first_runs`` and ``stream``.

    ``name`` is the name that is sent; ``stream`` is None if the task stream is not sent.
    """

    __slots__ = (
        "completed",
        "compute_seconds",
        "duration_seconds",
        "durations",
        "erred",
        "first_runs",
        "name",
        "output_bytes",
        "retried",
        "seconds",
        "stream",
    )

    def __init__(self, name: str, first_runs: FirstRuns, stream: Stream | None) -> None:
        self.name = name
        self.first_runs = first_runs
        self.stream = stream
        self.completed = 0
        self.erred = 0
        self.retried = 0
        self.output_bytes = 0
        self.seconds: dict[str, float] = {}
        # Of finished runs. Per bucket, not cumulative; the last bucket is above all bounds.
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)
        self.duration_seconds = 0.0
        # Of all runs.
        self.compute_seconds = 0.0

    def ran(self, startstops: StartStops, worker: str | None, outcome: Outcome) -> None:
        """Add the actions of one run of a task."""
        seconds = self.seconds
        actions = actions_of(startstops)
        if self.stream is not None:
            self.stream.ran(worker, self.name, actions, outcome)
        for name, start, stop in actions:
            took = stop - start
            seconds[name] = seconds.get(name, 0.0) + took
            if name == "compute":
                self.compute_seconds += took
                if outcome == "finished":
                    self.duration_seconds += took
                    self.durations[bisect_left(DURATION_BOUNDS, took)] += 1


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """The totals of one prefix at one moment.

    ``durations`` is as in ``protocol.TaskGroup``; ``duration_seconds`` is the sum of the durations.
    """

    prefix: str
    completed: int
    erred: int
    retried: int
    output_bytes: int
    seconds: dict[str, float]
    durations: tuple[int, ...]
    duration_seconds: float


class Prefixes:
    """Totals of all prefixes that ``naming`` counts separately."""

    def __init__(self, naming: Naming, stream: Stream | None) -> None:
        self._naming = naming
        self._stream = stream
        self._totals: dict[str, PrefixTotals] = {}
        self._first_runs = FirstRuns()

    def __getitem__(self, prefix: str) -> PrefixTotals:
        name = self._naming.sendable(prefix)
        totals = self._totals.get(name)
        if totals is None:
            # Another thread may do the same at this moment.
            totals = PrefixTotals(name, self._first_runs, self._stream)
            totals = self._totals.setdefault(name, totals)
        return totals

    def worker_removed(self, address: str) -> None:
        """Forget what a worker has run. All transitions must have been counted."""
        self._first_runs.left(address)

    def compute_seconds(self) -> dict[str, float]:
        """Return the compute seconds of all task runs that have ended, by name."""
        return {name: totals.compute_seconds for name, totals in self._totals.items()}

    def rows(self) -> tuple[PrefixRow, ...]:
        """Return the totals as they are now."""
        return tuple(
            PrefixRow(
                prefix,
                totals.completed,
                totals.erred,
                totals.retried,
                totals.output_bytes,
                dict(totals.seconds),
                tuple(totals.durations),
                totals.duration_seconds,
            )
            for prefix, totals in self._totals.items()
        )
