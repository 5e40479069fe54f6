"""The CPU and memory of the scheduler's process, and the lag of its event loop."""

from __future__ import annotations

import time

from distributed.scheduler import Scheduler

from daskscope import protocol


class Load:
    """Measures the process and its event loop.

    :meth:`look` is to be called on that loop whenever Dask looks at it. What holds it up for longer
    than the ``interval`` between two looks, in seconds, is always seen. Dask goes by the wall
    clock; if that is set back, it looks again, and a lag is seen again, when its time comes.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lag = 0.0
        self._at = time.monotonic()
        self._cpu = time.process_time()
        self.interval = scheduler.periodic_callbacks["tick"].callback_time / 1_000
        self._looked_at = time.monotonic(), time.time()

    def take(self) -> protocol.SchedulerLoad:
        """Return the load since the last call."""
        now, cpu = time.monotonic(), time.process_time()
        elapsed, used = now - self._at, cpu - self._cpu
        self._at, self._cpu = now, cpu
        lag, self._lag = self._lag, 0.0
        return protocol.SchedulerLoad(
            cpu=used / elapsed if elapsed > 0 else 0.0,
            # Dask's own monitor has just asked for it; asking again takes a system call or more.
            memory=int(self._scheduler.monitor.recent()["memory"]),
            lag=lag,
        )

    def look(self) -> None:
        """Note how long it took from the last look until now."""
        before, self._looked_at = self._looked_at, (time.monotonic(), time.time())
        took, by_wall = (at - then for at, then in zip(self._looked_at, before, strict=True))
        # Where they differ, Dask was not kept waiting: the clock that it goes by was set.
        if took - self.interval > self._lag and abs(by_wall - took) < took / 2:
            self._lag = took - self.interval
