"""What is measured inside of a scheduler: the size of beats, the time of a goodbye, memory."""

from __future__ import annotations

import time

import requests
from distributed.scheduler import Scheduler

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


def rss(dask_scheduler: Scheduler) -> int:
    """Return the bytes of memory that the scheduler's process holds."""
    # Dask reads it twice a second.
    return int(dask_scheduler.monitor.recent()["memory"])
