"""How many tasks of a computation are done, when results are lost with a worker that dies."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from distributed import Client, Event, Queue, wait

from daskscope import names, protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_traces import done_of

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("equals_truth")]

TASKS = 11


def step(number: int, name: str) -> int:
    """The first one waits for the test's word; the others when they run again."""
    if number == 0 or Event(f"{name} waits").is_set():
        Queue(name).get()
    return number


def pid(dask_worker: Any) -> int:
    return os.getpid()


@pytest.mark.own_cluster
@pytest.mark.usefixtures("sends_soon")
def test_what_is_lost_with_a_worker_is_not_done_until_it_has_run_again(
    client: Client, register: Register, recorder: Recorder
) -> None:
    assert client.cluster is not None
    client.cluster.scale(2)
    client.wait_for_workers(2)
    register()
    stays, dies = client.scheduler_info()["workers"]
    name = "progress"

    def row(done: int) -> protocol.Computation:
        def look() -> protocol.Computation | None:
            return next((r for r in recorder.computations().values() if r.done == done), None)

        return recorder.wait_for(look, f"{done} tasks done")

    # From one line: one computation, which its first task keeps running.
    futures: list[Any] = []
    for number in range(TASKS):
        home = stays if number < 3 else dies
        futures.append(
            client.submit(
                step, number, name, pure=False, workers=[home], allow_other_workers=home == dies
            )
        )
    wait(futures[1:])
    before = row(TASKS - 1)
    assert (before.status, before.tasks, before.completed) == ("running", TASKS, TASKS - 1)

    held = client.who_has(futures)
    lost = sum(list(workers) == [dies] for workers in held.values())
    Event(f"{name} waits", client=client).set()
    killed_at = time.time()
    os.kill(client.run(pid, workers=[dies])[dies], signal.SIGKILL)
    during = row(TASKS - 1 - lost)
    assert (during.status, during.tasks, during.completed) == ("running", TASKS, TASKS - 1)

    # Whichever is let go on, the first or one that runs again, is done then.
    for number in range(1, lost + 2):
        Queue(name, client=client).put(None)
        assert row(TASKS - 1 - lost + number).completed == TASKS - 1 + number
    after = recorder.computation()
    assert (after.id, after.status, after.tasks) == (before.id, "finished", TASKS)
    assert (after.done, after.completed) == (TASKS, TASKS + lost)

    told = [
        done_of(record)
        for record in recorder.log_records(names.LOG_COMPUTATION_PROGRESS.name)
        if record.time_unix_nano > killed_at * 1e9
    ]
    assert told
    assert all(tasks == TASKS for _, tasks in told)
    assert any(done < TASKS - 1 for done, _ in told)
    # Dask forgets tasks whose results nobody holds: they stay done.
    del futures
    forgotten = recorder.computation(lambda row: row.states == {"forgotten": TASKS})
    assert forgotten.done == TASKS
