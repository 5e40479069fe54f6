"""What of a graph's tasks is new to us, and what is known and has to run again."""

from __future__ import annotations

from collections.abc import Iterable

from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope.observe.tasks.group_index import GroupIndex


class NewTasks:
    """What there is to count in a graph.

    ``groups``, each with one of its tasks; ``singles``, tasks of shared groups; and tasks that are
    ``known``, or whose group is, and that have no result now. ``replaced`` is whether some group is
    called as one that is known.
    """

    __slots__ = ("groups", "known", "replaced", "singles")

    def __init__(self) -> None:
        self.groups: dict[DaskTaskGroup, TaskState] = {}
        self.singles: list[TaskState] = []
        self.known: list[TaskState] = []
        self.replaced = False


def new_of(tasks: Iterable[TaskState], members: GroupIndex) -> NewTasks:
    """Sort a graph's ``tasks`` by whether they are among ``members``."""
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
            # A name may come back as another group.
            new.replaced = True
            new.groups[dasks] = task
        elif task.state == "released":
            new.known.append(task)
    return new


def to_run(known: Iterable[TaskState], tasks: Iterable[TaskState]) -> list[TaskState]:
    """Return those of the ``known`` that the graph of ``tasks`` has Dask run."""
    # As Dask will find them: what is asked for and has no result, and what that needs.
    found = {task for task in tasks if task.who_wants and task.state == "released"}
    stack = list(found)
    while stack:
        for needed in stack.pop().dependencies:
            if needed.state == "released" and needed not in found:
                found.add(needed)
                stack.append(needed)
    return [task for task in known if task in found]
