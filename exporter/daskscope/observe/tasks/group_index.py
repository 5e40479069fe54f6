"""Finds the group that a task is counted in, as long as Dask knows the task.

Tasks of a collection, whose keys are tuples that begin with a name and a token, are found by Dask's
task group. Two kinds are found by their own key: tasks of a collection that run again for a later
graph, and tasks without a token, which share Dask's group with all others of their prefix.
"""

from __future__ import annotations

from collections.abc import Hashable

from distributed.scheduler import TaskGroup as DaskTaskGroup
from distributed.scheduler import TaskState

from daskscope.observe.tasks.groups import Group


class SharedGroup:
    """One of Dask's task groups, ``dasks``, all of whose tasks are counted under ``group``.

    ``counted`` is the number of its tasks so far, ``forgotten`` how many of them Dask has
    forgotten. ``elsewhere`` has exceptions: tasks, by key, that are counted under another group.
    """

    __slots__ = ("counted", "dasks", "elsewhere", "forgotten", "group")

    def __init__(self, dasks: DaskTaskGroup, group: Group) -> None:
        self.dasks = dasks
        self.group = group
        self.counted = 0
        self.forgotten = 0
        self.elsewhere: dict[Hashable, Group] = {}

    def group_of(self, key: Hashable) -> Group:
        """Return the group that the task with that key is counted under."""
        return self.elsewhere.get(key, self.group)

    def forget(self, key: Hashable) -> None:
        """Note that Dask has forgotten the task with that key."""
        self.forgotten += 1
        self.elsewhere.pop(key, None)


class GroupIndex:
    """All tasks that are counted under some group.

    The event loop adds tasks. The thread that counts transitions removes those that Dask has
    forgotten.
    """

    def __init__(self) -> None:
        #: By the name of Dask's group, which is the first item of its tasks' keys.
        self.wholes: dict[Hashable, SharedGroup] = {}
        #: By the key of the task.
        self.singles: dict[Hashable, Group] = {}

    def group_of(self, task: TaskState) -> Group | None:
        """Return the group that ``task`` is counted under, or None."""
        if is_single(task):
            return self.singles.get(task.key)
        whole = self.wholes.get(task.group.name)
        return None if whole is None else whole.group_of(task.key)

    def group_of_key(self, key: Hashable) -> Group | None:
        """Return the group that the task with that key is counted under, or None."""
        whole = self.wholes.get(key[0]) if type(key) is tuple else None
        return self.singles.get(key) if whole is None else whole.group_of(key)

    def clear(self) -> None:
        """Forget all tasks."""
        self.wholes.clear()
        self.singles.clear()


def is_single(task: TaskState) -> bool:
    """Return whether ``task`` shares Dask's group with others of its prefix."""
    # The name of Dask's group is the first item of a key that is a tuple.
    return type(task.key) is not tuple or task.group.name == task.prefix.name
