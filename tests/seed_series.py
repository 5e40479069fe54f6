"""What clusters measure: a point every ten seconds, with a gap of five minutes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from daskscope import names
from tests.seed_writer import GIB, SeedWriter

EVERY = 10


#: What threads do, as shares of their time.
_ACTIVITIES = {
    "thread-cpu": 0.48,
    "thread-noncpu": 0.13,
    "transfer": 0.09,
    "disk-read": 0.04,
    "disk-write": 0.02,
    "deserialize": 0.03,
    "serialize": 0.02,
    "idle": 0.19,
}


def series(
    writer: SeedWriter,
    cluster: str,
    since: float,
    until: float,
    workers: int,
    *,
    gpus: bool = False,
    spills: bool = True,
) -> None:
    """Add the series of ``cluster``; without ``spills`` those that only spilling workers have."""
    times = [since + EVERY * i for i in range(int((until - since) // EVERY))]
    times = [t for t in times if not since + 2500 < t < since + 2800]
    grown = [min(1.0, (t - since) / 400 + 0.1) for t in times]

    def wave(period: float, low: float, high: float) -> list[float]:
        values = (0.5 + 0.5 * math.sin(2 * math.pi * t / period) for t in times)
        return [
            low + (high - low) * v + writer.chance.uniform(0, (high - low) / 12) for v in values
        ]

    def whole(values: Iterable[float]) -> list[float]:
        return [float(round(max(0.0, v))) for v in values]

    def total(values: Iterable[float]) -> list[float]:
        passed = [EVERY, *(after - before for before, after in itertools.pairwise(times))]
        return list(
            itertools.accumulate(p * max(0.0, v) for p, v in zip(passed, values, strict=True))
        )

    threads = [4.0 * round(workers * g) for g in grown]
    busy = [n * min(max(v, 0.0), 1.0) for n, v in zip(threads, wave(900, 0.1, 0.95), strict=True)]
    idle = [n - b for n, b in zip(threads, busy, strict=True)]
    lines: list[tuple[names.Metric, str | None, list[float]]] = [
        (names.WORKER_COUNT, "running", [float(round(workers * g) - 1) for g in grown]),
        (names.WORKER_COUNT, "paused", [float(g == 1.0) for g in grown]),
        (names.MEMORY_LIMIT, None, [round(workers * g) * 16.0 * GIB for g in grown]),
        (names.MEMORY_USED, "managed", [v * workers * GIB for v in wave(1900, 1, 8)]),
        (names.MEMORY_USED, "unmanaged", [v * workers * GIB for v in wave(700, 1, 2.5)]),
        (names.MEMORY_USED, "spilled", [max(0.0, v) * workers * GIB for v in wave(1900, -3, 2)]),
        (names.TASK_COUNT, "processing", whole(wave(600, 0, workers * 4))),
        (names.TASK_COUNT, "memory", whole(wave(1900, 40, 600))),
        (names.TASK_COUNT, "waiting", whole(wave(1300, -400, 2400))),
        (names.WORKER_CPU, None, [0.8 * b for b in busy]),
        (names.WORKER_THREADS, None, threads),
        (names.WORKER_TIME, "busy", total(busy)),
        (names.WORKER_TIME, "idle", total(idle)),
        (names.WORKER_TIME, "paused", total(0.0 for _ in times)),
    ]
    for activity, share in _ACTIVITIES.items():
        spent = [share * workers * 4 * (t - since) for t in times]
        lines.append((names.TASK_TIME, activity, spent))
    if spills:
        lines += [
            (names.SPILL_IO, "write", total(v * GIB for v in wave(1900, -0.6, 0.4))),
            (names.SPILL_IO, "read", total(v * GIB for v in wave(1500, -0.6, 0.3))),
            (names.TRANSFER_IO, "transmit", total(v * GIB for v in wave(800, 0.02, 1.2))),
        ]
    if gpus:
        lines += [
            (names.GPU_UTILIZATION, None, [min(v, 1.0) for v in wave(700, 0.2, 0.9)]),
            (names.GPU_MEMORY_USED, None, [v * workers * GIB for v in wave(1200, 6, 30)]),
            (names.GPU_MEMORY_LIMIT, None, [40.0 * workers * GIB for _ in times]),
        ]
    for metric, value, values in lines:
        writer.series(cluster, metric, value, list(zip(times, values, strict=True)))
