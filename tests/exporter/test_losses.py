"""Workers that leave: the reason, and what they had at hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import dask.config
import pytest
from distributed import Client, Event, LocalCluster
from tornado.ioloop import PeriodicCallback

import daskscope
from daskscope import names, protocol
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder

MARKER = "mark" + "er7"

pytestmark = pytest.mark.own_cluster


def sleep_until_the_end(started: str, number: int) -> None:
    Event(started).set()
    Event("never").wait()


def stop_this_process(started: str) -> None:
    Event(started).set()
    os.kill(os.getpid(), signal.SIGSTOP)


def fill_memory(started: str) -> None:
    Event(started).set()
    held = []
    while True:
        held.append(b"x" * 10_000_000)


def kill(client: Client) -> None:
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)


def loss(recorder: Recorder) -> protocol.WorkerLoss:
    return recorder.wait_for(lambda: next(iter(recorder.losses()), None), "the loss")


def wait_for_metric(recorder: Recorder, reason: str) -> None:
    recorder.wait_for(
        lambda: [r for r in recorder.requests if r.path == "/v1/metrics"
                 and names.WORKER_LOSS.name.encode() in r.body and reason.encode() in r.body],
        "the metric",
    )  # fmt: skip


def test_a_worker_that_is_killed_died_with_its_tasks(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    (address,) = client.scheduler_info()["workers"]
    futures = [
        client.submit(sleep_until_the_end, "started", number, key=f"{MARKER}-{number}")
        for number in range(2)
    ]
    Event("started", client=client).wait()
    kill(client)

    found = loss(recorder)
    assert (found.address, found.name) == (address, "0")
    assert (found.reason, found.expected) == (names.LOSS_DIED, False)
    assert found.tasks == {"sleep_until_the_end": 2}
    assert found.processing == 2
    assert found.memory_used
    assert found.memory_limit
    assert found.last_seen_at is not None
    assert found.last_seen_at <= found.at
    assert found.nanny_memory is None
    assert MARKER.encode() not in recorder.bytes
    wait_for_metric(recorder, names.LOSS_DIED)
    del futures


@pytest.fixture
def small_cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker that its nanny ends when it uses 400 MB."""
    memory = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": 0.95,
        "distributed.scheduler.allowed-failures": 0,
    }
    with dask.config.set(memory):
        with LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400 MB", dashboard_address=":0"
        ) as cluster:
            yield cluster


def test_a_worker_that_its_nanny_ends_for_its_memory(
    small_cluster: LocalCluster, recorder: Recorder
) -> None:
    with Client(small_cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        future = client.submit(fill_memory, "started")

        found = loss(recorder)
        assert (found.reason, found.expected) == (names.LOSS_OUT_OF_MEMORY, False)
        assert found.memory_limit == 400_000_000
        assert found.nanny_memory is not None
        assert found.nanny_memory > 0.95 * found.memory_limit
        assert found.tasks == {"fill_memory": 1}
        wait_for_metric(recorder, names.LOSS_OUT_OF_MEMORY)
        del future


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        (lambda client, cluster: client.retire_workers(), names.LOSS_RETIRED),
        # Dask is asked to retire it by its name, and does not find it: its nanny closes it.
        (lambda client, cluster: cluster.scale(0), names.LOSS_CLOSED),
        (lambda client, cluster: client.run(_close), names.LOSS_CLOSED),
        (lambda client, cluster: client.restart(), names.LOSS_RESTARTED),
    ],
    ids=["retire", "scale down", "close", "restart"],
)
def test_a_worker_that_was_asked_to_leave_is_expected_to(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    leave: Callable[[Client, LocalCluster], None],
    reason: str,
) -> None:
    register()
    leave(client, cluster)

    found = loss(recorder)
    assert (found.reason, found.expected) == (reason, True)
    assert found.tasks == {}
    wait_for_metric(recorder, reason)


def _close(dask_worker: Any) -> None:
    dask_worker.loop.add_callback(dask_worker.close)


def test_a_worker_that_gives_up_after_an_error_inside_of_dask_has_failed(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.run(_confuse)

    found = loss(recorder)
    assert (found.reason, found.expected) == (names.LOSS_FAILED, False)


def _confuse(dask_worker: Any) -> None:
    dask_worker.loop.add_callback(dask_worker.handle_stimulus, "no event of Dask's")


def test_a_worker_that_stops_beating_is_timed_out(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    pids = client.run(os.getpid).values()
    client.submit(stop_this_process, "started")
    Event("started", client=client).wait()
    client.run_on_scheduler(_check_ttl_soon)

    try:
        found = loss(recorder)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (found.reason, found.expected) == (names.LOSS_TIMED_OUT, False)
    assert found.last_seen_at is not None
    assert found.at - found.last_seen_at > 1


async def _check_ttl_soon(dask_scheduler: Any) -> None:
    # Dask waits ten beats at least, five seconds.
    dask_scheduler.worker_ttl = 1
    dask_scheduler.periodic_callbacks["worker-ttl"].stop()
    again = PeriodicCallback(dask_scheduler.check_worker_ttl, 200)
    dask_scheduler.periodic_callbacks["worker-ttl"] = again
    again.start()


def test_a_worker_without_a_nanny_that_is_cut_off_has_lost_its_connection(
    recorder: Recorder,
) -> None:
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        worker = _lone_worker(cluster.scheduler_address)
        try:
            client.wait_for_workers(1)
            kill(client)
            found = loss(recorder)
            assert (found.reason, found.expected) == (names.LOSS_LOST_CONNECTION, False)
            assert found.name == "lone"
        finally:
            worker.kill()
            worker.wait()


def _lone_worker(scheduler: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--no-nanny",
         "--no-dashboard", "--name", "lone", "--nthreads", "1"]
    )  # fmt: skip


def test_what_refused_logs_would_tell_of_a_loss_is_absent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(logs__transmit=False)
    kill(client)
    assert loss(recorder).log is None
