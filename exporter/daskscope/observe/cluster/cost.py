"""The cost of a cluster so far by its own prices, and what it held that can have a price."""

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
    """What a worker has of what is paid for; ``price`` is for an hour of all of it."""

    price: float
    gib: float
    gpus: int


_NOTHING = _Held(0.0, 0.0, 0)


class Cost:
    """Adds up what is held, piece by piece: whenever a worker comes or goes, or someone looks.

    All sums are since the plugin started. ``total`` and ``idle`` are in the prices' currency, 0
    without ``prices``. ``idle`` is the share of
    ``total`` that idle threads have in all threads' time
    (:mod:`~daskscope.observe.workers.activities`). While there is no thread, it is all or nothing:
    whether the cluster is idle. ``gib_seconds`` and ``gpu_seconds`` are as of ``protocol.Status``.
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
        # At the last look: the total, and thread-seconds, all and idle ones.
        self._last = (0.0, 0.0, 0.0)
        self.total = 0.0
        self.idle = 0.0
        self.gib_seconds = 0.0
        self.gpu_seconds = 0.0

    def look(self, threads: float, idle: float, *, cluster_idle: bool) -> None:
        """Add what was idle since the last look. There were so many seconds of ``threads`` so far,
        and so many of them ``idle``.
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
        """Do not count it any more."""
        self._add()
        held = self._workers.pop(address, _NOTHING)
        self._per_hour -= held.price
        self._gib -= held.gib
        self._gpus -= held.gpus
        if not self._workers:
            self._gib = 0.0  # what is left is of rounding

    def _add(self) -> None:
        now = max(self._clock(), self._added_at)
        seconds = now - self._added_at
        self.total += self._per_hour / _HOUR * seconds
        self.gib_seconds += self._gib * seconds
        self.gpu_seconds += self._gpus * seconds
        self._added_at = now
