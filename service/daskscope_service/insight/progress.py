"""How many tasks are done: :func:`daskscope.protocol.tasks_done` for rows of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskscope.protocol import tasks_done

Row = Mapping[str, Any]

#: Dask's states of a task that has something to do.
AT_WORK = ("waiting", "no-worker", "queued", "processing")


def done_of(computation: Row) -> int:
    """Return how many tasks of a computation are done. Its ``status`` is its own, not ``lost``."""
    return tasks_done(
        tasks=computation["tasks"],
        completed=computation["completed"],
        erred=computation["erred"],
        cancelled=computation["cancelled"],
        states=computation["states"],
        status=computation["status"],
    )


def done_in(group: Row, computation: Row) -> int:
    """Return how many tasks of a group are done; ``computation`` is the one that it is of."""
    return tasks_done(
        tasks=group["tasks"],
        completed=group["completed"],
        erred=group["erred"],
        states=group["states"],
        status="running" if computation["status"] == "lost" else computation["status"],
    )


def results_lost(counted: Row, done: int) -> int:
    """Return how many results were missing when they were needed, so that their tasks ran again, or
    have to. ``counted`` is a computation or a group with so many ``done`` tasks.
    """
    completed: int = counted["completed"]
    return max(completed - done, 0)


def results_missing(computation: Row) -> int:
    """Return how many results of a computation that has ended have gone since and are needed, so
    that their tasks run again, or wait to.
    """
    if computation["status"] == "running":
        return 0
    states = computation["states"]
    at_work = sum(states.get(state, 0) for state in AT_WORK)
    # A cluster may close before it has put away what it cancels.
    return max(int(at_work) - int(computation["cancelled"]), 0)
