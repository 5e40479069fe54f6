"""A task group of a computation: its counters, and its row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from distributed.metrics import time
from distributed.scheduler import ALL_TASK_STATES

from daskscope import protocol
from daskscope.names import DURATION_BOUNDS, OTHER
from daskscope.observe.errors.exception_types import type_of_failed
from daskscope.observe.tasks.prefixes import PrefixTotals
from daskscope.observe.tasks.runs import (
    Action,
    Outcome,
    Run,
    Samples,
    StartStops,
    TaskSample,
    actions_of,
)
from daskscope.observe.tasks.trace_context import of_group, to_carry

if TYPE_CHECKING:
    from daskscope.observe.tasks.computation import Computation

#: Types of results that a group counts separately; all others are counted as ``other``.
MAX_TYPES = 10
#: Dependencies that a group stores; all others are joined as ``other``.
MAX_DEPENDENCIES = 100


class Group:
    """The tasks of one computation that do the same thing.

    ``totals`` are those of its prefix; None if its tasks have several prefixes.
    """

    __slots__ = (
        "changed",
        "completed",
        "computation",
        "dependencies",
        "durations",
        "erred",
        "first_runs",
        "first_seconds",
        "handed_on",
        "largest_output",
        "longest",
        "name",
        "output_bytes",
        "prefix",
        "retried",
        "samples",
        "seconds",
        "sent_at",
        "shortest",
        "started_at",
        "states",
        "stopped_at",
        "tasks",
        "tokenized",
        "totals",
        "types",
        "usual_runs",
        "usual_seconds",
    )

    def __init__(
        self, computation: Computation, name: str, prefix: str, totals: PrefixTotals | None
    ) -> None:
        self.computation = computation
        self.name = name
        self.prefix = prefix
        self.totals = totals
        self.changed = False
        #: Whether Dask's name of the group ends with its token of the inputs.
        self.tokenized = False
        self.tasks = 0
        self.completed = 0
        self.erred = 0
        self.retried = 0
        self.states: dict[str, int] = dict.fromkeys(ALL_TASK_STATES, 0)
        self.seconds: dict[str, float] = {}
        self.output_bytes = self.largest_output = 0
        # Runs that were the first of their prefix on a worker, and their compute seconds.
        self.first_runs, self.first_seconds = 0, 0.0
        # All other finished runs, from which the usual duration follows.
        self.usual_runs, self.usual_seconds = 0, 0.0
        self.types: dict[str, int] = {}
        self.dependencies: dict[str, None] = {}  # an ordered set
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)
        # Infinite until the first run.
        self.shortest, self.longest = inf, -inf
        self.started_at, self.stopped_at = inf, -inf
        #: Annotations that carry a trace context to its tasks: the context of its span or, if no
        #: spans are sent, of its computation's caller; None if there is neither.
        self.handed_on = _handed_on(computation, name)
        #: When the first of its tasks was sent to a worker with these annotations.
        self.sent_at: float | None = None
        # None if no samples are wanted, or if they have been taken.
        self.samples = Samples(computation.places) if computation.places else None

    def needs(self, name: str) -> bool:
        """Note a group that it depends on. Return False if that is counted as ``other``."""
        dependencies = self.dependencies
        if name in dependencies or len(dependencies) < MAX_DEPENDENCIES:
            dependencies[name] = None
            return True
        dependencies[OTHER] = None
        return False

    def finished(self, run: Run, totals: PrefixTotals) -> None:
        """Count one task run that ended in memory, also in the ``totals`` of its prefix."""
        _, worker, nbytes, kind, startstops = run
        computation = self.computation
        # What runs again after its computation's end must not change what the computation took.
        over = computation.over
        totals.completed += 1
        if nbytes:
            totals.output_bytes += nbytes
        if over:
            computation.completed_later += 1
        else:
            self.completed += 1
            if nbytes:
                self.output_bytes += nbytes
                if nbytes > self.largest_output:
                    self.largest_output = nbytes
            if kind is not None:
                types = self.types
                if kind not in types:
                    kind = kind[: protocol.MAX_NAME] if len(types) < MAX_TYPES else OTHER
                types[kind] = types.get(kind, 0) + 1
        computed = self._ran(startstops, worker, "finished", totals)
        if computed is None:
            return
        _, start, stop = computed
        took = stop - start
        bucket = bisect_left(DURATION_BOUNDS, took)
        totals.durations[bucket] += 1
        totals.duration_seconds += took
        first = worker is not None and totals.first_runs.is_first(worker, totals)
        if over:
            return
        self.durations[bucket] += 1
        if took < self.shortest:
            self.shortest = took
        if took > self.longest:
            self.longest = took
        if worker is not None:
            usual = self.usual_seconds / self.usual_runs if self.usual_runs else took
            computation.shares.ran(worker, took, usual)
        if first:
            self.first_runs += 1
            self.first_seconds += took
        else:
            self.usual_runs += 1
            self.usual_seconds += took
        if self.samples is not None:
            self.samples.finished(start, stop, worker or "")

    def failed(self, details: Mapping[str, Any], totals: PrefixTotals) -> None:
        """Count one task run that ended with an exception."""
        if not self.computation.over:
            self.erred += 1
        totals.erred += 1
        self._raised("erred", details, totals)

    def failed_for_now(self, details: Mapping[str, Any], totals: PrefixTotals) -> None:
        """Count one task run that ended with an exception and that Dask will repeat."""
        if not self.computation.over:
            self.retried += 1
        totals.retried += 1
        self._raised("retried", details, totals)

    def retried_by_hand(self) -> None:
        """Count a run that was counted as :meth:`failed` as repeated on someone's request."""
        self.erred -= 1
        self.retried += 1

    def _raised(self, outcome: Outcome, details: Mapping[str, Any], totals: PrefixTotals) -> None:
        worker = details.get("worker") or ""
        computed = self._ran(details.get("startstops"), worker, outcome, totals)
        if computed is not None and worker and not self.computation.over:
            # How long it took before it failed says nothing about the worker: it counts as usual.
            took = computed[2] - computed[1]
            self.computation.shares.ran(worker, took, took)
        if self.samples is not None and not self.computation.over:
            # A task whose workers died has no start and stop times.
            now = time()
            _, start, stop = computed or ("", now, now)
            exception = type_of_failed(details)
            self.samples.failed(TaskSample(start, stop, worker, outcome, exception))

    def _ran(
        self, startstops: StartStops, worker: str | None, outcome: Outcome, totals: PrefixTotals
    ) -> Action | None:
        """Count the actions of one run. Return its "compute" action, if it has one."""
        computation, of_prefix = self.computation, totals.seconds
        computed = None
        actions = actions_of(startstops)
        if totals.stream is not None:
            totals.stream.ran(worker, totals.name, actions, outcome)
        for action in actions:
            name, start, stop = action
            took = stop - start
            of_prefix[name] = of_prefix.get(name, 0.0) + took
            if name == "compute":
                computed = action
                totals.compute_seconds += took
            if computation.over:
                computation.seconds_later += took
                continue
            self.seconds[name] = self.seconds.get(name, 0.0) + took
            if start < self.started_at:
                self.started_at = start
                if start < computation.began_at:
                    computation.began_at = start
            if stop > self.stopped_at:
                self.stopped_at = stop
        return computed

    def row(self) -> protocol.TaskGroup:
        """Return the row to send."""
        return protocol.TaskGroup(
            computation=self.computation.id,
            name=self.name,
            prefix=self.prefix,
            tasks=self.tasks,
            completed=self.completed,
            erred=self.erred,
            retried=self.retried,
            states={state: count for state, count in self.states.items() if count},
            seconds=self.computation.by_action(self.seconds),
            output_bytes=self.output_bytes,
            types=dict(self.types),
            dependencies=tuple(self.dependencies),
            durations=tuple(self.durations),
            shortest=finite(self.shortest),
            longest=finite(self.longest),
            started_at=finite(self.started_at),
            stopped_at=finite(self.stopped_at),
            largest_output=self.largest_output,
            first_runs=self.first_runs,
            first_seconds=self.first_seconds,
            tokenized=self.tokenized,
        )


def _handed_on(computation: Computation, name: str) -> dict[str, str] | None:
    if computation.context is not None:
        return to_carry(of_group(computation.context, name))
    return None if computation.caller is None else to_carry(computation.caller)


def finite(value: float) -> float | None:
    """Return ``value``, or None if it is infinite, because there was none yet."""
    return value if isfinite(value) else None
