"""What the cluster did while a computation ran, however short that was and however late told."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster
from distributed.core import Status

import daskscope
from daskscope import names
from daskscope.observe import meanwhile as module
from daskscope.observe.meanwhile import MAX_NOTES, History, Meanwhile, ThreadSeconds
from daskscope.observe.workers.beats import WorkerBeats
from daskscope.observe.workers.metrics import BytesMoved
from daskscope.worker_process import METRIC
from tests.exporter.conftest import TOKEN, Register, close_plugin
from tests.exporter.recorder import Recorder
from tests.exporter.truth import Truth
from tests.patience import wait_until


def nap(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def hold_the_lock(length: int) -> None:
    re.match("(a|a)*b", "a" * length)


@pytest.mark.contract
def test_a_run_shorter_than_a_beat_has_what_the_threads_did(
    client: Client, register: Register, equals_truth: Truth, recorder: Recorder
) -> None:
    register(interval="1h")
    client.gather(client.map(nap, [1], seconds=0.5, pure=False))
    time.sleep(0.5)  # idle time that is none of its own
    client.gather(client.map(nap, range(6), seconds=0.1, pure=False))
    close_plugin(client)
    one, six = sorted(recorder.computations().values(), key=lambda row: row.started_at)
    for row in (one, six):
        assert row.ended_at is not None
        took = row.ended_at - row.started_at
        assert sum(row.worker_seconds.values()) == pytest.approx(2 * took, abs=0.2)
    # One of two threads had nothing to do.
    assert one.worker_seconds["idle"] >= 0.45
    assert six.worker_seconds["idle"] <= 0.3
    assert (one.spilled_bytes, one.unspilled_bytes) == (0, 0)
    assert one.host_load is not None
    assert one.loop_interval is not None


def test_bytes_of_a_run_just_before_its_cluster_closes_are_not_known(recorder: Recorder) -> None:
    with (
        LocalCluster(n_workers=1, dashboard_address=":0", silence_logs=False) as cluster,
        Client(cluster) as client,
    ):
        client.submit(nap, 0, seconds=0, pure=False).result()  # what comes first takes a while
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="1h")
        scheduler: Any = cluster.scheduler
        (worker,) = scheduler.workers.values()
        seen = worker.last_seen
        wait_until(lambda: worker.last_seen > seen, what="a heartbeat")
        client.submit(nap, 1, seconds=0.01, pure=False).result()
        close_plugin(client)
    (row,) = recorder.computations().values()
    assert row.status == "finished"
    assert (row.spilled_bytes, row.unspilled_bytes, row.transferred_bytes) == (None,) * 3


def test_a_task_that_holds_its_workers_event_loop_up_is_seen(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    began, length = time.monotonic(), 22
    while time.monotonic() - began < 0.5:  # as fast as this machine is
        began, length = time.monotonic(), length + 1
        hold_the_lock(length)
    # One after the other: Dask tells a mean over a second or more.
    client.gather(client.map(hold_the_lock, [length + 1] * 4, pure=False))
    row = recorder.computation(lambda row: (row.loop_interval or 0.0) > 0.3)
    assert row.heartbeat_age is not None
    assert row.heartbeat_age > 0.3


def test_what_no_worker_can_run_says_what_it_asks_for(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wanted = client.map(nap, range(3), seconds=0, resources={"GPU": 2}, pure=False)
    row = recorder.wait_for(
        lambda: next(
            (row for row in recorder.computations().values() if (row.unrunnable_seconds or 0) > 1),
            None,
        ),
        "tasks that wait for a worker",
    )
    assert row.asks == {"GPU=2": 3}
    client.cancel(wanted)
    assert recorder.computation().asks == {"GPU=2": 3}


def test_queued_tasks_wait_for_a_worker_where_there_is_none(recorder: Recorder) -> None:
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=False) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        wanted = client.map(nap, range(10), seconds=0, pure=False)
        row = recorder.wait_for(
            lambda: next(
                (
                    row
                    for row in recorder.computations().values()
                    if (row.unrunnable_seconds or 0) > 1
                ),
                None,
            ),
            "tasks that wait for any worker",
        )
        status = recorder.beats[-1].status
        assert row.states == {"queued": 10}
        assert row.asks == {"any worker": 10}
        # It is work, for which the cluster stays.
        assert status.busy_by == ("tasks wait for a worker that can run them",)
        assert status.idle_seconds is None
        recorder.wait_for(
            lambda: {(): 10} in recorder.points(names.TASK_UNRUNNABLE), "them among the metrics"
        )
        client.cancel(wanted)
        ended = recorder.computation()
    assert ended.status == "cancelled"
    assert ended.worker_seconds == {"busy": 0.0, "idle": 0.0, "paused": 0.0}


def test_what_waits_for_a_worker_after_a_computation_has_ended_is_not_its_time(
    recorder: Recorder,
) -> None:
    with (
        LocalCluster(n_workers=1, dashboard_address=":0", silence_logs=False) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        wanted = client.map(nap, range(3), seconds=0, pure=False)
        client.gather(wanted)
        assert recorder.computation().asks == {}
        cluster.scale(0)
        # Its results went with the worker: Dask would compute them again.
        waits = recorder.wait_for(
            lambda: next((b.seq for b in recorder.beats if b.status.held_by.get("queued")), None),
            "tasks that wait for any worker",
        )
        recorder.wait_for(lambda: recorder.beats[-1].seq > waits + 15, "more than a second")
        row = recorder.computation()
    assert (row.status, row.unrunnable_seconds, row.asks) == ("finished", 0, {})


@pytest.mark.usefixtures("equals_truth")
def test_what_a_computation_waits_for_is_not_forgotten_by_its_end(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="1h")
    held = client.submit(_hold, "meanwhile", pure=False)
    Event("meanwhile runs", client=client).wait(timeout=30)
    Event("meanwhile", client=client).set()
    held.result()
    close_plugin(client)
    (row,) = recorder.computations().values()
    assert row.unrunnable_seconds == 0
    assert row.asks == {}


def _hold(name: str) -> None:
    Event(f"{name} runs").set()
    Event(name).wait()


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Clock]:
    clock = _Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    monkeypatch.setattr(module, "time", lambda: clock.now + 1_000_000)
    return clock  # type: ignore[return-value]


class _Cluster:
    """Four threads, some of them free."""

    def __init__(self, clock: _Clock) -> None:
        self.clock = clock
        self.free = 4
        self.idle, self.since = 0.0, clock.now
        self.moved = (0.0, 0.0, 0.0)

    def has_free(self, free: int) -> None:
        self.spent(self.clock.now)
        self.free = free

    def spent(self, now: float) -> tuple[float, float, float]:
        self.idle += self.free * (now - self.since)
        self.since = now
        return 4 * (now - 100.0), self.idle, 0.0


def watch(cluster: _Cluster) -> Meanwhile:
    return Meanwhile(
        spent=cluster.spent,
        threads=lambda: (4, cluster.free, 0),
        moved=lambda: cluster.moved,
    )


def test_threads_of_a_time_that_ended_long_before_it_was_counted(clock: _Clock) -> None:
    cluster = _Cluster(clock)
    meanwhile = watch(cluster)
    stretch = meanwhile.begin()
    for free, seconds in ((1, 10.0), (4, 5.0), (0, 20.0)):
        cluster.has_free(free)
        meanwhile.look()
        clock.now += seconds
    # It ended 2 s after its threads had become free, and nobody looked then.
    stretch.end(clock.now - 23.0 + 1_000_000)
    during = stretch.during()
    assert during is not None
    assert during.spent == pytest.approx(ThreadSeconds(48.0, 10.0 + 8.0, 0.0))
    stretch.end(clock.now - 5.0 + 1_000_000)
    during = stretch.during()
    assert during is not None
    assert during.spent == pytest.approx(ThreadSeconds(120.0, 10.0 + 20.0, 0.0))


def test_bytes_that_come_with_the_next_beat_are_told_once_more(clock: _Clock) -> None:
    cluster = _Cluster(clock)
    meanwhile = watch(cluster)
    stretch = meanwhile.begin()
    clock.now += 2.0
    stretch.end(clock.now + 1_000_000)
    told = stretch.during()
    assert told is not None
    assert told.moved == (0.0, 0.0, 0.0)
    assert not stretch.settled()
    clock.now += 0.5
    cluster.moved = (700.0, 20.0, 3.0)
    for _ in range(module.TICKS + 1):
        meanwhile.look()
    clock.now += 10.0
    cluster.moved = (900.0, 20.0, 3.0)  # of something else
    for _ in range(module.TICKS + 1):
        meanwhile.look()
    assert stretch.settled()
    assert stretch.has_more()
    told = stretch.during()
    assert told is not None
    assert told.moved == (700.0, 20.0, 3.0)
    assert not stretch.has_more()


def test_bytes_that_no_heartbeat_reported_are_not_measured(clock: _Clock) -> None:
    meanwhile = watch(_Cluster(clock))
    meanwhile.note("a", 0.02, 0.0, None)
    clock.now += 0.1
    stretch = meanwhile.begin()
    assert stretch.moved(["a"]) is None
    clock.now += 1.0
    meanwhile.note("a", 0.02, 0.9, None)
    assert stretch.moved(["a"]) == (0.0, 0.0, 0.0)
    clock.now += 1.0
    stretch.end(clock.now + 1_000_000)
    meanwhile.note("b", 0.02, 0.0, None)
    # Most of it is not reported, and the other worker did nothing for it.
    assert stretch.moved(["a"]) is None
    meanwhile.note("a", 0.02, 0.5, None)
    clock.now += 3.0
    assert stretch.has_more()
    assert stretch.moved(["a"]) == (0.0, 0.0, 0.0)
    assert not stretch.has_more()
    # It remains so when the worker is forgotten.
    assert stretch.moved([]) == (0.0, 0.0, 0.0)


def test_the_most_that_workers_said_is_that_of_its_time(clock: _Clock) -> None:
    meanwhile = watch(_Cluster(clock))
    meanwhile.note("a", 5.0, 9.0, 3.0)
    clock.now += 10.0
    stretch = meanwhile.begin()
    meanwhile.note("a", 0.02, 0.4, None)
    clock.now += 3.0
    meanwhile.note("a", 1.2, 0.9, 0.5)
    clock.now += 1.5
    stretch.end(clock.now + 1_000_000)
    clock.now += 3.0
    meanwhile.note("a", 7.0, 9.0, 3.0)
    during = stretch.during()
    assert during is not None
    assert during.most == (1.2, 0.9, 0.5)


def test_what_is_forgotten_is_not_made_up() -> None:
    history = History()
    for number in range(2 * MAX_NOTES + 1):
        history.add(float(number), (float(number),))
    assert history.around(1.0) is None
    assert history.around(2.0 * MAX_NOTES - 0.5) == (
        (2.0 * MAX_NOTES - 1, (2.0 * MAX_NOTES - 1,)),
        (2.0 * MAX_NOTES, (2.0 * MAX_NOTES,)),
    )
    assert history.around(1e9) == ((2.0 * MAX_NOTES, (2.0 * MAX_NOTES,)), None)


def test_bytes_are_those_of_dasks_own_keys_and_no_nonsense() -> None:
    metrics: dict[Any, float] = {
        ("execute", "inc", "disk-read", "bytes"): 5.0,
        ("execute", "inc", "disk-read", "seconds"): 99.0,
        ("p2p", "background", "disk-write", "bytes"): 99.0,
    }
    moved = BytesMoved(metrics)
    assert moved.so_far() == (0.0, 5.0, 0.0)
    metrics["memory-monitor", "disk-write", "bytes"] = 7.0
    metrics["get-data", "memory-read", "bytes"] = 11.0
    metrics["get-data", "disk-read", "bytes"] = 2.0
    assert moved.so_far() == (7.0, 7.0, 13.0)
    metrics["execute", "own", "disk-write", "bytes"] = float("nan")
    assert moved.so_far() == (0.0, 7.0, 13.0)


def test_after_a_late_heartbeat_what_workers_did_is_awaited_for_longer() -> None:
    meanwhile = Meanwhile(
        spent=lambda at: (0.0, 0.0, 0.0), threads=lambda: (0, 0, 0), moved=lambda: (0.0, 0.0, 0.0)
    )
    for silence, lag in ((None, 1.0), (0.3, 1.0), (1.75, 2.25), (100.0, 5.0)):
        if silence is not None:
            meanwhile.note("a", 0.02, silence, None)
        meanwhile.expect_heartbeats(0.5)
        assert meanwhile.lag == lag
    # Of very many workers, who send one every ten seconds.
    meanwhile.expect_heartbeats(10.0)
    assert meanwhile.lag == 20.0


def test_each_worker_is_looked_at_once_a_beat_and_none_that_has_left() -> None:
    def worker(number: int, **fields: Any) -> Any:
        sample: Any = (0.0, 0.0, 0, 1, {}, False, 0, 4, 6.0)
        metrics = {"event_loop_interval": float(number), METRIC: sample}
        return SimpleNamespace(
            address=str(number), metrics=metrics, last_seen=0.0, status=Status.running, **fields
        )

    workers = [worker(number) for number in range(200)]
    workers[3].status = Status.closed
    del workers[4].metrics[METRIC]
    seen: list[tuple[str, float, float, float | None]] = []
    beats = WorkerBeats(lambda *said: seen.append(said))
    ticks = 0
    while len(seen) < 199:
        beats.look(workers)
        ticks += 1
    assert {said[1] for said in seen} == set(map(float, range(200))) - {3.0}
    assert {said[1]: said[3] for said in seen} == {
        float(number): None if number == 4 else 1.5 for number in range(200) if number != 3
    }
    assert ticks <= beats.interval * 50
