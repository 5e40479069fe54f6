"""What the scheduler's own process uses, and how long its event loop keeps everyone waiting."""

from __future__ import annotations

import asyncio
import time

from distributed.scheduler import Scheduler

from daskscope import protocol

#: Seconds between two looks at the event loop. What holds it up for longer is always seen.
TICK = 0.05


class Load:
    """Measures the process and its event loop. Runs on that loop, until :meth:`stop`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._lag = 0.0
        self._at = time.monotonic()
        self._cpu = time.process_time()
        self._due = self._loop.time() + TICK
        self._timer = self._loop.call_at(self._due, self._tick)

    def stop(self) -> None:
        """Do not look any more."""
        self._timer.cancel()

    def take(self) -> protocol.SchedulerLoad:
        """Return the load since the last call."""
        now, cpu = time.monotonic(), time.process_time()
        elapsed, used = now - self._at, cpu - self._cpu
        self._at, self._cpu = now, cpu
        # A tick that is late already tells as much as one that came late; it does so once.
        lag, self._lag = max(self._lag, self._loop.time() - self._due), 0.0
        self._due = max(self._due, self._loop.time())
        return protocol.SchedulerLoad(
            cpu=used / elapsed if elapsed > 0 else 0.0,
            # Dask's own monitor has just asked for it; asking again takes a system call or more.
            memory=int(self._scheduler.monitor.recent()["memory"]),
            lag=max(lag, 0.0),
        )

    def _tick(self) -> None:
        now = self._loop.time()
        self._lag = max(self._lag, now - self._due)
        self._due = now + TICK
        self._timer = self._loop.call_at(self._due, self._tick)
