"""Finds the new tasks of an arriving graph, and recognizes graphs of a loop with one new task.

A loop that submits tasks one by one may send a hundred thousand graphs with one new task each.
Finding the name and the computation of each takes several times as long as comparing it with the
graph before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from sys import getsizeof
from typing import Any, NamedTuple

from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope.observe.naming import kind_of
from daskscope.observe.tasks.computation import Computation
from daskscope.observe.tasks.graphs import Graph
from daskscope.observe.tasks.group_index import GroupIndex
from daskscope.observe.tasks.groups import Group

#: Lines of code whose last graph is remembered. Beyond it all are forgotten.
MAX_LOOPS = 100
#: Bytes of the code around the call and of the annotations. Lines with more are not remembered.
MAX_BYTES = 1 << 16

# Types of annotations that can be compared.
_PLAIN = frozenset({str, int})


class Loop(NamedTuple):
    """What the graphs of one loop share: the computation, Dask's task group, and ours.

    ``alike`` holds the code around the call, the function's name, the caller's trace and the
    annotations.
    """

    computation: Computation
    dasks: DaskTaskGroup
    group: Group
    alike: tuple[Any, ...]


class Loops:
    """The last graph with one new task from each line of code."""

    def __init__(self) -> None:
        self._loops: dict[Hashable, Loop] = {}

    def find(self, client: str, task: TaskState, graph: Graph) -> Loop | None:
        """Return the loop that sent ``graph`` with the one new ``task``.

        Return None if the graph may not belong where the line's last graph did.
        """
        loop = self._loops.get(_line(client, task, graph))
        if loop is None or loop.dasks is not task.group or not loop.computation.surely_takes(graph):
            return None
        return loop if _alike(task, graph) == loop.alike else None

    def remember(
        self, client: str, task: TaskState, graph: Graph, computation: Computation, group: Group
    ) -> None:
        """Remember the computation and group of a graph with one new ``task``."""
        alike = _alike(task, graph)
        if alike is None:
            return
        texts = (text for text, *_ in graph.code)
        if sum(map(getsizeof, chain(texts, (task.annotations or {}).values()))) > MAX_BYTES:
            return
        if len(self._loops) >= MAX_LOOPS:
            self._loops.clear()
        # Neither the task nor its function, which may be large.
        self._loops[_line(client, task, graph)] = Loop(computation, task.group, group, alike)


def _line(client: str, task: TaskState, graph: Graph) -> Hashable:
    # Dask's group name contains the function's name. If the code is refused, there is nothing else.
    name = task.group.name
    return (client, name, *graph.code[-1][1:]) if graph.code else (client, name)


def _alike(task: TaskState, graph: Graph) -> tuple[Any, ...] | None:
    kind = kind_of(task)
    if not task.annotations:
        return kind and (graph.code, kind, graph.caller)
    if not _PLAIN.issuperset(map(type, task.annotations.values())):
        return None
    return kind and (graph.code, kind, graph.caller, dict(task.annotations))


class NewTasks:
    """The tasks of a graph that are to be counted.

    ``groups`` are new groups of Dask's, each with one of its tasks. ``singles`` are new tasks with
    keys of their own (:func:`.is_single`). ``known`` are tasks that, or whose groups, were known
    before, and that have no result now. ``replaced`` is whether a new group has the name of a known
    one.
    """

    __slots__ = ("groups", "known", "replaced", "singles")

    def __init__(self) -> None:
        self.groups: dict[DaskTaskGroup, TaskState] = {}
        self.singles: list[TaskState] = []
        self.known: list[TaskState] = []
        self.replaced = False


def new_of(tasks: Iterable[TaskState], members: GroupIndex) -> NewTasks:
    """Sort a graph's ``tasks`` by whether ``members`` contains them."""
    new = NewTasks()
    wholes, singles = members.wholes, members.singles
    for task in tasks:
        dasks, key = task.group, task.key
        if type(key) is not tuple or dasks.name == dasks.prefix.name:  # as is_single
            if task.state == "released":
                (new.known if key in singles else new.singles).append(task)
        elif dasks in new.groups:
            continue
        elif dasks.name not in wholes:
            if dasks.states["released"] == len(dasks):
                new.groups[dasks] = task
        elif wholes[dasks.name].dasks is not dasks:
            # A name may recur as another group.
            new.replaced = True
            new.groups[dasks] = task
        elif task.state == "released":
            new.known.append(task)
    return new


def to_run(known: Iterable[TaskState], tasks: Iterable[TaskState]) -> list[TaskState]:
    """Return those of the ``known`` tasks that Dask will run for the graph of ``tasks``."""
    # In the way that Dask finds them: wanted tasks without a result, and what these need.
    released = {task for task in tasks if task.who_wants and task.state == "released"}
    stack = list(released)
    while stack:
        for needed in stack.pop().dependencies:
            if needed.state == "released" and needed not in released:
                released.add(needed)
                stack.append(needed)
    return [task for task in known if task in released]
