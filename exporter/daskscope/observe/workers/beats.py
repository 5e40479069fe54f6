"""What workers say of themselves in their beats, looked at one after the other.

Dask keeps only what the last beat of each worker said. So all of them are looked at once for each
beat, some at each tick of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil

from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import WorkerState, heartbeat_interval

from daskscope.worker_process import METRIC

#: Ticks of Dask's in a second.
TICKS_A_SECOND = 50


def host_load_of(worker: WorkerState) -> float | None:
    """Return the load of a worker's host for each of its cores, if the worker says so."""
    sample = worker.metrics.get(METRIC)
    if not sample or len(sample) < 9:
        return None
    cores, load = sample[7], sample[8]
    return load / cores if cores and isinstance(load, float) else None


class WorkerBeats:
    """Hands to ``note`` what each worker reports, once for each of its beats.

    That is the mean interval between two turns of its event loop, the time since its last beat, in
    seconds, and the load of its host for each core.
    """

    def __init__(self, note: Callable[[float, float, float | None], None]) -> None:
        self._note = note
        self._round: list[WorkerState] = []
        self._at_once = 1
        #: Seconds between two beats of a worker.
        self.interval = 0.5

    def look(self, workers: Iterable[WorkerState]) -> None:
        """Look at some more of ``workers``. To be called at each tick of the event loop."""
        if not self._round:
            self._round = list(workers)
            self.interval = heartbeat_interval(len(self._round))
            self._at_once = ceil(len(self._round) / (self.interval * TICKS_A_SECOND))
        for _ in range(min(self._at_once, len(self._round))):
            worker = self._round.pop()
            took = worker.metrics.get("event_loop_interval")
            # It may have left meanwhile.
            if took is not None and worker.status is not Status.closed:
                # Of one that has just come there may be none yet.
                silence = time() - worker.last_seen if worker.last_seen else 0.0
                self._note(took, max(silence, 0.0), host_load_of(worker))
