"""What has ended stays ended, whatever becomes of its results and of the workers afterwards."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from distributed.core import Status

from daskscope import names, protocol
from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract


def inc(x: int) -> int:
    return x + 1


def double(x: int) -> int:
    return 2 * x


#: What the test and its tasks, which run in this process, tell each other. Who waits for an Event
#: of Dask's is at work.
SAID: defaultdict[str, threading.Event] = defaultdict(threading.Event)


def obey(number: int, name: str) -> int:
    """Return the number; or wait, or fail, as long as the test says so."""
    SAID[f"{name} {number} runs"].set()
    if SAID[f"{name} holds"].is_set():
        SAID[f"{name} goes on"].wait()
    if SAID[f"{name} fails"].is_set():
        raise ValueError("as told")
    return number


def fail_if_odd(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number


@pytest.fixture
def cluster(recorder: Recorder) -> Iterator[LocalCluster]:
    """A cluster whose workers start and go within this process."""
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as cluster:
        yield cluster


def lose_all_results(client: Client, cluster: LocalCluster) -> None:
    """Have the worker go with all that it holds, and another come."""
    (worker,) = [w for w in cluster.workers.values() if w.status == Status.running]
    cluster.sync(worker.close, executor_wait=False)
    cluster.scale(len(cluster.workers) + 1)
    client.wait_for_workers(1)


def how_it_ended(row: protocol.Computation) -> tuple[Any, ...]:
    """All that a computation says of its end: all but tasks' states and what ran later."""
    later: dict[str, Any] = {"completed_later": None, "seconds_later": None}
    return replace(row, states={}, seconds={}, **later, **OF_BEATS), row.done


#: What workers say in their next beats of the time until it ended.
OF_BEATS: dict[str, Any] = {
    "spilled_bytes": None,
    "unspilled_bytes": None,
    "transferred_bytes": None,
    "loop_interval": None,
    "heartbeat_age": None,
    "host_load": None,
}


@pytest.mark.uncounted("what fails after the end is not counted")
def test_how_a_computation_ended_is_not_changed_by_results_that_are_lost_and_computed_again(
    client: Client, cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    name = "ended"
    events = {what: SAID[f"{name} {what}"] for what in ("holds", "goes on", "fails")}
    finished = client.map(obey, range(4), name=name)
    wait(finished)
    erred = client.map(fail_if_odd, range(4))
    wait(erred)
    # Of one that was cancelled a task is needed again, by what is kept of another.
    graph: dict[Any, Any] = {
        "ingredient": (obey, 7, name),
        ("ingredient-doubled", 0): (double, "ingredient"),
    }
    (kept,) = client.get(graph, [("ingredient-doubled", 0)], sync=False)
    wait(kept)
    events["holds"].set()
    SAID[f"{name} 7 runs"].clear()
    (given_up,) = client.get(graph, ["ingredient"], sync=False)
    SAID[f"{name} 7 runs"].wait()
    recorder.wait_for(lambda: any(beat.status.at_work for beat in recorder.beats), "work")
    given_up.release()

    def ended(count: int) -> dict[str, protocol.Computation] | None:
        rows = recorder.computations()
        fits = len(rows) == count and all(row.status != "running" for row in rows.values())
        return rows if fits else None

    before = recorder.wait_for(lambda: ended(4), "the end of all")
    assert sorted((row.status, row.done) for row in before.values()) == [
        ("cancelled", 0),
        ("erred", 2),
        ("finished", 2),
        ("finished", 4),
    ]
    groups_ended = {
        (row.id, group.name): group.stopped_at
        for row in before.values()
        for group in recorder.groups(row.id).values()
    }
    last = max(beat.seq for beat in recorder.beats)

    def check() -> None:
        for row in recorder.computations().values():
            if row.id in before:
                assert how_it_ended(row) == how_it_ended(before[row.id])
        for identity, group_name in groups_ended:
            (group,) = [g for g in recorder.groups(identity).values() if g.name == group_name]
            assert group.stopped_at == groups_ended[identity, group_name]

    def runs() -> dict[str, int | None]:
        rows = recorder.computations().values()
        return {row.status: row.completed_later for row in rows if row.tasks != 2}

    # They wait to be computed again, and run.
    lose_all_results(client, cluster)
    recorder.wait_for(
        lambda: any(row.states.get("processing") for row in recorder.computations().values()),
        "some to run again",
    )
    check()
    # It has no work to do but that, and would end with this process.
    # The calls of this test to the scheduler are work for as long as they take.
    recorder.wait_for(
        lambda: any(
            beat.status.held_by.get("processing") and beat.status.at_work is False
            for beat in recorder.beats
            if beat.seq > last
        ),
        "a beat with nothing else to do",
    )
    # None of them runs again, so none is lost if the cluster ends now.
    recorder.wait_for(
        lambda: any(
            tasks.get(("processing",)) and running == {(): 0.0}
            for tasks, running in zip(
                recorder.points(names.TASK_COUNT),
                recorder.points(names.COMPUTATION_COUNT),
                strict=False,
            )
        ),
        "metrics of tasks without a computation",
    )
    assert all(beat.cluster.in_client for beat in recorder.beats)
    # They have been computed again.
    events["holds"].clear()
    events["goes on"].set()
    recorder.wait_for(
        lambda: runs() == {"finished": 4, "erred": 2, "cancelled": 1}, "all to have run again"
    )
    check()
    # They cannot be computed again.
    events["fails"].set()
    lose_all_results(client, cluster)
    wait([*finished, kept])
    failure = recorder.wait_for(
        lambda: next((f for f in recorder.failures() if f.function == "obey"), None), "the failure"
    )
    assert failure.computation in before
    recorder.wait_for(
        lambda: any(row.states.get("erred") == 4 for row in recorder.computations().values()),
        "their end",
    )
    check()
    client.restart(wait_for_workers=False)
    cluster.scale(len(cluster.workers) + 1)
    assert client.submit(inc, 1).result() == 2
    recorder.wait_for(lambda: ended(5), "the next one")
    check()
    cluster.close()
    check()
    for beat in recorder.beats:
        for row in beat.computations:
            assert beat.seq <= last or row.id not in before or row.status != "running"


@pytest.mark.usefixtures("loops_never_pause")
def test_nor_if_they_are_lost_before_anyone_was_told(
    client: Client, cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register(interval="1h")
    futures = client.map(inc, range(4))
    wait(futures)
    lost_at = time.time()
    lose_all_results(client, cluster)
    wait(futures)
    assert not recorder.computations()
    close_plugin(client)
    (row,) = recorder.computations().values()
    assert (row.status, row.tasks, row.done, row.completed) == ("finished", 4, 4, 4)
    assert row.completed_later == 4
    assert row.stopped_at is not None
    assert row.stopped_at < lost_at


def test_who_has_a_failed_task_retried_and_gives_that_up_has_cancelled_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    name = "retried"
    SAID[f"{name} fails"].set()
    future = client.submit(obey, 1, name)
    wait(future)
    erred = recorder.computation(lambda row: row.status == "erred")
    SAID[f"{name} holds"].set()
    future.retry()
    recorder.wait_for(lambda: recorder.computations()[erred.id].status == "running", "it to go on")
    future.cancel()
    row = recorder.computation(lambda row: row.status == "cancelled")
    assert (row.id, row.erred, row.retried, row.cancelled) == (erred.id, 0, 1, 1)
    SAID[f"{name} goes on"].set()
