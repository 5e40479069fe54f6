"""One computation: its groups, how many of its tasks are active, how it ended, and its row."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from weakref import ref

from distributed.metrics import time
from distributed.scheduler import TaskState

from daskscope import protocol
from daskscope.names import OTHER
from daskscope.observe.meanwhile import Most, Stretch
from daskscope.observe.tasks.graphs import MAX_ANNOTATIONS, Graph
from daskscope.observe.tasks.groups import Group, finite
from daskscope.observe.tasks.marks import Marks
from daskscope.observe.tasks.prefixes import Prefixes
from daskscope.observe.tasks.runs import DISK_ACTIONS, DISK_READ, DISK_WRITE, TaskSample
from daskscope.observe.tasks.shares import Shares
from daskscope.observe.tasks.trace_context import TraceContext, of_computation

#: States of a task that still has to run: an active task.
ACTIVE = frozenset({"waiting", "no-worker", "queued", "processing"})

#: Groups that a computation counts separately; all others are joined as ``other``.
MAX_GROUPS = 200
#: Span names that a computation stores.
MAX_SPANS = 50
#: Computations whose failures a computation is shown to depend on.
MAX_BLAMED = 10
#: The share of ended tasks from which a computation counts as mostly done.
MOSTLY = 0.95
#: Seconds that a loop may pause before it submits its next task to the same computation.
LOOP_PAUSE = 1.0


class Computation:
    """One computation: its groups, how many of its tasks are active, and how it ended.

    Graphs from the same ``line`` join it while it runs or may resume. ``caller`` is the parent of
    its span. Without a caller, ``sampled`` decides whether a trace with that id is sampled.
    ``places`` is how many samples of each sort are stored of a group's tasks.
    """

    __slots__ = (
        "_joined_at",
        "_newest",
        "active",
        "annotations",
        "asks",
        "began_at",
        "blamed",
        "blames",
        "caller",
        "cancelled",
        "changed",
        "completed_later",
        "context",
        "dropped",
        "ended_at",
        "frames",
        "graph_bytes",
        "groups",
        "id",
        "line",
        "lost_runs",
        "marks",
        "over",
        "places",
        "rest",
        "runs",
        "seconds_later",
        "shares",
        "spans",
        "started_at",
        "stopped_at",
        "stretch",
        "stuck",
        "submitted",
        "tasks",
        "trace_id",
        "unrunnable_seconds",
        "user",
    )

    def __init__(
        self,
        line: Hashable,
        user: str,
        frames: tuple[protocol.CodeFrame, ...],
        now: float,
        stretch: Stretch,
        *,
        sampled: Callable[[str], bool] | None,
        caller: TraceContext | None,
        places: int,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.caller = caller
        self.trace_id: str | None = None
        #: The context of its own span; None if it has no span.
        self.context: TraceContext | None = None
        # Without a span there are no samples.
        self.places = 0
        if sampled is not None:
            trace = self.trace_id = uuid.uuid4().hex if caller is None else caller.trace_id
            kept = sampled(trace) if caller is None else caller.sampled
            self.context = of_computation(self.id, trace, caller, sampled=kept)
            self.places = places if kept else 0
        self.line = line
        # A task of the last graph that joined it, or is about to join it, and when it did.
        self._newest: ref[TaskState] | None = None
        self._joined_at = now
        #: Whether the last graph that joined it came from submit or map.
        self.submitted = False
        self.user = user
        self.frames = frames
        self.spans: dict[str, None] = {}  # an ordered set
        self.annotations: dict[str, str] = {}
        self.graph_bytes: int | None = 0
        self.started_at = now
        #: The cluster's activity while the computation runs.
        self.stretch = stretch
        #: Seconds in which some of its tasks could run on no worker, and what these tasks require.
        self.unrunnable_seconds = 0.0
        self.asks: dict[str, int] = {}
        # When its first task began; known once a task has ended.
        self.began_at = inf
        self.stopped_at: float | None = None
        # When its last task ended.
        self.ended_at: float | None = None
        self.groups: dict[str, Group] = {}
        #: The group that joins the groups beyond the bound. It is one of ``groups``, too.
        self.rest: Group | None = None
        #: The groups that have changed since they were sent.
        self.changed: list[Group] = []
        #: Whether it was dropped from the queue, so that some groups have never been sent.
        self.dropped = False
        self.tasks = 0
        # Active tasks. Once it has ended: those that compute lost results again.
        self.active = 0
        # Whether it runs: it has begun and has not ended.
        self.runs = False
        # Tasks that ended without a result: they raised, or a task that they need did.
        self.stuck = 0
        #: How many of these never ran, because a task that they need raised. And, by the id of the
        #: computation of that task, the prefix of one that raised there.
        self.blamed = 0
        self.blames: dict[str, str] = {}
        #: Task runs until its end that ended because their worker was lost.
        self.lost_runs = 0
        #: Runs that ended in memory after it had ended, and the seconds of all runs since then.
        self.completed_later, self.seconds_later = 0, 0.0
        #: The part of each worker, and the number of ended tasks over time.
        self.shares, self.marks = Shares(), Marks()
        # Cancelled tasks: those that were given up while they were active.
        self.cancelled = 0
        # Whether it has ended. From then on only the states of its tasks change. Retries by the
        # user, and further tasks of the same loop, reopen it.
        self.over = False

    def group(self, name: str, prefix: str, prefixes: Prefixes) -> Group:
        """Return the group of that name, or the one that joins the rest. Create it if necessary."""
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) < MAX_GROUPS:
                group = self.groups[name] = Group(self, name, prefix, prefixes[prefix])
            else:
                if self.rest is None:
                    # A function may have the same name.
                    self.rest = self.groups.setdefault(OTHER, Group(self, OTHER, OTHER, None))
                    self.rest.totals = None
                group = self.rest
        return group

    def joined_by(self, graph: Graph | None, newest: TaskState | None) -> None:
        """Store the data of a graph that joins it. ``newest`` is one of the graph's tasks."""
        # A weak reference: the task may be large, and Dask may forget it at any time.
        self._newest = None if newest is None else ref(newest)
        self._joined_at = time()
        self.submitted = graph is not None and graph.submitted
        if graph is None or graph.nbytes is None or self.graph_bytes is None:
            self.graph_bytes = None
        else:
            self.graph_bytes += graph.nbytes
        if graph is not None and graph.annotations:
            for name, text in graph.annotations.items():
                if name in self.annotations or len(self.annotations) < MAX_ANNOTATIONS:
                    self.annotations[name] = text

    def surely_takes(self, graph: Graph | None) -> bool:
        """Return whether ``graph``, from the same line, joins it, without counting first.

        The current state of its newest task decides this.
        """
        newest = None if self._newest is None else self._newest()
        if newest is None:  # Dask has forgotten it; how it ended is not counted yet
            return False
        if newest.state in ACTIVE:
            return True
        # The pause is counted from its last task's end, which cannot be before the last graph
        # joined.
        return (
            newest.state == "memory"
            and self.stopped_at is None
            and self.submitted
            and graph is not None
            and graph.submitted
            and abs(time() - self._joined_at) < LOOP_PAUSE
        )

    def may_go_on(self, now: float) -> bool:
        """Return whether it may resume although its tasks have ended: a loop may submit more."""
        if self.stopped_at is not None or self.runs or self.ended_at is None:
            return False
        return abs(now - self.ended_at) < LOOP_PAUSE  # abs: the clock may be set back

    def in_span(self, name: str) -> None:
        """Note that tasks of it are in Dask's span of that name."""
        if len(self.spans) < MAX_SPANS:
            self.spans[name] = None

    def blame(self, group: Group | None) -> None:
        """Note a task that never ran because one of ``group`` raised; None if that is not known."""
        self.blamed += 1
        if group is not None and len(self.blames) < MAX_BLAMED:
            self.blames.setdefault(group.computation.id, group.prefix)

    def stop(self) -> None:
        """Note that it will not resume."""
        # If no task ended, none had to run: all had results, or failed because of what they need.
        self.stopped_at = self.started_at if self.ended_at is None else self.ended_at
        if self.ended_at is None:
            self.stretch.end(self.started_at)

    def ends_unbegun(self, *, cancelled: bool) -> None:
        """Note that it ends without a task: its graph could not be loaded, or was cancelled."""
        self.stretch.end(self.started_at)
        self.stopped_at = self.started_at
        self.stuck, self.cancelled = (0, 1) if cancelled else (1, 0)

    @property
    def status(self) -> protocol.ComputationStatus:
        """The status to report."""
        if self.stopped_at is None:
            return "running"
        if self.stuck:
            return "erred"
        return "cancelled" if self.cancelled else "finished"

    def take_traced(self) -> Traced:
        """Return its data for traces. The samples are returned once, when it has ended."""
        samples, sent = {}, {}
        if self.places and self.stopped_at is not None:
            for group in self.groups.values():
                if group.sent_at is not None:
                    sent[group.name] = group.sent_at
                if group.samples is not None:
                    samples[group.name], group.samples = group.samples.chosen(), None
        return Traced(self.caller, samples, sent)

    def by_action(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return ``seconds`` of its tasks by action, as disk time only if there was any.

        Dask reports every look for the inputs in a worker's memory that takes more than 5 ms as
        reading from disk, as that of a task with thousands of them, and likewise for the result.
        """
        named = dict(seconds)
        during = self.stretch.during() if DISK_ACTIONS & named.keys() else None
        if during is not None and during.moved is not None:
            for action, moved in (
                (DISK_READ, during.moved.unspilled),
                (DISK_WRITE, during.moved.spilled),
            ):
                if not moved and action in named:
                    named[OTHER] = named.get(OTHER, 0.0) + named.pop(action)
        return named

    def row(self) -> protocol.Computation:
        """Return the row to send."""
        states: Counter[str] = Counter()
        seconds: dict[str, float] = defaultdict(float)
        completed = erred = retried = largest_output = first_runs = 0
        first_seconds = 0.0
        for group in self.groups.values():
            largest_output = max(largest_output, group.largest_output)
            first_runs += group.first_runs
            first_seconds += group.first_seconds
            completed += group.completed
            erred += group.erred
            retried += group.retried
            for state, count in group.states.items():
                states[state] += count
            for action, took in group.seconds.items():
                seconds[action] += took
        ended_at = None if self.runs else self.stopped_at or self.ended_at
        mostly_done_at = None if ended_at is None else self.marks.when(MOSTLY) or ended_at
        during = self.stretch.during()
        spent = None if during is None else during.spent
        moved = self.stretch.moved(self.shares.workers())
        most = Most() if during is None else during.most
        return protocol.Computation(
            id=self.id,
            status=self.status,
            user=self.user,
            started_at=self.started_at,
            stopped_at=self.stopped_at,
            tasks=self.tasks,
            completed=completed,
            erred=erred,
            retried=retried,
            cancelled=self.cancelled,
            states={state: count for state, count in states.items() if count},
            seconds=self.by_action(seconds),
            frames=self.frames,
            spans=tuple(self.spans),
            trace_id=self.trace_id,
            annotations=dict(self.annotations),
            graph_bytes=self.graph_bytes,
            ended_at=ended_at,
            lost_runs=self.lost_runs,
            blamed=self.blamed,
            blames=dict(self.blames),
            began_at=finite(self.began_at),
            mostly_done_at=mostly_done_at,
            largest_output=largest_output,
            first_runs=first_runs,
            first_seconds=first_seconds,
            workers=len(self.shares),
            worker_shares=self.shares.rows(),
            worker_seconds={} if spent is None else spent.by_state(),
            spilled_bytes=None if moved is None else int(moved.spilled),
            unspilled_bytes=None if moved is None else int(moved.unspilled),
            transferred_bytes=None if moved is None else int(moved.sent),
            loop_interval=most.loop_interval,
            heartbeat_age=most.silence,
            host_load=most.host_load,
            unrunnable_seconds=self.unrunnable_seconds,
            asks=dict(self.asks),
            completed_later=self.completed_later,
            seconds_later=self.seconds_later,
        )


@dataclass(frozen=True, slots=True)
class Traced:
    """A computation's data for traces, which heartbeats never contain.

    ``samples``, and when the first task was ``sent`` to a worker, are by group name. Both are empty
    until the computation has ended.
    """

    caller: TraceContext | None
    samples: Mapping[str, tuple[TaskSample, ...]]
    sent: Mapping[str, float]
