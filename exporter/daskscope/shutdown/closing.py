"""Closes a cluster through the manager that started it, or else without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from distributed.core import Status
from distributed.scheduler import Scheduler

from daskscope.observe.cluster.environment import deployment
from daskscope.observe.cluster.idle import manager_of

#: The topic of Dask's event log that reports shutdowns. Anyone on the cluster may subscribe to it.
TOPIC = "daskscope-shutdown"
#: The topic by which a manager in another process is asked to close. It is separate, because a
#: client has one handler per topic: another subscriber would replace the manager's handler.
MANAGER_TOPIC = "daskscope-close-manager"

#: Seconds that a manager in another process has to begin closing.
MANAGER_PATIENCE = 15.0
#: Seconds that retiring idle workers may take.
RETIRE_PATIENCE = 10.0
#: Seconds that a worker has to answer whether a method of an actor runs.
ANSWER_PATIENCE = 5.0


def managed_elsewhere(scheduler: Scheduler) -> bool:
    """Return whether an object in another process started ``scheduler``."""
    # Every manager of Dask's writes this, about once a second.
    return manager_of(scheduler) is None and bool(
        scheduler.get_metadata(["cluster-manager-info"], default=None)
    )


def how(scheduler: Scheduler) -> str:
    """Describe in a sentence how ``scheduler`` will be closed."""
    manager = manager_of(scheduler)
    if manager is not None:
        return f"Its {type(manager).__name__} is closed."
    asks = (
        "Its cluster manager is asked to close it; if that fails, "
        if managed_elsewhere(scheduler)
        else ""
    )
    closes = "workers and scheduler are closed."
    if any(name.startswith(("k8s.", "gateway.")) for name in deployment()):
        closes = "workers and scheduler are closed; a supervisor may restart them."
    return asks + closes if asks else closes[0].upper() + closes[1:]


async def close(scheduler: Scheduler, reason: str, at_work: Callable[[], str | None]) -> str | None:
    """Close the cluster, and return None when it has closed. ``reason`` goes into logs.

    If ``at_work`` returns the cluster's current work, return that and close nothing. It is called
    in the same step of the event loop in which closing begins.

    Do not run this in a task that the scheduler's closing waits for.
    """
    work = at_work()
    if work is not None:
        return work
    manager = manager_of(scheduler)
    if manager is not None:
        # If the scheduler is closed directly, its manager waits for it for half a minute.
        await manager._close()
        return None
    if managed_elsewhere(scheduler):
        scheduler.log_event(MANAGER_TOPIC, {"reason": reason})
        if await _closes(scheduler, MANAGER_PATIENCE):
            await scheduler.finished()
            return None
        # No manager has answered, and work may have arrived meanwhile.
        work = at_work()
        if work is not None:
            return work
    if not any(worker.processing or worker.has_what for worker in scheduler.workers.values()):
        # Only without data: retiring would move the workers' data to each other.
        with suppress(TimeoutError):  # closing the scheduler also closes its workers
            # Not in a task of its own, which would begin in a later step of the event loop.
            async with asyncio.timeout(RETIRE_PATIENCE):
                await scheduler.retire_workers(list(scheduler.workers), close_workers=True)
    await scheduler.close(reason=f"daskscope, {reason}")
    return None


async def actors_at_work(scheduler: Scheduler) -> bool:
    """Return whether a method of an actor runs. Only the actor's worker knows.

    A worker that does not answer counts as running one. Methods that are coroutines are not
    detected.
    """
    workers = [worker.address for worker in scheduler.workers.values() if worker.actors]
    answers = await asyncio.gather(*(_threads_at_work(scheduler, worker) for worker in workers))
    return any(answers)


async def _threads_at_work(scheduler: Scheduler, worker: str) -> bool:
    try:
        return bool(
            await asyncio.wait_for(scheduler.rpc(worker).call_stack(keys=None), ANSWER_PATIENCE)
        )
    except TimeoutError:
        return True
    except OSError:
        return False  # it has left


async def _closes(scheduler: Scheduler, patience: float) -> bool:
    ends = asyncio.get_running_loop().time() + patience
    while scheduler.status not in (Status.closing, Status.closed):
        if asyncio.get_running_loop().time() > ends:
            return False
        await asyncio.sleep(0.1)
    return True
