"""Takes snapshots of all counters, in steps and parts that do not block the event loop for long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace

from distributed.metrics import monotonic, time
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.containment import guarded
from daskscope.observe.cluster.cluster import Cluster
from daskscope.observe.errors.failures import Failures
from daskscope.observe.meanwhile import Meanwhile
from daskscope.observe.messages.events import Events
from daskscope.observe.messages.logs import Logs
from daskscope.observe.snapshot import Observed, Snapshot
from daskscope.observe.tasks.code import CodeOfGraphs
from daskscope.observe.tasks.computations import Computations
from daskscope.observe.tasks.prefixes import Prefixes
from daskscope.observe.tasks.stream import Stream
from daskscope.observe.workers.activities import Activities
from daskscope.observe.workers.losses import Losses
from daskscope.observe.workers.metrics import WorkerMetrics
from daskscope.observe.workers.profile import Computed, Profiles
from daskscope.observe.workers.sample_weights import Window
from daskscope.observe.workers.workers import Workers

#: Task group rows in the snapshot with the totals, and in each part that follows it. Between the
#: parts the event loop handles other work.
FEW_ROWS, SOME_ROWS = 50, 100
#: Rows of failures that take as much work as one row of a task group.
FAILURES_PER_ROW = 2


@dataclass(frozen=True, slots=True)
class Counters:
    """Everything that a snapshot contains.

    ``profiles`` and ``stream`` are None if the settings forbid them.
    """

    computations: Computations
    prefixes: Prefixes
    workers: Workers
    worker_metrics: WorkerMetrics
    activities: Activities
    cluster: Cluster
    meanwhile: Meanwhile
    failures: Failures
    events: Events
    losses: Losses
    code: CodeOfGraphs
    logs: Logs
    profiles: Profiles | None
    stream: Stream | None


class SnapshotMaker:
    """Takes snapshots of ``counters``. Not thread-safe.

    ``begin`` is called before a snapshot. ``count_first`` is called before each step and counts all
    pending transitions.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        counters: Counters,
        drops: Counter[str],
        *,
        begin: Callable[[protocol.Phase], None],
        count_first: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._drops = drops
        self._begin = begin
        self._count_first = count_first
        self._hook_seconds = 0.0
        # When the totals of the last snapshot ended, by the monotonic clock.
        self._ended_at = monotonic()
        # The last snapshot without its rows.
        self._start: Observed | None = None
        self._computed = Computed({}, {})
        #: Whether observation has stopped, so that the next snapshot is the last.
        self.is_last = False

    def rows_wait(self) -> bool:
        """Return whether there are rows to send that were not in the last snapshot."""
        counters = self._counters
        return bool(
            counters.computations.waiting()
            or counters.failures.waiting()
            or counters.losses.many_wait()
        )

    def steps(self, phase: protocol.Phase) -> Generator[None, None, Observed]:
        """Take a snapshot in steps, and return it: with many workers each step takes a while.

        Take one snapshot at a time. Each row is in one snapshot only. It may not contain all rows:
        see :meth:`rows_wait` and :meth:`rest`.
        """
        steps = self._steps(phase)
        while True:
            began = time()
            try:
                self._count_first()
                next(steps)
            except StopIteration as end:
                observed: Observed = end.value
                return observed
            finally:
                self._hook_seconds += time() - began
            yield

    def whole(self, phase: protocol.Phase) -> Observed:
        """Take a snapshot at once."""
        steps = self.steps(phase)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                observed: Observed = end.value
                return observed

    def rest(self, phase: protocol.Phase) -> Observed:
        """Return more rows, with the totals of the last snapshot."""
        if self._start is None:
            return self.whole(phase)
        began = time()
        self._count_first()
        start = replace(self._start, phase=phase, drops=dict(self._drops))
        observed = self._with_rows(start, SOME_ROWS, any_row=True)
        self._hook_seconds += time() - began
        return observed

    def profile_window(self, *, leaving: Collection[str] | None = None) -> Window | None:
        """Return the part of the workers' profile to read now; see :meth:`.Profiles.window`."""
        if self._counters.profiles is None:
            return None
        began = time()
        if leaving is not None and len(leaving) == len(self._scheduler.workers):
            # The last snapshot may be old, and there is no next one.
            self._count_first()
            self._computed = self._computed_now()
        window = self._counters.profiles.window(self._computed, leaving=leaving)
        self._hook_seconds += time() - began
        return window

    def _computed_now(self) -> Computed:
        # In any order, see below.
        workers = dict.values(self._scheduler.workers)
        counters = self._counters
        return Computed(counters.prefixes.compute_seconds(), counters.workers.unreported(workers))

    def _steps(self, phase: protocol.Phase) -> Generator[None, None, Observed]:
        self._begin(phase)
        counters = self._counters
        compute_seconds = counters.prefixes.compute_seconds()
        # Read before the running tasks: a task that ends between the steps is missing for a while,
        # which is better than counted twice.
        measured = counters.worker_metrics.read(counters.workers.took_elsewhere())
        yield
        # dict.values: Dask itself iterates by address, which takes several times as long.
        dasks = tuple(dict.values(self._scheduler.workers))
        workers = yield from counters.workers.totals(dasks)
        now, ends_at = time(), monotonic()
        yield
        computed = compute_seconds if phase == "stop" else None
        times = counters.activities.times(workers, measured, computed)
        prefixes = counters.prefixes.rows()
        yield
        state: Observed = Snapshot(
            phase=phase,
            cluster=counters.cluster.row(),
            status=counters.cluster.status(
                workers, times.by_state, now, now if phase == "stop" else None
            ),
            workers=workers,
            prefixes=prefixes,
            times=times.rows,
            measured=measured,
            computations_running=counters.computations.running(),
            exceptions=counters.failures.by_type(),
            events_by_topic=counters.events.by_topic(),
            losses_by_reason=counters.losses.by_reason(),
            drops=dict(self._drops),
            hook_seconds=self._hook_seconds,
            most=counters.meanwhile.most_between(self._ended_at, ends_at),
        )
        self._ended_at = ends_at
        self._start = state
        self._computed = Computed(compute_seconds, workers.unreported)
        yield
        return replace(self._with_rows(state, FEW_ROWS, any_row=False), activities=times.changed)

    def _with_rows(self, state: Observed, most: int, *, any_row: bool) -> Observed:
        counters, profiles = self._counters, self._counters.profiles
        stream = counters.stream
        computations, task_groups, traced = counters.computations.changed(most, any_row=any_row)
        left = most - len(task_groups)
        return replace(
            state,
            computations=tuple(computations),
            task_groups=tuple(task_groups),
            traced=traced,
            failures=tuple(counters.failures.changed(max(left, 1) * FAILURES_PER_ROW)),
            worker_losses=guarded(self._drops, (), counters.losses.take, last=self.is_last),
            events=guarded(self._drops, (), counters.events.take),
            code=guarded(self._drops, (), counters.code.take),
            logs=guarded(self._drops, (), counters.logs.take),
            profiles=() if profiles is None else guarded(self._drops, (), profiles.take),
            task_streams=() if stream is None else guarded(self._drops, (), stream.take),
        )
