"""Asks a scheduler what a client has computed of late."""

from __future__ import annotations

from typing import TypedDict

from distributed import Client
from distributed.metrics import time
from distributed.scheduler import Scheduler

from daskscope.plugin import NAME, Plugin
from daskscope.timer import until

#: Seconds that the scheduler waits for graphs that are arriving.
GRAPHS_PATIENCE = 1.0


class SentComputation(TypedDict):
    """A computation as its scheduler knows it: fields of :class:`daskscope.protocol.Computation`.

    ``now`` is the scheduler's time.
    """

    id: str
    started_at: float
    ended_at: float | None
    tasks: int
    done: int
    erred: int
    blamed: int
    cancelled: int
    worker_seconds: dict[str, float]
    now: float


async def latest_computations(client: Client) -> list[SentComputation]:
    """Ask the scheduler which computations of ``client`` changed since the last call."""
    computations: list[SentComputation] = await client._run_on_scheduler(
        latest_computations_here, client.id
    )
    return computations


async def latest_computations_here(
    client: str, *, dask_scheduler: Scheduler
) -> list[SentComputation]:
    """Answer :func:`latest_computations`; runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if not isinstance(plugin, Plugin) or plugin.session is None:
        return []
    session = plugin.session
    with session.observer.idle.our_call():
        # Graphs that are being read are no computations yet.
        await until(
            lambda: not getattr(dask_scheduler, "_active_graph_updates", 0), GRAPHS_PATIENCE
        )
        rows = session.latest_computations(client)
    return [
        SentComputation(
            id=one.id,
            started_at=one.started_at,
            ended_at=one.ended_at if one.stopped_at is None else one.stopped_at,
            tasks=one.tasks,
            done=one.done,
            erred=one.erred,
            blamed=one.blamed,
            cancelled=one.cancelled,
            worker_seconds=one.worker_seconds,
            now=time(),
        )
        for one in rows
    ]
