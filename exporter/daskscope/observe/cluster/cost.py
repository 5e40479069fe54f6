"""The cost of a cluster so far, by its own prices, and its use of priced resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from distributed.scheduler import WorkerState

from daskscope import protocol
from daskscope.observe.workers.gpus import has_gpu

_HOUR = 3_600.0
_GIB = 1024.0**3


class _Held(NamedTuple):
    """The priced resources of a worker; ``price`` is what the worker costs per hour."""

    price: float
    gib: float
    gpus: int


_NOTHING = _Held(0.0, 0.0, 0)


class Cost:
    """Adds up cost and use, whenever a worker comes or goes and at each :meth:`look`.

    All sums are since the plugin started. ``total`` and ``idle`` are in the currency of the prices,
    and 0 without ``prices``. ``idle`` is the part of ``total`` that was spent on idle threads
    (:mod:`~daskscope.observe.workers.activities`). While the cluster has no thread, all of the cost
    is idle if the cluster is idle, else none. ``protocol.Status`` describes ``gib_seconds`` and
    ``gpu_seconds``.
    """

    def __init__(
        self, prices: protocol.Prices | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prices = {} if prices is None else prices.per_hour
        self._clock = clock
        self._workers: dict[str, _Held] = {}
        self._per_hour = self._prices.get("cluster", 0.0)
        self._gib = 0.0
        self._gpus = 0
        self._added_at = clock()
        # At the last look: the total, all thread-seconds, and the idle ones.
        self._last = (0.0, 0.0, 0.0)
        self.total = 0.0
        self.idle = 0.0
        self.gib_seconds = 0.0
        self.gpu_seconds = 0.0

    def look(self, threads: float, idle: float, *, cluster_idle: bool) -> None:
        """Add the cost since the last look, and its idle part.

        ``threads`` and ``idle`` are the thread-seconds of the cluster so far, all and idle ones.
        """
        self._add()
        total_before, threads_before, idle_before = self._last
        had = threads - threads_before
        share = (idle - idle_before) / had if had > 0 else float(cluster_idle)
        self.idle += (self.total - total_before) * min(max(share, 0.0), 1.0)
        self._last = (self.total, threads, idle)

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
        held = _Held(price, amounts["gib"], int(amounts["gpu"]))
        self._workers[worker.address] = held
        self._per_hour += held.price
        self._gib += held.gib
        self._gpus += held.gpus

    def removed(self, address: str) -> None:
        """Stop counting the worker."""
        self._add()
        held = self._workers.pop(address, _NOTHING)
        self._per_hour -= held.price
        self._gib -= held.gib
        self._gpus -= held.gpus
        if not self._workers:
            self._gib = 0.0  # the remainder is a rounding error

    def _add(self) -> None:
        now = max(self._clock(), self._added_at)
        seconds = now - self._added_at
        self.total += self._per_hour / _HOUR * seconds
        self.gib_seconds += self._gib * seconds
        self.gpu_seconds += self._gpus * seconds
        self._added_at = now
