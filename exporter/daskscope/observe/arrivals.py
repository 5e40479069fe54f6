"""Graphs that arrive: which computation each belongs to, and which group each of its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from distributed.metrics import time
from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope import protocol
from daskscope.observe.computations import Computations
from daskscope.observe.graphs import Graph
from daskscope.observe.groups import Computation, Group
from daskscope.observe.loops import Loops
from daskscope.observe.membership import Membership, Whole
from daskscope.observe.naming import Naming
from daskscope.observe.prefixes import Prefixes
from daskscope.observe.trace_context import caller_of, hand_on


class Arrivals:
    """Opens a computation for each graph, or has it join the running one from the same line.

    Runs on the event loop, while another thread may be counting transitions. What is counted waits
    until the graph's place among them has come: ``added`` notes that some tasks are in a group.

    ``sampled`` says whether a trace of that id is kept; without it computations have no trace.
    ``places`` is how many samples of each sort are kept of a group's tasks.
    """

    def __init__(
        self,
        computations: Computations,
        members: Membership,
        prefixes: Prefixes,
        naming: Naming,
        drops: Counter[str],
        *,
        added: Callable[[Group, int], None],
        sampled: Callable[[str], bool] | None,
        places: int,
    ) -> None:
        self._computations = computations
        self._members = members
        self._prefixes = prefixes
        self._naming = naming
        self._drops = drops
        self._added = added
        self._sampled = sampled
        self._places = places
        self._loops = Loops()

    def again(self, task: TaskState, client: str, graph: Graph) -> bool:
        """Take in a graph of that ``task`` and what it needs, if it goes the way of the last one.

        Return False if it may go another, or more of it may be new, and nothing was done.
        """
        singles, needed = self._members.singles, task.dependencies
        if task.state != "released" or task.key in singles:
            return False
        if needed and any(other.state == "released" for other in needed):
            return False
        loop = self._loops.find(client, task, graph)
        if loop is None:
            return False
        computation, _, group, _ = loop
        computation.joined_by(graph, task)
        singles[task.key] = group
        self._added(group, 1)
        if needed:
            self._needs(group, task, {other.group for other in needed})
        if computation.handed_on is not None:
            hand_on(computation.handed_on, (task,))
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
        """Take a graph's new tasks into a computation, its own or the running one it joins.

        ``user`` tells whose client that is. ``count_first`` counts the transitions until now, and
        is called once if that matters: if the graph has to do with tasks that are known already.
        Most have not.
        """
        groups, singles, counted = self._new_of(tasks, count_first)
        # Of each group one of its tasks, which tells how they may be called.
        firsts = [*groups.values(), *singles]
        if not firsts:
            return
        # What serves two requests is two computations, though one line of code sends both.
        caller = caller_of(firsts) if self._sampled else None
        line = (client, frames or self._naming.prefix(firsts[0]), caller and caller.trace_id)
        computation = None if counted else self._computations.last_from(line)
        if computation is not None and not computation.is_at_work():
            count_first()
            counted = True
        if counted:
            computation = self._computations.running_from(line)
        if computation is None:
            computation = Computation(
                line,
                user(),
                frames,
                time(),
                sampled=self._sampled,
                caller=caller,
                places=self._places,
            )
            self._computations.arrived(computation)
        computation.joined_by(graph, firsts[-1])
        for dasks, task in groups.items():
            prefix = self._naming.prefix(task)
            ours = self._group(computation, self._naming.group(dasks, prefix), prefix)
            whole = Whole(dasks, ours)
            self._count_more(whole)
            self._members.wholes[dasks.name] = whole
        for prefix, alike in self._naming.by_prefix(singles).items():
            ours = self._group(computation, prefix, prefix)
            self._members.singles.update(dict.fromkeys([task.key for task in alike], ours))
            self._added(ours, len(alike))
        # Once all have their names: a task may come before what it needs.
        for dasks, task in groups.items():
            self._needs(self._members.wholes[dasks.name].group, task, dasks.dependencies)
        for task in singles:
            if task.dependencies:
                others = {other.group for other in task.dependencies}
                self._needs(self._members.singles[task.key], task, others)
        self._note_spans(computation, firsts)
        if graph is not None and len(firsts) == len(singles) == 1:
            (task,) = singles
            ours = self._members.singles[task.key]
            if ours is not computation.rest:
                self._loops.remember(client, task, graph, computation, ours)
        if computation.handed_on is not None:
            hand_on(computation.handed_on, tasks)

    def _new_of(
        self, tasks: Iterable[TaskState], count_first: Callable[[], None]
    ) -> tuple[dict[DaskTaskGroup, TaskState], list[TaskState], bool]:
        """Return what is new: groups, each with one of its tasks; and tasks of shared groups.

        And whether it was counted what had happened until now.
        """
        groups: dict[DaskTaskGroup, TaskState] = {}
        new: list[TaskState] = []
        seen: set[DaskTaskGroup] = set()
        wholes, singles, counted = self._members.wholes, self._members.singles, False
        for task in tasks:
            dasks, key = task.group, task.key
            if type(key) is not tuple or dasks.name == dasks.prefix.name:  # as is_single
                if task.state != "released":
                    continue
                if key in singles and not counted:
                    count_first()
                    counted = True
                if key not in singles:
                    new.append(task)
            elif dasks not in seen:
                seen.add(dasks)
                if dasks.name in wholes and not counted:
                    count_first()
                    counted = True
                known = wholes.get(dasks.name)
                # A name may come back as another group.
                if known is not None and known.dasks is dasks:
                    self._count_more(known)
                elif dasks.states["released"] == len(dasks):
                    groups[dasks] = task
        return groups, new, counted

    def _count_more(self, whole: Whole) -> None:
        count = len(whole.dasks)
        if count > whole.counted:
            self._added(whole.group, count - whole.counted)
            whole.counted = count

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
        # Names of the groups that task's group needs; those of shared groups task by task.
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
