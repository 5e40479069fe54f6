"""Reads what workers report in their heartbeats, a few workers at each tick of the event loop.

Dask stores only the last heartbeat of each worker. So each worker is read once per heartbeat
interval, or twice if they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil

from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import WorkerState, heartbeat_interval

from daskscope.worker_process import METRIC

#: Dask's ticks per second.
TICKS_A_SECOND = 50


def host_load_of(worker: WorkerState) -> float | None:
    """Return the load of a worker's host per core; None if the worker does not report it."""
    sample = worker.metrics.get(METRIC)
    if not sample or len(sample) < 9:
        return None
    cores, load = sample[7], sample[8]
    return load / cores if cores and isinstance(load, float) else None


class WorkerBeats:
    """Calls ``note`` with what each worker reports, once or twice per heartbeat interval.

    It passes the worker's address, the mean interval between two turns of its event loop and the
    time since its last heartbeat, both in seconds, and its host's load per core.
    """

    def __init__(self, note: Callable[[str, float, float, float | None], None]) -> None:
        self._note = note
        self._round: list[WorkerState] = []
        self._at_once = 1
        # Ticks until the next round may begin.
        self._pause = 0
        #: Seconds between two heartbeats of a worker.
        self.interval = 0.5

    def look(self, workers: Iterable[WorkerState]) -> None:
        """Read some more of ``workers``. Call it at each tick of the event loop."""
        self._pause -= 1
        if not self._round:
            if self._pause > 0:
                return
            self._round = list(workers)
            self.interval = heartbeat_interval(len(self._round))
            ticks = self.interval * TICKS_A_SECOND
            self._at_once = ceil(len(self._round) / ticks)
            self._pause = int(ticks / 2)
        for _ in range(min(self._at_once, len(self._round))):
            worker = self._round.pop()
            took = worker.metrics.get("event_loop_interval")
            # It may have left meanwhile.
            if took is not None and worker.status is not Status.closed:
                # A worker that has just joined may not have sent a heartbeat yet.
                silence = time() - worker.last_seen if worker.last_seen else 0.0
                self._note(worker.address, took, max(silence, 0.0), host_load_of(worker))
