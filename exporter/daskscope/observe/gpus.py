"""The workers' GPUs, as far as they tell. Dask looks at the first that a worker sees."""

from __future__ import annotations

from typing import Any

from distributed.scheduler import WorkerState

from daskscope import protocol


class Gpus:
    """Adds up what workers tell of their GPUs.

    Workers that share one each tell of it, and it counts for each.
    """

    __slots__ = ("_limit", "_limits", "_used", "_utilization", "_workers")

    def __init__(self) -> None:
        self._workers = 0
        self._utilization = 0.0
        self._used = 0
        self._limits = 0
        self._limit = 0

    def add(self, worker: WorkerState) -> None:
        """Add a worker's GPU, if it tells of one."""
        metrics = worker.metrics
        utilization, used = metrics.get("gpu_utilization"), metrics.get("gpu_memory_used")
        limit = metrics.get("gpu-memory-total")
        # Dask has told it in two forms, of which there may be both.
        older: dict[str, Any] | None = metrics.get("gpu")
        if utilization is None and not older:
            return
        if older:
            utilization = older.get("utilization") if utilization is None else utilization
            used = older.get("memory-used") if used is None else used
        limit = limit or _once_told(worker).get("memory-total")
        self._workers += 1
        self._utilization += (utilization or 0) / 100
        self._used += int(used or 0)
        if limit:
            self._limits += 1
            self._limit += int(limit)

    def total(self) -> protocol.Gpu | None:
        """Return all of them together, None where there are none."""
        if not self._workers:
            return None
        return protocol.Gpu(
            workers=self._workers,
            utilization=self._utilization / self._workers,
            memory_used=self._used,
            # A sum over some of them would be less than what all of them use.
            memory_limit=self._limit if self._limits == self._workers else None,
        )


def has_gpu(worker: WorkerState) -> bool:
    """Return whether a worker tells of a GPU."""
    return "gpu_utilization" in worker.metrics or bool(worker.metrics.get("gpu"))


def _once_told(worker: WorkerState) -> dict[str, Any]:
    return worker.extra.get("gpu") or {}
