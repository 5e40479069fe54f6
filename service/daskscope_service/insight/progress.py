"""Counts the tasks that are done, in stored rows: see :func:`daskscope.protocol.tasks_done`."""

from __future__ import annotations

from daskscope.protocol import ComputationStatus, tasks_done
from daskscope_service.db.readable import Readable

#: Dask's states of a task that is running or has yet to run.
AT_WORK = ("waiting", "no-worker", "queued", "processing")


def done_of(computation: Readable) -> int:
    """Return how many tasks of a computation are done.

    Its ``status`` must be the one that its cluster reported: never ``lost``.
    """
    return tasks_done(
        tasks=computation["tasks"],
        completed=computation["completed"],
        erred=computation["erred"],
        cancelled=computation["cancelled"],
        states=computation["states"],
        status=computation["status"],
    )


def done_in(group: Readable, status: ComputationStatus) -> int:
    """Return how many tasks of a group are done.

    ``status`` is the one that the cluster reported for the group's computation.
    """
    return tasks_done(
        tasks=group["tasks"],
        completed=group["completed"],
        erred=group["erred"],
        states=group["states"],
        status=status,
    )


def results_lost(counted: Readable, done: int) -> int:
    """Return how many results were gone when they were needed: their tasks ran again or have to.

    ``counted`` is a computation or a task group, and ``done`` is how many of its tasks are done.
    """
    completed: int = counted["completed"]
    return max(completed - done, 0)


def results_missing(computation: Readable) -> int:
    """Return how many results have gone since the computation ended and are needed again.

    Their tasks run again, or wait to. Return 0 while the computation runs.
    """
    if computation["status"] == "running":
        return 0
    states = computation["states"]
    at_work = sum(states.get(state, 0) for state in AT_WORK)
    # A cluster may close before the tasks that it cancelled have left these states.
    return max(int(at_work) - int(computation["cancelled"]), 0)
