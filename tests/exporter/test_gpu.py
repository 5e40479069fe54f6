"""A real GPU: what the plugin reports of it is what the driver's own tool says.

Needs an NVIDIA GPU, nvidia-ml-py (with which Dask reads it) and PyTorch (which uses it).
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
from typing import Any

import pytest
from distributed import Client, Event

from daskscope import names, protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = [
    pytest.mark.own_cluster,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU is here"),
]

pytest.importorskip("pynvml", reason="nvidia-ml-py is not here: Dask reads no GPU without it")
pytest.importorskip("torch", reason="PyTorch is not here: nothing uses the GPU")

GIB = 2**30


def _nvidia_smi(*fields: str) -> list[int]:
    """Return what the driver's own tool says of the first GPU; memory in bytes."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}"]
    output = subprocess.check_output([*command, "--format=csv,noheader,nounits"], text=True)
    values = [int(value) for value in output.split(",")]
    return [
        value * 2**20 if field.startswith("memory.") else value
        for field, value in zip(fields, values, strict=True)
    ]


def _multiply_until(stop: str) -> float:
    """Keep the GPU busy, with four GiB of its memory, until the event ``stop`` is set."""
    torch: Any = importlib.import_module("torch")
    held = torch.ones(GIB, dtype=torch.float32, device="cuda")
    matrix = torch.rand(4096, 4096, device="cuda")
    until = Event(stop)
    while not until.is_set():
        for _ in range(50):
            matrix = matrix @ matrix
            matrix = matrix / matrix.norm()
        torch.cuda.synchronize()
    return float(held[0])


def _wait_on_the_cpu(stop: str) -> None:
    Event(stop).wait()


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
    client: Client, recorder: Recorder, register: Register
) -> None:
    register()
    stop = Event("stop", client=client)
    task = client.submit(_multiply_until, "stop", pure=False)

    busy = _gpu(recorder, lambda gpu: gpu.utilization > 0.9 and gpu.memory_used > 4 * GIB)
    used, total = _nvidia_smi("memory.used", "memory.total")
    points = recorder.wait_for(
        lambda: [p for p in recorder.points(names.GPU_UTILIZATION) if p.get((), 0) > 0.9],
        "a point of a busy GPU",
    )
    stop.set()

    assert task.result() == 1.0
    assert busy.workers == 1
    assert busy.memory_limit == pytest.approx(total, rel=0.01)
    # What the driver itself holds counts in one of the two and not in the other.
    assert busy.memory_used == pytest.approx(used, abs=1.5 * GIB)
    assert points[0][()] <= 1


def test_a_gpu_that_tasks_leave_alone_is_reported_unused(
    client: Client, recorder: Recorder, register: Register
) -> None:
    register()
    stop = Event("stop", client=client)
    task = client.submit(_wait_on_the_cpu, "stop", pure=False)

    unused = _gpu(recorder, lambda gpu: gpu.utilization == 0)
    utilization, total = _nvidia_smi("utilization.gpu", "memory.total")
    stop.set()
    task.result()

    assert utilization == 0
    assert unused == protocol.Gpu(1, 0.0, unused.memory_used, unused.memory_limit)
    assert unused.memory_used < GIB
    assert unused.memory_limit == pytest.approx(total, rel=0.01)
