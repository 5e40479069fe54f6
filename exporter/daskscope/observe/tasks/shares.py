"""Adds up each worker's part of a computation, and compares it with the usual time of the runs."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

from daskscope import protocol

#: Workers that are stored for one computation. Later workers are left out.
MAX_WORKERS = 1_000
#: Workers that are sent: those that lost the most time.
MAX_SENT = 10


class Shares:
    """Adds up runs by worker. Adding one takes the same time for any number of workers."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        # By the worker's address: runs, their seconds, their usual seconds, the longest run.
        self._of: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def workers(self) -> Iterable[str]:
        """Return the workers' addresses."""
        return self._of.keys()

    def ran(self, worker: str, took: float, usual: float) -> None:
        """Add a run that ``took`` seconds; ``usual`` is the mean of its task group."""
        share = self._of.get(worker)
        if share is None:
            if len(self._of) >= MAX_WORKERS:
                return
            share = self._of[worker] = [0, 0.0, 0.0, 0.0]
        share[0] += 1
        share[1] += took
        share[2] += usual
        if took > share[3]:
            share[3] = took

    def rows(self) -> tuple[protocol.WorkerShare, ...]:
        """Return the workers that exceeded the usual time the most, the worst first."""
        worst = nlargest(MAX_SENT, self._of.items(), key=lambda item: item[1][1] - item[1][2])
        return tuple(
            protocol.WorkerShare(worker, int(runs), seconds, usual, longest)
            for worker, (runs, seconds, usual, longest) in worst
        )
