"""Workers that are jobs of a real SLURM, by dask-jobqueue."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

import daskscope
from daskscope.protocol import WorkerLoss
from daskscope.worker_process import METRIC
from tests.exporter.recorder import Recorder
from tests.exporter.slurm import missing, slurm
from tests.needed import needed
from tests.patience import START_PATIENCE, wait_until

# ./dev matrix runs without it, too.
dask_jobqueue = needed("dask_jobqueue", "dask-jobqueue is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def running_slurm(tmp_path: Path) -> Iterator[None]:
    """Run a SLURM for the test."""
    if why := missing():
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    with slurm(tmp_path):
        yield


def test_a_worker_whose_job_is_cancelled_is_reported_with_its_job(
    tmp_path: Path, recorder: Recorder
) -> None:
    with (
        dask_jobqueue.SLURMCluster(
            queue="tests",
            job_name="nightly",
            cores=1,
            processes=1,
            memory="512MiB",
            walltime="00:05:00",
            interface="lo",
            python=sys.executable,
            log_directory=str(tmp_path / "logs"),
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(endpoint=recorder.url, token="dsk_slurm", interval="200ms")
        cluster.scale(jobs=1)
        client.wait_for_workers(1, timeout=START_PATIENCE)
        future = client.submit(time.sleep, 600)
        wait_until(lambda: any(client.processing().values()), what="the task")
        (worker,) = cluster.scheduler.workers.values()
        wait_until(lambda: worker.metrics.get(METRIC), what="what the worker says of itself")
        (job,) = subprocess.run(
            ["squeue", "-h", "-o", "%A"], capture_output=True, text=True, check=True
        ).stdout.split()
        subprocess.run(["scancel", job], check=True)
        (loss,) = recorder.wait_for(lambda: tuple(_losses(recorder)), "the worker's loss")
        future.cancel()
    assert loss.deployment["slurm.job.id"] == job
    assert loss.deployment["slurm.job.name"] == "nightly"
    assert loss.deployment["slurm.partition.name"] == "tests"
    assert recorder.beats[-1].cluster.kind == "SLURMCluster"


def _losses(recorder: Recorder) -> list[WorkerLoss]:
    return [loss for beat in recorder.beats for loss in beat.worker_losses]
