"""A real GPU: what the plugin reports of it is what the driver's own tool says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from daskscope import names, protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.gpu import GIB, needs_gpu, nvidia_smi, use_cpu, use_gpu

pytestmark = [pytest.mark.own_cluster, needs_gpu]


def _gpu(recorder: Recorder, fits: Any) -> protocol.Gpu:
    """Return the first GPU that fits of those that the next heartbeats report."""
    seen = len(recorder.beats)
    return recorder.wait_for(
        lambda: next(
            (
                beat.status.gpu
                for beat in recorder.beats[seen:]
                if beat.status.gpu is not None and fits(beat.status.gpu)
            ),
            None,
        ),
        "a heartbeat with such a GPU",
    )


def test_a_busy_gpu_is_reported_as_the_driver_sees_it(
    client: Client, recorder: Recorder, register: Register, tmp_path: Path
) -> None:
    register()
    stop = tmp_path / "stop"
    task = client.submit(use_gpu, str(stop))

    busy = _gpu(recorder, lambda gpu: gpu.utilization > 0.9 and gpu.memory_used > 4 * GIB)
    used, total = nvidia_smi("memory.used", "memory.total")
    points = recorder.wait_for(
        lambda: [p for p in recorder.points(names.GPU_UTILIZATION) if p.get((), 0) > 0.9],
        "a point of a busy GPU",
    )
    stop.touch()

    assert task.result() == 1.0
    assert busy.workers == 1
    assert busy.memory_limit == pytest.approx(total, rel=0.01)
    # What the driver itself holds counts in one of the two and not in the other.
    assert busy.memory_used == pytest.approx(used, abs=1.5 * GIB)
    assert points[0][()] <= 1


def test_a_gpu_that_tasks_leave_alone_is_reported_unused(
    client: Client, recorder: Recorder, register: Register, tmp_path: Path
) -> None:
    register()
    stop = tmp_path / "stop"
    task = client.submit(use_cpu, str(stop))

    unused = _gpu(recorder, lambda gpu: gpu.utilization == 0)
    utilization, total = nvidia_smi("utilization.gpu", "memory.total")
    stop.touch()
    task.result()

    assert utilization == 0
    assert unused == protocol.Gpu(1, 0.0, unused.memory_used, unused.memory_limit)
    assert unused.memory_used < GIB
    assert unused.memory_limit == pytest.approx(total, rel=0.01)
