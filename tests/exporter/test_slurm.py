"""Workers that are jobs of a real SLURM, by dask-jobqueue."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from distributed import Client

import daskscope
from daskscope import names
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
    with cluster_of_a_job(tmp_path, recorder, walltime="00:05:00") as job:
        subprocess.run(["scancel", job], check=True)
        (loss,) = recorder.wait_for(lambda: tuple(_losses(recorder)), "the worker's loss")
    assert loss.deployment["slurm.job.id"] == job
    assert loss.deployment["slurm.job.name"] == "nightly"
    assert loss.deployment["slurm.partition.name"] == "tests"
    assert recorder.beats[-1].cluster.kind == "SLURMCluster"


def test_a_worker_whose_job_is_at_its_time_limit_is_reported_with_its_job_and_when_that_ends(
    tmp_path: Path, recorder: Recorder
) -> None:
    """SLURM tells the job's log why it ends it, and no process: what they get is a signal, worker
    and nanny in the same moment. So the reason is what the scheduler sees of that.
    """
    with cluster_of_a_job(tmp_path, recorder, walltime="00:01:00") as job:
        ends = datetime.fromisoformat(_says("squeue", "-h", "-o", "%e")).astimezone(UTC)
        # It looks every 30 seconds whether jobs are at their limit, which is a minute at least.
        wait_until(lambda: _losses(recorder), seconds=START_PATIENCE, what="the worker's loss")
        (loss,) = _losses(recorder)
    log = tmp_path / "logs" / f"nightly-{job}.err"
    assert "DUE TO TIME LIMIT" in log.read_text()
    assert loss.deployment["slurm.job.id"] == job
    assert loss.deployment["slurm.job.end"] == f"{ends:%Y-%m-%dT%H:%M:%SZ}"
    assert loss.at >= ends.timestamp()
    assert loss.reason in (names.LOSS_LOST_CONNECTION, names.LOSS_DIED, names.LOSS_TERMINATED)
    assert (loss.expected, loss.tasks) == (False, {"sleep": 1})


@contextmanager
def cluster_of_a_job(folder: Path, recorder: Recorder, walltime: str) -> Iterator[str]:
    """Run a cluster of one worker with a task that does not end. Yield the worker's job."""
    with (
        dask_jobqueue.SLURMCluster(
            queue="tests",
            job_name="nightly",
            cores=1,
            processes=1,
            memory="512MiB",
            walltime=walltime,
            interface="lo",
            python=sys.executable,
            log_directory=str(folder / "logs"),
            local_directory=str(folder),
            # SLURM sets this itself from version 23.02 on.
            job_script_prologue=[
                'export SLURM_JOB_END_TIME=$(date -d "$(squeue -h -j $SLURM_JOB_ID -o %e)" +%s)'
            ],
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
        (job,) = _says("squeue", "-h", "-o", "%A").split()
        yield job
        future.cancel()


def _says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _losses(recorder: Recorder) -> list[WorkerLoss]:
    return [loss for beat in recorder.beats for loss in beat.worker_losses]
