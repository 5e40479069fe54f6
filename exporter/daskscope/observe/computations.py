"""Computations and their task groups, counted from the scheduler's own transitions.

A computation is what one call to compute, persist or submit set going. Dask's own ``Computation``
joins whatever is submitted while anything runs, and its task groups vanish with their last task, so
both are kept here: a graph opens a computation, or joins the running one of the same client from
the same lines of code; its tasks' transitions are counted under it until the last one is gone.
"""

from __future__ import annotations

import itertools
import uuid
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from distributed.metrics import time
from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope import protocol
from daskscope.names import DURATION_BOUNDS, OTHER
from daskscope.observe.naming import Naming
from daskscope.observe.prefixes import Prefixes, PrefixTotals

#: Groups that one computation keeps apart; the rest is joined as ``other``.
MAX_GROUPS = 200
#: Lines of code whose running computation a further graph may join.
MAX_JOINABLE = 1_000

#: States of a task that still has something to do.
ACTIVE = frozenset({"waiting", "no-worker", "queued", "processing"})


class Group:
    """The tasks of one computation that do the same thing."""

    __slots__ = (
        "completed",
        "computation",
        "dependencies",
        "durations",
        "erred",
        "longest",
        "name",
        "output_bytes",
        "prefix",
        "seconds",
        "shortest",
        "started_at",
        "states",
        "stopped_at",
        "tasks",
        "totals",
    )

    def __init__(
        self, computation: Computation, name: str, prefix: str, totals: PrefixTotals
    ) -> None:
        self.computation = computation
        self.name = name
        self.prefix = prefix
        self.totals = totals
        self.tasks = 0
        self.completed = 0
        self.erred = 0
        self.states: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.output_bytes = 0
        self.dependencies: set[str] = set()
        self.durations = [0] * (len(DURATION_BOUNDS) + 1)
        self.shortest: float | None = None
        self.longest: float | None = None
        self.started_at: float | None = None
        self.stopped_at: float | None = None

    def ended(self, finish: str, details: Mapping[str, Any], key: Hashable) -> None:
        """Count one task run that ended in memory or with an exception."""
        totals = self.totals
        if finish == "memory":
            self.completed += 1
            totals.completed += 1
            nbytes = details.get("nbytes") or 0
            self.output_bytes += nbytes
            totals.output_bytes += nbytes
        elif details.get("cause") == key:
            self.erred += 1
            totals.erred += 1
            self.computation.erred += 1
        startstops = details.get("startstops") or ()
        computed = totals.ran(startstops)
        seconds = self.seconds
        for action in startstops:
            start, stop = action["start"], action["stop"]
            seconds[action["action"]] += stop - start
            if self.started_at is None or start < self.started_at:
                self.started_at = start
            if self.stopped_at is None or stop > self.stopped_at:
                self.stopped_at = stop
        if computed is not None:
            self.durations[bisect_left(DURATION_BOUNDS, computed)] += 1
            if self.shortest is None or computed < self.shortest:
                self.shortest = computed
            if self.longest is None or computed > self.longest:
                self.longest = computed

    def row(self) -> protocol.TaskGroup:
        """Return what goes over the wire."""
        return protocol.TaskGroup(
            computation=self.computation.id,
            name=self.name,
            prefix=self.prefix,
            tasks=self.tasks,
            completed=self.completed,
            erred=self.erred,
            states={state: count for state, count in self.states.items() if count},
            seconds=dict(self.seconds),
            output_bytes=self.output_bytes,
            dependencies=tuple(sorted(self.dependencies)),
            durations=tuple(self.durations),
            shortest=self.shortest,
            longest=self.longest,
            started_at=self.started_at,
            stopped_at=self.stopped_at,
        )


