"""How many tasks are done: :func:`daskscope.protocol.tasks_done` for rows of tables."""

from __future__ import annotations

from daskscope.protocol import ComputationStatus, tasks_done
from daskscope_service.db.readable import Readable

#: Dask's states of a task that has something to do.
AT_WORK = ("waiting", "no-worker", "queued", "processing")


def done_of(computation: Readable) -> int:
    """Return how many tasks of a computation are done. Its ``status`` is its own, not ``lost``."""
    return tasks_done(
        tasks=computation["tasks"],
        completed=computation["completed"],
        erred=computation["erred"],
        cancelled=computation["cancelled"],
        states=computation["states"],
        status=computation["status"],
    )


def done_in(group: Readable, status: ComputationStatus) -> int:
    """Return how many tasks of a group are done. ``status`` is its computation's own."""
    return tasks_done(
        tasks=group["tasks"],
        completed=group["completed"],
        erred=group["erred"],
        states=group["states"],
        status=status,
    )


def results_lost(counted: Readable, done: int) -> int:
    """Return how many results were missing when they were needed, so that their tasks ran again, or
    have to. ``counted`` is a computation or a group with so many ``done`` tasks.
    """
    completed: int = counted["completed"]
    return max(completed - done, 0)


def results_missing(computation: Readable) -> int:
    """Return how many results of a computation that has ended have gone since and are needed, so
    that their tasks run again, or wait to.
    """
    if computation["status"] == "running":
        return 0
    states = computation["states"]
    at_work = sum(states.get(state, 0) for state in AT_WORK)
    # A cluster may close before it has put away what it cancels.
    return max(int(at_work) - int(computation["cancelled"]), 0)
