"""The workers' GPUs, as far as they report them. Dask reports the first GPU of a worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed.scheduler import WorkerState

from daskscope import protocol


def total_of(workers: Iterable[WorkerState]) -> protocol.Gpu | None:
    """Return the sums over the GPUs of ``workers``; None if no worker reports a GPU.

    A GPU that several workers share counts once for each of them.
    """
    count = limits = used_by_all = limit_of_all = 0
    utilization_of_all = 0.0
    for worker in workers:
        metrics = worker.metrics
        utilization, used = utilization_of(worker), metrics.get("gpu_memory_used")
        limit = metrics.get("gpu-memory-total")
        # Versions of Dask report it in two forms, and both may occur together.
        older = _older(worker)
        if utilization is None and not older:
            continue
        used = older.get("memory-used") if used is None else used
        count += 1
        utilization_of_all += utilization or 0
        used_by_all += used or 0
        limit = limit or (worker.extra.get("gpu") or {}).get("memory-total")
        if limit:
            limits += 1
            limit_of_all += limit
    if not count:
        return None
    return protocol.Gpu(
        workers=count,
        utilization=utilization_of_all / 100 / count,
        memory_used=int(used_by_all),
        # A sum over only some workers would be too small to compare with memory_used.
        memory_limit=int(limit_of_all) if limits == count else None,
    )


def utilization_of(worker: WorkerState) -> float | None:
    """Return a worker's GPU use at its last heartbeat, in percent; None if not reported."""
    utilization = worker.metrics.get("gpu_utilization")
    if utilization is None:
        utilization = _older(worker).get("utilization")
    return utilization if isinstance(utilization, int | float) else None


def has_gpu(worker: WorkerState) -> bool:
    """Return whether a worker reports a GPU."""
    return "gpu_utilization" in worker.metrics or bool(_older(worker))


def _older(worker: WorkerState) -> dict[str, Any]:
    """Return the metrics of older Dask. A user's own metric may have the same name."""
    metrics = worker.metrics.get("gpu")
    return metrics if isinstance(metrics, dict) else {}
