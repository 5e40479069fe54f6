"""What a cluster cost so far, by the prices that are set."""

from __future__ import annotations

from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.gpus import has_gpu

_HOUR = 3_600.0
_GIB = 1024.0**3


class Cost:
    """Adds up what is held, piece by piece: whenever a worker comes or goes, or someone looks.

    Both sums are in the prices' currency, since the plugin started.
    """

    def __init__(self, prices: protocol.Prices, now: float) -> None:
        self._prices = prices.per_hour
        self._workers: dict[str, float] = {}
        self._per_hour = self._prices.get("cluster", 0.0)
        self._at = now
        self.total = 0.0
        self.idle = 0.0

    def until(self, now: float, idle_since: float | None) -> None:
        """Add what was held since the last call.

        It was idle since ``idle_since``, and at work before; at work all along if that is None.
        """
        began, self._at = self._at, max(now, self._at)
        per_second = self._per_hour / _HOUR
        self.total += per_second * (self._at - began)
        if idle_since is not None:
            self.idle += per_second * max(self._at - max(began, idle_since), 0.0)

    def added(self, worker: WorkerState) -> None:
        """Count a worker from the last call of :meth:`until` on."""
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
        self._per_hour -= self._workers.pop(address, 0.0)
