"""A computation: its groups, how many of its tasks are still at work, how it ended, and its row."""

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
from daskscope.observe.tasks.runs import TaskSample
from daskscope.observe.tasks.shares import Shares
from daskscope.observe.tasks.trace_context import TraceContext, of_computation

#: States of a task that still has something to do.
ACTIVE = frozenset({"waiting", "no-worker", "queued", "processing"})

#: Groups that one computation keeps apart; the rest is joined as ``other``.
MAX_GROUPS = 200
#: Span names that a computation keeps.
MAX_SPANS = 50
#: Computations that one is shown to have waited for in vain.
MAX_BLAMED = 10
#: The share of its tasks after which those that are left are the last few.
MOSTLY = 0.95
#: Seconds for which a loop may do something else before it submits its next task.
LOOP_PAUSE = 1.0


class Computation:
    """One computation: its groups, how many of its tasks are still at it, and how it ended.

    ``line`` says which further graphs join it while it runs, or goes on. ``caller`` is where its
    trace goes on from; ``sampled`` says whether that of an id is kept, if there is no caller.
    ``places`` is how many samples of each sort are kept of a group's tasks.
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
        #: That of its own span; None if it has none.
        self.context: TraceContext | None = None
        # No span, no samples.
        self.places = 0
        if sampled is not None:
            trace = self.trace_id = uuid.uuid4().hex if caller is None else caller.trace_id
            kept = sampled(trace) if caller is None else caller.sampled
            self.context = of_computation(self.id, trace, caller, sampled=kept)
            self.places = places if kept else 0
        self.line = line
        # A task of the last graph that joined it, as one is about to, and when that was.
        self._newest: ref[TaskState] | None = None
        self._joined_at = now
        #: Whether the last graph that joined it was one of submit or map.
        self.submitted = False
        self.user = user
        self.frames = frames
        self.spans: dict[str, None] = {}  # an ordered set
        self.annotations: dict[str, str] = {}
        self.graph_bytes: int | None = 0
        self.started_at = now
        #: What the cluster does while it runs.
        self.stretch = stretch
        #: For how long some of its tasks were seen that no worker could run, and what they ask for.
        self.unrunnable_seconds = 0.0
        self.asks: dict[str, int] = {}
        # When its first task began, once one has ended.
        self.began_at = inf
        self.stopped_at: float | None = None
        # When its last task ended.
        self.ended_at: float | None = None
        self.groups: dict[str, Group] = {}
        #: The group that joins those beyond the bound; as all others it is one of its groups.
        self.rest: Group | None = None
        #: Its groups that have changed since they were sent.
        self.changed: list[Group] = []
        #: Whether it made room, so that some have not been sent at all.
        self.dropped = False
        self.tasks = 0
        # Tasks that have something to do. Once it has ended: for results that were lost since.
        self.active = 0
        # Whether they make it run: it has begun, and has not ended.
        self.runs = False
        # Tasks that ended without a result: they raised, or what they need did.
        self.stuck = 0
        #: Those of them that never ran: what they need raised. And where that is counted, with the
        #: prefix of one that raised there.
        self.blamed = 0
        self.blames: dict[str, str] = {}
        #: Runs that ended with their workers.
        self.lost_runs = 0
        #: What each worker did for it, and when how many of its tasks had ended.
        self.shares, self.marks = Shares(), Marks()
        # Tasks that were given up while they still had something to do: cancelled ones.
        self.cancelled = 0
        # Whether it has ended: what becomes of its tasks from now on changes nothing but their
        # states. Retries by hand, and what a loop goes on to submit, open it again.
        self.over = False

    def group(self, name: str, prefix: str, prefixes: Prefixes) -> Group:
        """Return the group of that name, or the one that joins the rest; make it if need be."""
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) < MAX_GROUPS:
                group = self.groups[name] = Group(self, name, prefix, prefixes[prefix])
            else:
                if self.rest is None:
                    # A function may be called so, too.
                    self.rest = self.groups.setdefault(OTHER, Group(self, OTHER, OTHER, None))
                    self.rest.totals = None
                group = self.rest
        return group

    def joined_by(self, graph: Graph | None, newest: TaskState | None) -> None:
        """Take over what came along with one of its graphs, and one of that one's tasks, if Dask
        made any of it.
        """
        # What it is to run may be large, and Dask may forget it any time.
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
        """Return whether ``graph``, from its line, joins it whatever is yet to be counted: that can
        be judged by what its newest task is doing now.
        """
        newest = None if self._newest is None else self._newest()
        if newest is None:  # Dask has forgotten it, and how it ended is to be counted
            return False
        if newest.state in ACTIVE:
            return True
        # It may go on from when its last task ended, which was no sooner than when this one came.
        return (
            newest.state == "memory"
            and self.stopped_at is None
            and self.submitted
            and graph is not None
            and graph.submitted
            and abs(time() - self._joined_at) < LOOP_PAUSE
        )

    def may_go_on(self, now: float) -> bool:
        """Return whether it has not stopped though its tasks have ended: a loop may submit more."""
        if self.stopped_at is not None or self.runs or self.ended_at is None:
            return False
        return abs(now - self.ended_at) < LOOP_PAUSE  # a clock may be set

    def in_span(self, name: str) -> None:
        """Note that tasks of it are in the user's span of that name."""
        if len(self.spans) < MAX_SPANS:
            self.spans[name] = None

    def blame(self, group: Group | None) -> None:
        """Note a task that never ran, for one of that ``group`` raised, if it is known."""
        self.blamed += 1
        if group is not None and len(self.blames) < MAX_BLAMED:
            self.blames.setdefault(group.computation.id, group.prefix)

    def stop(self) -> None:
        """Note that it does not go on."""
        # None of its tasks had to run, if none ended: all were known, or failed with their needs.
        self.stopped_at = self.started_at if self.ended_at is None else self.ended_at
        if self.ended_at is None:
            self.stretch.end(self.started_at)

    def ends_unbegun(self, *, cancelled: bool) -> None:
        """Note that Dask could make no task of its graph, or was to make none any more."""
        self.stretch.end(self.started_at)
        self.stopped_at = self.started_at
        self.stuck, self.cancelled = (0, 1) if cancelled else (1, 0)

    @property
    def status(self) -> protocol.ComputationStatus:
        """Return what became of it."""
        if self.stopped_at is None:
            return "running"
        if self.stuck:
            return "erred"
        return "cancelled" if self.cancelled else "finished"

    def take_traced(self) -> Traced:
        """Return what to trace of it. The samples are handed out once, when it has ended."""
        samples, sent = {}, {}
        if self.places and self.stopped_at is not None:
            for group in self.groups.values():
                if group.sent_at is not None:
                    sent[group.name] = group.sent_at
                if group.samples is not None:
                    samples[group.name], group.samples = group.samples.chosen(), None
        return Traced(self.caller, samples, sent)

    def row(self) -> protocol.Computation:
        """Return what goes over the wire."""
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
        moved = None if during is None else during.moved
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
            seconds=dict(seconds),
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
        )


@dataclass(frozen=True, slots=True)
class Traced:
    """A computation's data for traces, apart from its rows: heartbeats never contain it.

    ``samples``, and when the first task was ``sent`` to a worker, are by the group's name, and
    empty until the computation has ended.
    """

    caller: TraceContext | None
    samples: Mapping[str, tuple[TaskSample, ...]]
    sent: Mapping[str, float]
