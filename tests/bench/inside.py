"""What is measured inside of a scheduler: the size of beats, the time of a goodbye, memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import requests
from distributed.scheduler import Scheduler
from distributed.worker import Worker

from daskscope.background import Background
from daskscope.otlp.queues import Backlog
from daskscope.plugin import NAME
from daskscope.session import ObservationSession
from tests.patience import wait_on_loop


def weigh_beats(dask_scheduler: Scheduler) -> None:
    """Note the bytes of each beat from now on, as they are sent: compressed."""
    plugin = dask_scheduler.plugins[NAME]
    plugin.bench_bytes = sizes = []  # type: ignore[attr-defined]
    session = plugin.session.sender._session  # type: ignore[attr-defined]
    post = session.post

    def weighed(url: str, *, data: bytes, **how: object) -> requests.Response:
        sizes.append(len(data))
        response: requests.Response = post(url, data=data, **how)
        return response

    session.post = weighed


async def tell_all(dask_scheduler: Scheduler) -> None:
    """Have the plugin tell of the cluster now, and wait until all of it has been sent."""
    running = dask_scheduler.plugins[NAME].session  # type: ignore[attr-defined]
    running._beat()
    await wait_on_loop(lambda: running._steps is None and running._more is None, what="a beat")
    await asyncio.to_thread(_send_all, running)


def _send_all(running: ObservationSession) -> None:
    # Each hands on to the next.
    for background in (running._clear, running._report, running._emit, running._profile):
        _await_handled(background)
    # These wait for more: a second, five, and an interval.
    parts = running._emitter._parts  # type: ignore[union-attr]
    for part in (parts.logs, parts.traces, parts.metrics):  # type: ignore[union-attr]
        part._provider.force_flush()  # type: ignore[union-attr]


def _await_handled(background: Background[Any] | None) -> None:
    """Wait until what was put until now has been handled."""
    assert background is not None
    handled = threading.Event()
    handle = background._handle

    def watched(item: object) -> None:
        if item is handled:
            handled.set()
        else:
            handle(item)

    background._handle = watched
    background.put(handled)
    handled.wait()
    background._handle = handle


class Goodbye(NamedTuple):
    """How the plugin left: after how many ``seconds``, and the bytes of each of its beats."""

    seconds: float
    sizes: list[int]


async def close(dask_scheduler: Scheduler) -> Goodbye:
    """Take the plugin out, of which :func:`weigh_beats` was told."""
    plugin = dask_scheduler.plugins[NAME]
    began = time.perf_counter()
    await plugin.close()
    took = time.perf_counter() - began
    dask_scheduler.remove_plugin(NAME)
    return Goodbye(took, plugin.bench_bytes)  # type: ignore[attr-defined]


async def has_our_plugins(dask_worker: Worker) -> None:
    """Wait until the worker has what daskscope sends there."""
    ours = {"daskscope-logs", "daskscope-task-context"}
    length = len("daskscope-task-context")
    await wait_on_loop(
        lambda: ours <= {name[:length] for name in dask_worker.plugins}, what="our plugins"
    )


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