class Computation:
    """One computation: its groups, how many of its tasks are still at it, and how it ended."""

    __slots__ = (
        "active",
        "ended_at",
        "erred",
        "frames",
        "groups",
        "id",
        "let_go",
        "retried",
        "spans",
        "started_at",
        "stopped_at",
        "trace_id",
        "user",
    )

    def __init__(self, user: str, frames: tuple[protocol.CodeFrame, ...], now: float) -> None:
        self.id = uuid.uuid4().hex
        self.trace_id = uuid.uuid4().hex
        self.user = user
        self.frames = frames
        self.spans: dict[str, None] = {}  # an ordered set
        self.started_at = now
        self.stopped_at: float | None = None
        # Stays when lost results set it going again.
        self.ended_at: float | None = None
        self.groups: dict[str, Group] = {}
        self.active = 0
        self.erred = 0
        self.retried = 0
        # Tasks that were given up while they still had something to do: cancelled ones.
        self.let_go = 0

    def group(self, name: str, prefix: str, prefixes: Prefixes) -> Group:
        """Return the group of that name; make it if there is none yet."""
        group = self.groups.get(name)
        if group is None:
            if len(self.groups) >= MAX_GROUPS and name != OTHER:
                return self.group(OTHER, OTHER, prefixes)
            group = self.groups[name] = Group(self, name, prefix, prefixes[prefix])
        return group

    def stop(self, now: float) -> None:
        """Note that none of its tasks has anything left to do."""
        groups = self.groups.values()
        if self.let_go and all(group.completed >= group.tasks for group in groups):
            # It was done before; what was given up is its results, lost with their workers.
            self.let_go = 0
        else:
            self.ended_at = now
        self.stopped_at = self.ended_at or now

    @property
    def status(self) -> protocol.ComputationStatus:
        """Return what became of it."""
        if self.stopped_at is None:
            return "running"
        if self.erred:
            return "erred"
        return "cancelled" if self.let_go > 0 else "finished"

    def row(self) -> protocol.Computation:
        """Return what goes over the wire."""
        states: Counter[str] = Counter()
        seconds: dict[str, float] = defaultdict(float)
        for group in self.groups.values():
            states.update(group.states)
            for action, took in group.seconds.items():
                seconds[action] += took
        return protocol.Computation(
            id=self.id,
            status=self.status,
            user=self.user,
            started_at=self.started_at,
            stopped_at=self.stopped_at,
            tasks=sum(group.tasks for group in self.groups.values()),
            completed=sum(group.completed for group in self.groups.values()),
            erred=self.erred,
            retried=self.retried,
            states={state: count for state, count in states.items() if count},
            seconds=dict(seconds),
            frames=self.frames,
            spans=tuple(self.spans),
            trace_id=self.trace_id,
        )


class _Whole:
    """One of Dask's task groups, counted as a whole under ``group``; ``counted`` tasks so far."""

    __slots__ = ("counted", "group")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.counted = 0


