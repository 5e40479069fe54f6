"""The CPU and memory of the scheduler's process, and the lag of its event loop."""

from __future__ import annotations

import time

from distributed.scheduler import Scheduler

from daskscope import protocol


class Load:
    """Measures the process and its event loop.

    Call :meth:`look` on that loop at each of Dask's ticks. It sees every block of the loop that is
    longer than ``interval``, the seconds between two ticks. Dask schedules ticks by the wall clock.
    If that is set back, ticks and measurement pause until the clock has caught up.
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
        """Measure the time since the last look."""
        then, wall_then = self._looked_at
        self._looked_at = now, wall = time.monotonic(), time.time()
        took, by_wall = now - then, wall - wall_then
        # If the two clocks differ, the wall clock was set, and the loop was not blocked.
        if took - self.interval > self._lag and abs(by_wall - took) < took / 2:
            self._lag = took - self.interval
