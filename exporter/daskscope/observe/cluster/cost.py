"""What a cluster cost so far, by the prices that are set."""

from __future__ import annotations

import time
from collections.abc import Callable

from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.workers.gpus import has_gpu

_HOUR = 3_600.0
_GIB = 1024.0**3


class Cost:
    """Adds up what is held, piece by piece: whenever a worker comes or goes, or someone looks.

    Both sums are in the prices' currency, since the plugin started. ``idle`` is what ``total`` grew
    by while :class:`~daskscope.observe.cluster.idle.Idle` saw the cluster idle.
    """

    def __init__(
        self, prices: protocol.Prices, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prices = prices.per_hour
        self._clock = clock
        self._workers: dict[str, float] = {}
        self._per_hour = self._prices.get("cluster", 0.0)
        self._added_at = self._looked_at = clock()
        self._at_last_look = 0.0
        self.total = 0.0
        self.idle = 0.0

    def looked(self, idle: float) -> None:
        """Note that of the time since the last call ``idle`` seconds were seen idle."""
        self._add()
        elapsed = self._added_at - self._looked_at
        if elapsed > 0:
            self.idle += (self.total - self._at_last_look) * min(idle / elapsed, 1.0)
        self._looked_at, self._at_last_look = self._added_at, self.total

    def added(self, worker: WorkerState) -> None:
        """Count a worker from now on."""
        self.removed(worker.address)
        amounts = {
            "worker": 1,
            "thread": worker.nthreads,
            "gpu": has_gpu(worker),
            "gib": (worker.memory_limit or 0) / _GIB,
        }
        price = sum(self._prices.get(what, 0.0) * amount for what, amount in amounts.items())
        self._workers[worker.address] = price
        self._per_hour += price

    def removed(self, address: str) -> None:
        """Do not count it any more."""
        self._add()
        self._per_hour -= self._workers.pop(address, 0.0)

    def _add(self) -> None:
        now = max(self._clock(), self._added_at)
        self.total += self._per_hour / _HOUR * (now - self._added_at)
        self._added_at = now
