"""Tasks that Dask itself gives up: what is told of them, and that it is counted once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster, wait

from daskscope import names, protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract

MARKER = "mark" + "er7"


class Counter:
    pass


def die() -> None:
    os._exit(1)


def inc(x: int) -> int:
    return x + 1


def only_failure(recorder: Recorder, tasks: int, status: str = "erred") -> protocol.Failure:
    """Wait for the end of the computations; return the failure, after beats that tell no other."""
    recorder.wait_for(
        lambda: (
            recorder.computations()
            and all(row.status == status for row in recorder.computations().values())
            and sum(row.tasks for row in recorder.computations().values()) == tasks
        ),
        "the end",
    )
    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    beats = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) >= beats + 2, "two more beats")
    assert [row.fingerprint for row in recorder.failures()] == [failure.fingerprint]
    (latest,) = recorder.failures()
    return latest


def counted(recorder: Recorder) -> tuple[int, int]:
    """How many runs of tasks erred, by computations and by their groups."""
    rows = recorder.computations().values()
    groups = [group for row in rows for group in recorder.groups(row.id).values()]
    return sum(row.erred for row in rows), sum(group.erred for group in groups)


@pytest.mark.own_cluster
def test_a_task_that_killed_its_workers_is_one_failure_and_what_needed_it_none(
    client: Client, register: Register, recorder: Recorder
) -> None:
    client.run_on_scheduler(_allow_no_failures)
    register()
    killer = client.submit(die, key=MARKER)
    after = client.map(inc, [killer] * 3, pure=False)
    wait([killer, *after])

    failure = only_failure(recorder, tasks=4)
    assert (failure.type, failure.function, failure.count) == ("KilledWorker", "die", 1)
    assert failure.message == ("The workers that ran this task died, more often than Dask allows.")
    assert failure.traceback is None
    assert failure.worker is not None
    assert counted(recorder) == (1, 1)
    assert MARKER.encode() not in recorder.bytes
    record = recorder.wait_for(
        lambda: next(iter(recorder.log_records(names.LOG_EXCEPTION.name)), None), "the log event"
    )
    assert record.body.string_value == failure.message


def _allow_no_failures(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


@pytest.fixture
def without_workers() -> Iterator[LocalCluster]:
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": "100ms"}),
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
    ):
        yield cluster


class TestWithoutWorkers:
    @pytest.fixture
    def cluster(self, without_workers: LocalCluster, recorder: Recorder) -> LocalCluster:
        return without_workers

    @pytest.mark.uncounted("it fails without a run")
    def test_a_task_that_no_worker_came_for_is_one_failure(
        self, client: Client, register: Register, recorder: Recorder
    ) -> None:
        register()
        future = client.submit(inc, 1, key=MARKER)
        after = client.submit(inc, future)
        wait([future, after])

        failure = only_failure(recorder, tasks=2)
        assert (failure.type, failure.function, failure.count) == ("NoWorkerError", "inc", 1)
        assert failure.message is not None
        assert failure.message.startswith("No worker came to run this task for as long as")
        assert (failure.traceback, failure.worker) == (None, None)
        assert counted(recorder) == (1, 1)
        assert MARKER.encode() not in recorder.bytes


def test_a_task_that_no_worker_may_run_is_one_failure(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    patience = client.run_on_scheduler(_wait_for_workers, 0.1)
    try:
        future = client.submit(inc, 1, key=MARKER, resources={"GPU": 1})
        after = client.submit(inc, future)
        wait([future, after])
    finally:
        client.run_on_scheduler(_wait_for_workers, patience)

    failure = only_failure(recorder, tasks=2)
    assert (failure.type, failure.function, failure.count) == ("NoValidWorkerError", "inc", 1)
    assert failure.message is not None
    assert failure.message.startswith("No worker that this task may run on came")
    assert counted(recorder) == (1, 1)
    assert MARKER.encode() not in recorder.bytes


def _wait_for_workers(seconds: float | None, dask_scheduler: Any) -> float | None:
    before: float | None = dask_scheduler.no_workers_timeout
    dask_scheduler.no_workers_timeout = seconds
    return before


@pytest.mark.own_cluster
def test_an_actor_that_is_lost_with_its_worker_is_one_failure(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    future = client.submit(Counter, actor=True, key=MARKER)
    wait(future)
    (pid,) = client.run(os.getpid).values()
    os.kill(pid, signal.SIGKILL)

    # It was made: its computation stays finished.
    failure = only_failure(recorder, tasks=1, status="finished")
    kind = type(future.exception()).__name__
    assert (failure.type, failure.function, failure.count) == (kind, "Counter", 1)
    assert failure.message == "The worker that held this actor was lost."
    (group,) = [group for id in recorder.computations() for group in recorder.groups(id).values()]
    assert {state: count for state, count in group.states.items() if count} == {"erred": 1}
    assert failure.traceback is None
    assert counted(recorder) == (0, 0)
    assert recorder.computation().done == 1
    assert MARKER.encode() not in recorder.bytes
