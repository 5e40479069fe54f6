"""Assigns arriving graphs to computations, and their tasks to groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from distributed.metrics import time
from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope import protocol
from daskscope.containment import guarded
from daskscope.observe.meanwhile import Meanwhile
from daskscope.observe.naming import Naming
from daskscope.observe.tasks.computation import Computation
from daskscope.observe.tasks.computations import Computations
from daskscope.observe.tasks.graph_matching import Loops, NewTasks, new_of, to_run
from daskscope.observe.tasks.graphs import Graph
from daskscope.observe.tasks.group_index import GroupIndex, SharedGroup, is_single
from daskscope.observe.tasks.groups import Group
from daskscope.observe.tasks.prefixes import Prefixes
from daskscope.observe.tasks.trace_context import TraceContext, caller_of, carried_by


class GraphIntake:
    """Opens a computation for each graph, or adds the graph to the running one from the same line.

    A submitted graph also joins one that has just ended: a loop may be slower than its tasks.

    It runs on the event loop, while another thread may be counting transitions. So it does not
    count the new tasks itself: it calls ``added`` with a group and a number of tasks, and they are
    counted in order with the transitions. It calls ``began`` with the id of a new computation and
    of its client. ``sampled`` returns whether a trace with that id is sampled; if it is None,
    computations have no trace. With ``callers``, graphs of different traces are different
    computations. ``places`` is how many samples of each sort are stored of a group's tasks.
    """

    def __init__(
        self,
        computations: Computations,
        members: GroupIndex,
        prefixes: Prefixes,
        naming: Naming,
        drops: Counter[str],
        *,
        added: Callable[[Group, int], None],
        began: Callable[[str, str], None],
        meanwhile: Meanwhile,
        callers: bool,
        sampled: Callable[[str], bool] | None,
        places: int,
    ) -> None:
        self._callers = callers
        self._computations = computations
        self._members = members
        self._prefixes = prefixes
        self._naming = naming
        self._drops = drops
        self._added = added
        self._began = began
        self._meanwhile = meanwhile
        self._sampled = sampled
        self._places = places
        self._loops = Loops()

    def sent_by_task(self, graph: Graph) -> Graph:
        """Return a ``graph`` that a task sent, with the trace context that the task got."""
        group = self._members.group_of_key(graph.of_task)
        carried = None if group is None else group.handed_on
        return graph if carried is None else graph._replace(caller=carried_by(carried))

    def again(self, task: TaskState, client: str, graph: Graph) -> bool:
        """Add a graph of one new ``task`` quickly, if it belongs where the line's last graph did.

        Return False, and do nothing, if it may belong elsewhere or more of its tasks may be new.
        """
        singles, needed = self._members.singles, task.dependencies
        if task.state != "released" or task.key in singles:
            return False
        if needed and any(other.state == "released" for other in needed):
            return False
        loop = guarded(self._drops, None, self._loops.find, client, task, graph)
        if loop is None:
            return False
        computation, _, group, _ = loop
        computation.joined_by(graph, task)
        singles[task.key] = group
        self._added(group, 1)
        if needed:
            self._needs(group, task, {other.group for other in needed})
        return True

    def graph(
        self,
        tasks: Sequence[TaskState],
        *,
        client: str,
        user: Callable[[], str],
        frames: tuple[protocol.CodeFrame, ...],
        graph: Graph | None,
        count_first: Callable[[], None],
    ) -> None:
        """Add the tasks that a graph starts to a computation, a new one or one that it joins.

        ``user`` returns the client's user. ``count_first`` counts all pending transitions. It is
        called at most once, if their result matters; for most graphs, whose tasks are all new, it
        does not.
        """
        new = new_of(tasks, self._members)
        counted = bool(new.known) or new.replaced
        if counted:
            count_first()
            # Counting may have removed tasks that Dask has forgotten.
            new = new_of(tasks, self._members)
        again = to_run(new.known, tasks) if new.known else []
        # One task of each group, from which the group gets its name.
        firsts = [*new.groups.values(), *new.singles]
        if not (firsts or again):
            return
        # The caller's trace is part of the line: two requests of a server are two computations,
        # even if one line of code sends both.
        caller = guarded(self._drops, None, self._caller, firsts, graph)
        examples = firsts or again
        line = (client, frames or self._naming.prefix(examples[0]), caller and caller.trace_id)
        computation = None if counted else self._computations.last_from(line)
        if computation is not None and not computation.surely_takes(graph):
            count_first()
            counted = True
        if counted:
            computation = self._computations.joined_from(
                line, submitted=graph is not None and graph.submitted
            )
        if computation is None:
            computation = self._computation(client, line, user(), frames, caller)
            self._computations.arrived(computation)
        computation.joined_by(graph, examples[-1])
        again = self._take_over(again, computation)
        self._count_under(computation, new, again)
        guarded(self._drops, None, self._note_spans, computation, firsts)
        if graph is not None and len(firsts) == len(new.singles) == 1 and not again:
            (task,) = new.singles
            ours = self._members.singles[task.key]
            if ours is not computation.rest:
                remember = self._loops.remember
                guarded(self._drops, None, remember, client, task, graph, computation, ours)

    def of_no_task(
        self,
        *,
        client: str,
        user: str,
        frames: tuple[protocol.CodeFrame, ...],
        graph: Graph | None,
        cancelled: bool,
    ) -> str:
        """Add a graph of which Dask made no task. Return the computation's id.

        The graph could not be loaded or, if ``cancelled``, needs data that is gone.
        """
        caller = guarded(self._drops, None, self._caller, (), graph)
        computation = self._computation(client, (client, frames), user, frames, caller)
        computation.joined_by(graph, None)
        computation.ends_unbegun(cancelled=cancelled)
        self._computations.ended(computation)
        return computation.id

    def _computation(
        self,
        client: str,
        line: Hashable,
        user: str,
        frames: tuple[protocol.CodeFrame, ...],
        caller: TraceContext | None,
    ) -> Computation:
        computation = Computation(
            line,
            user,
            frames,
            time(),
            self._meanwhile.begin(),
            sampled=self._sampled,
            caller=caller,
            places=self._places,
        )
        self._began(computation.id, client)
        return computation

    def _caller(self, tasks: Iterable[TaskState], graph: Graph | None) -> TraceContext | None:
        if not self._callers:
            return None
        caller = caller_of(task.annotations for task in tasks)
        # Dask does not annotate tasks that it knew before.
        return graph.caller if caller is None and graph is not None else caller

    def _take_over(self, tasks: Iterable[TaskState], computation: Computation) -> list[TaskState]:
        """Return the ``tasks`` of other computations, and forget how they ended there."""
        taken = []
        for task in tasks:
            group = self._members.group_of(task)
            if group is not None and group.computation is not computation:
                taken.append(task)
        self._computations.settle(taken)
        return taken

    def _count_under(
        self, computation: Computation, new: NewTasks, again: Iterable[TaskState]
    ) -> None:
        """Count the ``new`` tasks, and those that run ``again``, under ``computation``."""
        wholes, singles = self._members.wholes, self._members.singles
        firsts: list[tuple[TaskState, Group]] = []
        for dasks, task in new.groups.items():
            whole = wholes[dasks.name] = SharedGroup(dasks, self._group_like(task, computation))
            self._count_more(whole)
            firsts.append((task, whole.group))
        apart = new.singles.copy()
        of_wholes: defaultdict[DaskTaskGroup, list[TaskState]] = defaultdict(list)
        for task in again:
            if is_single(task):
                apart.append(task)
            else:
                of_wholes[task.group].append(task)
        for dasks, alike in of_wholes.items():
            whole, ours = wholes[dasks.name], self._group_like(alike[0], computation)
            whole.elsewhere.update(dict.fromkeys([task.key for task in alike], ours))
            # Some may be new tasks in a known group.
            whole.counted += min(len(dasks) - whole.counted, len(alike))
            self._added(ours, len(alike))
            firsts.append((alike[0], ours))
        for dasks in {task.group for task in new.known if not is_single(task)}:
            self._count_more(wholes[dasks.name])
        for prefix, alike in self._naming.by_prefix(apart).items():
            ours = self._group(computation, prefix, prefix)
            singles.update(dict.fromkeys([task.key for task in alike], ours))
            self._added(ours, len(alike))
        # Only now, because all groups must exist: a task may come before the tasks that it needs.
        for task, ours in firsts:
            self._needs(ours, task, task.group.dependencies)
        for task in apart:
            if task.dependencies:
                self._needs(singles[task.key], task, {other.group for other in task.dependencies})

    def _count_more(self, whole: SharedGroup) -> None:
        count = len(whole.dasks)
        if count > whole.counted:
            self._added(whole.group, count - whole.counted)
            whole.counted = count

    def _group_like(self, task: TaskState, computation: Computation) -> Group:
        prefix = self._naming.prefix(task)
        group = self._group(computation, self._naming.group(task.group, prefix), prefix)
        # The tasks that are joined beyond the bound have several names.
        group.tokenized = group is not computation.rest and self._naming.is_tokenized(task.group)
        return group

    def _group(self, computation: Computation, name: str, prefix: str) -> Group:
        group = computation.group(name, prefix, self._prefixes)
        if group is computation.rest:
            self._drops["task group"] += 1
        return group

    def _needs(self, ours: Group, task: TaskState, groups: Iterable[DaskTaskGroup]) -> None:
        for name in self._needed(task, groups):
            if not ours.needs(name):
                self._drops["dependency"] += 1

    def _needed(self, task: TaskState, groups: Iterable[DaskTaskGroup]) -> Iterator[str]:
        # Names of the groups that the task's group needs. Tasks with keys of their own are looked
        # up one by one.
        for dasks in groups:
            whole = self._members.wholes.get(dasks.name)
            if dasks is not task.group and whole is not None:
                yield whole.group.name
        for other in task.dependencies:
            single = self._members.singles.get(other.key)
            if single is not None and other.group is not task.group:
                yield single.name

    @staticmethod
    def _note_spans(computation: Computation, tasks: Iterable[TaskState]) -> None:
        for task in tasks:
            span = task.annotations and task.annotations.get("span")
            if span:
                name = " / ".join(map(str, span.get("name", ())))[: protocol.MAX_NAME]
                if name and name != "default":
                    computation.in_span(name)