class Computations:
    """All computations that the scheduler still holds tasks of.

    Tasks of a collection (their keys hold a token) are found by Dask's task group, which is theirs
    alone. Tasks with keys of their own share Dask's group with all others of their prefix, across
    computations, and are found one by one. What is remembered goes when Dask forgets the task.
    """

    def __init__(self, prefixes: Prefixes, naming: Naming) -> None:
        self._prefixes = prefixes
        self._naming = naming
        # Keyed by Dask's object, not its name: a name may come back as another group.
        self._groups: dict[DaskTaskGroup, _Whole] = {}
        self._tasks: dict[Hashable, Group] = {}
        # The last computation from each line of code, to join while it runs.
        self._joinable: dict[Hashable, Computation] = {}
        self._changed: set[Group] = set()

    def graph(
        self,
        tasks: Iterable[TaskState],
        *,
        client: str,
        user: str,
        frames: tuple[protocol.CodeFrame, ...],
        spans: Iterable[str],
    ) -> None:
        """Count a graph's new tasks under a computation, its own or the running one it joins."""
        # Each with one of its tasks, which tells how it may be called.
        groups: dict[DaskTaskGroup, TaskState] = {}
        singles: list[TaskState] = []
        last = None
        for task in tasks:
            group = task.group
            if group.name == group.prefix.name:
                if task.key not in self._tasks and task.state == "released":
                    singles.append(task)
            elif group is not last:
                last = group
                known = self._groups.get(group)
                if known is not None:
                    self._count_more(group, known)
                elif group.states["released"] == len(group):
                    groups[group] = task
        if not groups and not singles:
            return
        first = next(iter(groups.values())) if groups else singles[0]
        line = (client, frames or self._naming.prefix(first))
        computation = self._joinable.get(line)
        if computation is None or not computation.active:
            computation = self._open(line, user, frames)
        computation.spans.update(dict.fromkeys(spans))
        for group, task in groups.items():
            prefix = self._naming.prefix(task)
            name = self._naming.group(group, prefix)
            ours = computation.group(name, prefix, self._prefixes)
            whole = self._groups[group] = _Whole(ours)
            self._count_more(group, whole)
        for task in singles:
            prefix = self._naming.prefix(task)
            ours = computation.group(prefix, prefix, self._prefixes)
            self._tasks[task.key] = ours
            self._add(ours, 1)
        # Once all have their names: a task may come before what it needs.
        for group, task in groups.items():
            self._groups[group].group.dependencies.update(self._needed(task, group.dependencies))
        for task in singles:
            others = {other.group for other in task.dependencies}
            self._tasks[task.key].dependencies.update(self._needed(task, others))

    def transition(
        self, task: TaskState, start: str, finish: str, details: Mapping[str, Any]
    ) -> None:
        """Count one transition. Called some six times per task, so every line counts."""
        whole = self._groups.get(task.group)
        group = self._tasks.get(task.key) if whole is None else whole.group
        if group is None:
            if start == "processing" and finish in ("memory", "erred"):
                self._ran_unknown(task, finish, details)
            return
        computation = group.computation
        states = group.states
        states[start] -= 1
        states[finish] += 1
        self._changed.add(group)
        if finish in ACTIVE:
            if start not in ACTIVE:
                computation.active += 1
                computation.stopped_at = None
                if computation.let_go:
                    computation.let_go -= 1
            return
        if start in ACTIVE:
            computation.active -= 1
            if start == "processing" and finish in ("memory", "erred"):
                group.ended(finish, details, task.key)
            elif finish in ("released", "forgotten"):
                computation.let_go += 1
                if details["stimulus_id"].startswith("task-erred"):
                    computation.retried += 1
            if not computation.active:
                computation.stop(time())
        if finish == "forgotten":
            if whole is None:
                del self._tasks[task.key]
            elif task.group.states["forgotten"] == len(task.group):
                del self._groups[task.group]

    def computation_of(self, task: TaskState) -> str | None:
        """Return the id of the computation that ``task`` is counted under."""
        whole = self._groups.get(task.group)
        group = self._tasks.get(task.key) if whole is None else whole.group
        return None if group is None else group.computation.id

    def cancel_all(self) -> None:
        """The scheduler dropped all its tasks (restart, close): what runs is cancelled."""
        now = time()
        groups = {whole.group for whole in self._groups.values()} | set(self._tasks.values())
        for computation in {group.computation for group in groups}:
            if computation.active:
                computation.let_go += computation.active
                computation.active = 0
                computation.stop(now)
                self._changed.update(computation.groups.values())
        self._groups.clear()
        self._tasks.clear()

    def changed(self) -> tuple[list[protocol.Computation], list[protocol.TaskGroup]]:
        """Return the rows that changed since the last call."""
        changed, self._changed = self._changed, set()
        computations = {group.computation.id: group.computation for group in changed}
        for computation in computations.values():
            # None of its tasks had to run: all were known, or failed with what they needed.
            if not computation.active and computation.stopped_at is None:
                computation.stopped_at = computation.started_at
        rows = [computation.row() for computation in computations.values()]
        return rows, [group.row() for group in changed]

    def _needed(self, task: TaskState, groups: Iterable[DaskTaskGroup]) -> Iterator[str]:
        # Names of the groups that task's group needs; those of shared groups task by task.
        for group in groups:
            whole = self._groups.get(group)
            if group is not task.group and whole is not None:
                yield whole.group.name
        for other in task.dependencies:
            single = self._tasks.get(other.key)
            if single is not None and other.group is not task.group:
                yield single.name

    def _count_more(self, group: DaskTaskGroup, whole: _Whole) -> None:
        count = len(group)
        if count > whole.counted:
            self._add(whole.group, count - whole.counted)
            whole.counted = count

    def _add(self, group: Group, count: int) -> None:
        group.tasks += count
        group.states["released"] += count
        self._changed.add(group)

    def _open(
        self, line: Hashable, user: str, frames: tuple[protocol.CodeFrame, ...]
    ) -> Computation:
        if len(self._joinable) >= MAX_JOINABLE:
            running = {line: known for line, known in self._joinable.items() if known.active}
            self._joinable = dict(itertools.islice(running.items(), MAX_JOINABLE // 2))
        computation = self._joinable[line] = Computation(user, frames, time())
        return computation

    def _ran_unknown(self, task: TaskState, finish: str, details: Mapping[str, Any]) -> None:
        # Tasks from before the plugin came.
        totals = self._prefixes[self._naming.prefix(task)]
        totals.ran(details.get("startstops") or ())
        if finish == "memory":
            totals.completed += 1
            totals.output_bytes += details.get("nbytes") or 0
        elif details.get("cause") == task.key:
            totals.erred += 1
