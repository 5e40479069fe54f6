"""Workloads whose numbers must be those that a second plugin counts: see ``truth.py``."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster, wait, worker_client
from distributed.core import Status

from daskscope import names
from daskscope.observe.tasks.runs import actions_of
from daskscope.observe.workers.workers import Workers
from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder
from tests.exporter.truth import Truth
from tests.patience import PATIENCE, wait_until

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("equals_truth")]


def nap(number: int, seconds: float = 0.1) -> int:
    time.sleep(seconds)
    return number


def double(x: int, seconds: float = 0.05) -> int:
    time.sleep(seconds)
    return 2 * x


def fail_now_and_then(number: int, name: str) -> int:
    if Event(f"{name} {number}").is_set():
        time.sleep(0.1)
        return number
    Event(f"{name} {number}").set()
    raise ConnectionError("as told")


def fail(x: int) -> int:
    raise ZeroDivisionError


def hold(name: str) -> None:
    Event(f"{name} runs").set()
    Event(name).wait()


def with_others(seconds: float) -> int:
    with worker_client() as client:
        return int(client.submit(nap, 1, seconds, pure=False).result())


def with_one_that_is_held(name: str) -> None:
    with worker_client() as client:
        client.submit(hold, name, pure=False).result()


def heartbeats(action: str, dask_worker: Any) -> None:
    getattr(dask_worker.periodic_callbacks["heartbeat"], action)()


def layers(name: str) -> dict[Any, Any]:
    return {(name, i): (nap, i) for i in range(4)} | {
        (f"{name}-doubled", i): (double, (name, i)) for i in range(4)
    }


def test_tasks_that_run_again_where_a_worker_knows_them_are_counted_once(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    graph = layers("truth-again")
    doubled = [key for key in graph if key[0] != "truth-again"]
    kept = client.get(graph, doubled, sync=False)
    wait(kept)
    # What was needed by what is kept is put away, and the worker does not forget that it ran.
    for _ in range(2):
        wait_until(lambda: _released(client) == 4, what="the results to be put away")
        assert client.get(graph, [("truth-again", i) for i in range(4)]) == [0, 1, 2, 3]
    computations = recorder.wait_for(
        lambda: rows if len(rows := recorder.computations()) == 3 else None, "three"
    )
    assert sorted(row.tasks for row in computations.values()) == [4, 4, 8]


def _released(client: Client) -> int:
    def count(dask_scheduler: Any) -> int:
        return sum(task.state == "released" for task in dask_scheduler.tasks.values())

    found: int = client.run_on_scheduler(count)
    return found


def test_retries_failures_and_what_never_ran(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    flaky = client.map(fail_now_and_then, range(4), name="truth", retries=2, pure=False)
    assert client.gather(flaky) == [0, 1, 2, 3]
    failed = client.submit(fail, 1, pure=False)
    dependents = client.map(double, [failed, failed], seconds=0, pure=False)
    wait(dependents)
    row = recorder.computation(lambda row: row.blamed)
    assert (row.status, row.erred, row.blamed) == ("erred", 0, 2)
    (blamed,) = row.blames.items()
    failure = recorder.wait_for(
        lambda: next((f for f in recorder.failures() if f.type == "ZeroDivisionError"), None),
        "the failure",
    )
    assert blamed == (failure.computation, "fail")
    # Runs that failed are in no histogram, and are no group's shortest.
    (group,) = (row for row in recorder.all_groups() if row.prefix == "fail_now_and_then")
    assert sum(group.durations) == group.completed == 4
    assert group.shortest is not None
    assert group.shortest >= 0.1


def test_threads_whose_tasks_were_cancelled_are_idle_from_then_on(
    client: Client, register: Register, equals_truth: Truth, recorder: Recorder
) -> None:
    # A beat would look at all workers anyway.
    register(interval="1h")
    held = client.map(hold, ["truth-cancel 1", "truth-cancel 2"])
    for name in ("truth-cancel 1", "truth-cancel 2"):
        Event(f"{name} runs", client=client).wait(timeout=PATIENCE)
    client.cancel(held)
    for name in ("truth-cancel 1", "truth-cancel 2"):
        Event(name, client=client).set()
    wait_until(lambda: equals_truth.idle_seconds() > 3, what="three seconds of idle threads")


def test_a_task_that_has_seceded_has_no_thread(
    client: Client, register: Register, equals_truth: Truth, recorder: Recorder
) -> None:
    register(interval="1h")
    assert client.submit(with_others, 2.0, pure=False).result() == 1
    wait_until(lambda: equals_truth.idle_seconds() > 3, what="three seconds of idle threads")


def test_a_task_that_has_seceded_has_no_thread_though_its_worker_has_not_reported_its_end(
    cluster: LocalCluster, client: Client, register: Register, equals_truth: Truth
) -> None:
    register(interval="1h")
    assert cluster.scheduler is not None
    (worker,) = cluster.scheduler.workers.values()
    held = client.submit(with_one_that_is_held, "truth-seceded", pure=False)
    wait_until(
        lambda: [1 for task, took in tuple(worker.executing.items()) if took > 3],
        what="the worker to report for how long the task has run",
    )
    client.run(heartbeats, "stop")
    try:
        Event("truth-seceded", client=client).set()
        held.result()
        wait_until(lambda: equals_truth.idle_seconds() > 6, what="six seconds of idle threads")
        close_plugin(client)
    finally:
        client.run(heartbeats, "start")


def test_points_have_the_time_of_what_they_say(
    client: Client, register: Register, equals_truth: Truth, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(nap, range(40), pure=False))
    client.gather(client.map(nap, range(40), seconds=0, pure=False))
    wait_until(lambda: len(recorder.points(names.WORKER_TIME)) > 20, what="some exports")
    threads = sum(client.nthreads().values())
    times = recorder.times(names.WORKER_TIME)
    totals = [sum(values.values()) for values in recorder.points(names.WORKER_TIME)]
    grown = dict(zip(times, totals, strict=True))
    points = sorted(grown.items())
    assert len(points) > 10
    for (before, had), (after, has) in itertools.pairwise(points):
        # Not a thread-second more than there was time for.
        assert has - had <= threads * (after - before) + 0.05
    (began, had), *_, (ended, has) = points
    assert has - had == pytest.approx(threads * (ended - began), abs=0.3)


def test_work_that_is_queued_on_a_worker_does_not_run(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    names = [f"truth-queued {i}" for i in range(3)]
    address = next(iter(client.scheduler_info()["workers"]))
    held = client.map(hold, names, workers=[address])
    held += client.map(hold, names[:1] * 5, workers=[address], pure=False)
    status = recorder.wait_for(
        lambda: next(
            (b.status for b in recorder.beats if b.status.held_by.get("processing") == 8), None
        ),
        "eight tasks on two threads",
    )
    assert status.held_by["running"] == 2
    for name in names:
        Event(name, client=client).set()
    client.gather(held)


def test_results_that_are_put_away_are_no_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    results = client.map(nap, range(4), seconds=0, pure=False)
    wait(results)
    recorder.wait_for(
        lambda: any((beat.status.idle_seconds or 0) > 1 for beat in recorder.beats), "idleness"
    )
    before = len(recorder.beats)
    del results
    status = recorder.wait_for(
        lambda: next(
            (b.status for b in recorder.beats[before:] if "results" not in b.status.held_by), None
        ),
        "a status without results",
    )
    assert status.idle_seconds is not None
    assert status.idle_seconds > 1


def test_the_call_that_registers_is_no_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    first = recorder.wait_for(
        lambda: next((b.status for b in recorder.beats if b.phase == "start"), None), "a beat"
    )
    assert "calls" not in first.held_by
    assert first.idle_seconds is not None
    assert first.busy_by == ()


def test_a_map_has_ended_with_its_last_task_though_a_loop_may_go_on(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(nap, range(4), pure=False))
    row = recorder.wait_for(
        lambda: next(
            (
                row
                for beat in recorder.beats
                for row in beat.computations
                if row.status == "running" and row.ended_at is not None
            ),
            None,
        ),
        "a computation that a loop may continue",
    )
    end = recorder.computation()
    assert row.ended_at == end.stopped_at == end.ended_at


def worker_state(**metrics: Any) -> Any:
    return SimpleNamespace(
        address="tcp://a:1",
        nthreads=2,
        memory_limit=1000,
        status=Status.running,
        processing=(),
        long_running=(),
        executing={},
        last_seen=0.0,
        nanny="tcp://a:2",
        metrics=metrics,
    )


def test_what_is_on_disk_is_no_memory() -> None:
    workers = [
        worker_state(memory=481, managed_bytes=481, spilled_bytes={"memory": 176, "disk": 170}),
        worker_state(memory=50, managed_bytes=10, spilled_bytes={"memory": 0, "disk": 0}),
    ]
    steps = Workers().totals(workers)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.memory == {
        "managed": 305 + 10,
        "unmanaged": 176 + 40,
        "spilled": 170,
    }


def entry(action: str, start: float, stop: float) -> dict[str, Any]:
    return {"action": action, "start": start, "stop": stop}


def test_of_the_runs_that_a_worker_reports_the_last_counts() -> None:
    earlier = [entry("transfer", 0, 1), entry("compute", 1, 2), entry("disk-write", 2, 3)]
    later = [entry("disk-read", 5, 6), entry("compute", 6, 8), entry("disk-write", 8, 9)]
    assert actions_of(None) == []
    assert [name for name, *_ in actions_of(earlier)] == ["transfer", "compute", "disk-write"]
    assert actions_of([*earlier, *later]) == [
        ("disk-read", 5, 6),
        ("compute", 6, 8),
        ("disk-write", 8, 9),
    ]
