"""What is measured inside of a scheduler: the size of beats, the time of a goodbye, memory."""

from __future__ import annotations

import time
from collections import Counter

import requests
from distributed.scheduler import Scheduler

from daskscope.emit.backlog import Backlog
from daskscope.plugin import NAME


def weigh_beats(dask_scheduler: Scheduler) -> None:
    """Note the bytes of each beat from now on, as they are sent: compressed."""
    plugin = dask_scheduler.plugins[NAME]
    plugin.bench_bytes = sizes = []  # type: ignore[attr-defined]
    session = plugin._running.sender._session  # type: ignore[attr-defined]
    post = session.post

    def weighed(url: str, *, data: bytes, **how: object) -> requests.Response:
        sizes.append(len(data))
        response: requests.Response = post(url, data=data, **how)
        return response

    session.post = weighed


def bytes_of_beats(dask_scheduler: Scheduler) -> list[float]:
    """Return the bytes of each beat since :func:`weigh_beats`."""
    return [float(size) for size in dask_scheduler.plugins[NAME].bench_bytes]  # type: ignore[attr-defined]


async def close(dask_scheduler: Scheduler) -> float:
    """Let the plugin say goodbye. Return the seconds that the scheduler waited for it."""
    began = time.perf_counter()
    await dask_scheduler.plugins[NAME].close()
    return time.perf_counter() - began


def count_signals(dask_scheduler: Scheduler) -> None:
    """Count spans and log records as they are queued for OTLP or dropped.

    To be called before the plugin comes: the first one tells of the cluster.
    """
    made: Counter[str] = Counter()
    dask_scheduler.bench_made = made  # type: ignore[attr-defined]
    take = Backlog.take

    def counted(self: Backlog, item: object) -> bool:
        made[self.what] += 1
        return take(self, item)

    Backlog.take = counted  # type: ignore[method-assign]


def signals_and_drops(dask_scheduler: Scheduler) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many there were since :func:`count_signals`, and what the plugin has dropped."""
    made = dask_scheduler.bench_made  # type: ignore[attr-defined]
    return dict(made), dict(dask_scheduler.plugins[NAME].drops)  # type: ignore[attr-defined]


def rss(dask_scheduler: Scheduler) -> int:
    """Return the bytes of memory that the scheduler's process holds."""
    # Dask reads it twice a second.
    return int(dask_scheduler.monitor.recent()["memory"])
