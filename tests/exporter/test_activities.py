"""Where the workers' threads were: rows that add up to all the time they had, on real clusters."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster, Reschedule, Worker, secede
from distributed.metrics import context_meter
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.observe.naming import Naming
from daskscope.observe.workers.metrics import WorkerMetrics
from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder
from tests.exporter.truth import Truth
from tests.patience import PATIENCE, wait_until

pytestmark = pytest.mark.contract

Rows = dict[str, dict[str, float]]

_seq = attrgetter("seq")


def spin(number: int, seconds: float) -> int:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass
    return number


def sleep(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def hold(name: str) -> None:
    Event(f"{name} is running").set()
    Event(name).wait()


def fail(seconds: float) -> None:
    time.sleep(seconds)
    raise ValueError


def metered_for(number: int, seconds: float) -> int:
    with context_meter.meter("my own label"):
        time.sleep(seconds)
    return number


def secedes(number: int, seconds: float) -> int:
    time.sleep(seconds)
    secede()
    time.sleep(seconds)
    return number


def metered() -> None:
    with context_meter.meter("my own label"):
        time.sleep(0.2)
    context_meter.digest_metric("nonsense", float("nan"), "seconds")
    context_meter.digest_metric(("a", "tuple"), 5.0, "widgets")


def rows_at(recorder: Recorder, seq: int) -> Rows:
    """All rows as they were told up to one beat: only those that change are sent."""
    beats = sorted(recorder.beats, key=_seq)
    return {row.prefix: row.seconds for beat in beats if beat.seq <= seq for row in beat.activities}


def total(rows: Rows) -> float:
    return sum(sum(seconds.values()) for seconds in rows.values())


def wait_for_rows(recorder: Recorder, fits: Any, what: str) -> tuple[protocol.Heartbeat, Rows]:
    def look() -> tuple[protocol.Heartbeat, Rows] | None:
        beats = recorder.beats
        if not beats:
            return None
        last = max(beats, key=_seq)
        rows = rows_at(recorder, last.seq)
        return (last, rows) if fits(rows) else None

    return recorder.wait_for(look, what)


AddsUp = Callable[[protocol.Heartbeat, Rows], None]


@pytest.fixture
def assert_adds_up(counts_equal_truth: Truth) -> AddsUp:
    """Compare all rows up to a beat with the threads' time since the plugin came."""

    def assert_adds_up(last: protocol.Heartbeat, rows: Rows) -> None:
        had = counts_equal_truth.spent(counts_equal_truth.began_at, last.status.at).threads
        # What is missing or counted twice is a second or more.
        assert total(rows) == pytest.approx(had, rel=0.02, abs=0.5)
        assert all(value >= 0 for seconds in rows.values() for value in seconds.values())

    return assert_adds_up


@pytest.fixture(autouse=True)
def _workers_know_this_module(client: Client) -> None:
    # Importing it takes a worker as long as the tasks below.
    client.submit(spin, -1, seconds=0, pure=False).result()


def test_rows_add_up_to_all_time_while_a_long_task_runs(
    client: Client,
    register: Register,
    recorder: Recorder,
    assert_adds_up: AddsUp,
) -> None:
    register()
    long = client.submit(hold, "long")
    client.gather(client.map(spin, range(20), seconds=0.05))
    client.gather(client.map(sleep, range(20), seconds=0.05))
    last, rows = wait_for_rows(
        recorder,
        lambda rows: rows.get("sleep", {}).get("thread-noncpu", 0) >= 1 and "hold" in rows,
        "the time of all short tasks",
    )

    assert_adds_up(last, rows)
    # Told twice it would be two seconds. Where there is little CPU, sleep takes its time.
    assert 0.95 < rows["spin"]["thread-cpu"] < 1.9
    assert rows["sleep"]["thread-noncpu"] > 0.95
    # The long one has had its thread all along.
    assert rows["hold"]["running"] > rows["spin"]["thread-cpu"]

    Event("long", client=client).set()
    long.result()
    last, rows = wait_for_rows(
        recorder,
        # Other tests have run what is called so on this cluster.
        lambda rows: rows["hold"]["running"] == 0.0 and rows["hold"].get("thread-noncpu", 0) > 1,
        "the end of the long task",
    )
    assert_adds_up(last, rows)


def test_while_each_thread_has_a_task_all_time_is_theirs(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    names = [f"busy {number}" for number in range(sum(client.nthreads().values()))]
    held = client.map(hold, names)
    for name in names:
        Event(f"{name} is running", client=client).wait(timeout=PATIENCE)
    # The worker has told of them, and there is nothing else to be told.
    _, before = wait_for_rows(
        recorder, lambda rows: rows.get("hold", {}).get("running", 0) > 0.5, "the time of both"
    )

    def all_theirs(rows: Rows) -> bool:
        had = total(rows) - total(before)
        more = rows["hold"]["running"] - before["hold"]["running"]
        return had > 1 and more == pytest.approx(had, rel=0.1)

    # A busy machine's worker reports it late, which matters less the longer it goes on.
    _, after = wait_for_rows(recorder, all_theirs, "time that is all theirs")

    for name in names:
        Event(name, client=client).set()
    client.gather(held)
    # Workers tell of their tasks' time a while later, which the next test is not to get.
    wait_for_rows(
        recorder,
        lambda rows: (
            sum(rows["hold"].values()) >= after["hold"]["running"]
            and rows["hold"]["running"] == 0.0
        ),
        "the end of both",
    )


def wait_until_told_of(cluster: LocalCluster, *, tasks: int, seconds: float) -> None:
    """Wait until the worker has told the scheduler that so many tasks run for so long."""
    assert cluster.scheduler is not None
    (worker,) = cluster.scheduler.workers.values()
    wait_until(lambda: sum(took > seconds for took in list(worker.executing.values())) >= tasks)


def test_what_ran_before_the_plugin_came_is_not_counted(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    assert_adds_up: AddsUp,
) -> None:
    early = client.submit(hold, "early")
    wait_until_told_of(cluster, tasks=1, seconds=2.5)
    register()
    last, rows = wait_for_rows(
        recorder, lambda rows: rows.get("hold", {}).get("running", 0) > 0.5, "the task as running"
    )
    assert_adds_up(last, rows)

    Event("early", client=client).set()
    early.result()
    client.gather(client.map(spin, range(4), seconds=0.1, pure=False))
    last, rows = wait_for_rows(
        recorder,
        lambda rows: (
            rows.get("hold", {}).get("running") == 0.0
            and rows["hold"].get("thread-noncpu", 0) > 0.5
            and rows.get("spin", {}).get("thread-cpu", 0) > 0.35
        ),
        "all their time",
    )
    assert_adds_up(last, rows)
    busy = last.status.worker_seconds["busy"]
    in_threads = sum(sum(rows[prefix].values()) for prefix in ("hold", "spin"))
    assert busy == pytest.approx(in_threads, abs=0.5)
    # And none is held back for good: what runs next has all its time.
    again = client.submit(hold, "again")
    Event("again is running", client=client).wait(timeout=PATIENCE)
    client.submit(sleep, -2, seconds=1, pure=False).result()
    Event("again", client=client).set()
    again.result()
    more = sum(rows["hold"].values()) + 1
    last, rows = wait_for_rows(
        recorder,
        lambda rows: sum(rows["hold"].values()) > more and rows["hold"]["running"] == 0.0,
        "the time of the next",
    )
    assert_adds_up(last, rows)


def test_what_had_ended_when_the_plugin_came_and_was_told_later_is_not_counted(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    assert_adds_up: AddsUp,
) -> None:
    names = ["ended 1", "ended 2"]
    ended = client.map(hold, names)
    wait_until_told_of(cluster, tasks=2, seconds=2.5)
    for name in names:
        Event(name, client=client).set()
    client.gather(ended)
    register()
    client.submit(spin, -1, seconds=0.5, pure=False).result()
    last, rows = wait_for_rows(
        recorder, lambda rows: rows.get("spin", {}).get("thread-cpu", 0) > 0.4, "a task's time"
    )
    assert_adds_up(last, rows)


def busy_after(recorder: Recorder, seconds: float) -> float:
    """Wait until more than so many thread-seconds were busy; return how many."""

    def look() -> float | None:
        beats = recorder.beats
        busy = max((beat.status.worker_seconds["busy"] for beat in beats), default=0.0)
        return busy if busy > seconds else None

    return recorder.wait_for(look, f"more than {seconds} s of work")


def test_after_a_running_task_was_cancelled_work_counts_as_before(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    cancelled = client.submit(hold, "cancelled")
    busy_after(recorder, 2.5)
    cancelled.cancel()
    client.submit(sleep, -3, seconds=0, pure=False).result()  # the scheduler has heard of it
    wait_for_rows(recorder, lambda rows: rows.get("hold", {}).get("running", 1) == 0, "its end")
    before = busy_after(recorder, 2.5)
    client.submit(sleep, -4, seconds=1, pure=False).result()
    assert busy_after(recorder, before + 0.9) < before + 2
    Event("cancelled", client=client).set()


@pytest.mark.own_cluster
def test_what_a_worker_did_until_it_was_killed_was_work(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    # Its nanny starts it anew, and the task runs once more, with a second one.
    lost = client.submit(hold, "lost")
    before = busy_after(recorder, 2.5)
    (worker,) = cluster.workers.values()
    os.kill(worker.pid, signal.SIGKILL)
    recorder.wait_for(lambda: recorder.losses() or None, "the loss")
    busy_after(recorder, before + 1)
    Event("lost", client=client).set()
    lost.result()
    first, last = min(recorder.beats, key=_seq), max(recorder.beats, key=_seq)
    # Though there was no worker for a while.
    assert sum(last.status.worker_seconds.values()) <= 2 * (last.status.at - first.status.at) + 0.5


def test_time_without_tasks_is_idle(client: Client, register: Register, recorder: Recorder) -> None:
    register()
    _, rows = wait_for_rows(recorder, lambda rows: total(rows) > 1, "a while without tasks")
    assert rows[""]["idle"] == pytest.approx(total(rows), rel=0.05)


def test_failed_tasks_and_what_users_meter_have_their_time(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    client.submit(fail, 0.3).exception()
    client.submit(metered).result()
    _, rows = wait_for_rows(
        recorder,
        lambda rows: "failed" in rows.get("fail", {}) and "other" in rows.get("metered", {}),
        "both tasks' time",
    )
    assert rows["fail"]["failed"] > 0.29
    # Labels are the user's own business; their time is not lost, but what is no number is.
    assert rows["metered"]["other"] >= 0
    assert b"my own label" not in recorder.bytes
    assert b"nonsense" not in recorder.bytes


def outlive_its_future(name: str) -> None:
    hold(name)


def test_what_executors_take_and_cancelled_tasks_have_their_time_as_dask_tells_it(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(nod, range(20), pure=False))
    unwanted = client.submit(outlive_its_future, "unwanted")
    Event("unwanted is running", client=client).wait(timeout=PATIENCE)
    unwanted.cancel()
    wait_until(lambda: all(client.run(has_cancelled).values()), what="the cancelled task")
    Event("unwanted", client=client).set()
    for prefix, activity in (("nod", "executor"), ("outlive_its_future", "cancelled")):
        _, rows = wait_for_rows(
            recorder,
            lambda rows, prefix=prefix, activity=activity: (
                rows.get(prefix, {}).get(activity, 0) == told_by_dask(cluster, prefix, activity) > 0
            ),
            f"the {activity} time of {prefix}",
        )
    # Of a task that was cancelled Dask tells nothing finer.
    assert {activity for activity, seconds in rows["outlive_its_future"].items() if seconds} == {
        "cancelled"
    }


def test_what_dask_reschedules_counts_as_cancelled_time_and_as_no_cancelled_task(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    assert client.submit(run_twice, "has been rescheduled").result() == 2
    _, rows = wait_for_rows(
        recorder, lambda rows: rows.get("run_twice", {}).get("cancelled", 0) > 0, "the first run"
    )
    assert rows["run_twice"]["cancelled"] == told_by_dask(cluster, "run_twice", "cancelled")

    def ended() -> protocol.Computation | None:
        reported = [one for beat in recorder.beats for one in beat.computations]
        return next((one for one in reported if one.status != "running"), None)

    computation = recorder.wait_for(ended, "the end")
    assert (computation.status, computation.cancelled) == ("finished", 0)


def run_twice(name: str) -> int:
    if Event(name).is_set():
        return 2
    time.sleep(0.1)
    Event(name).set()
    raise Reschedule


def has_cancelled(dask_worker: Any) -> bool:
    return any(task.state == "cancelled" for task in dask_worker.state.tasks.values())


def nod(number: int) -> None:
    pass


def told_by_dask(cluster: LocalCluster, prefix: str, label: str) -> float:
    scheduler: Any = cluster.scheduler
    metrics: dict[tuple[str, ...], float] = scheduler.cumulative_worker_metrics
    return metrics.get(("execute", prefix, label, "seconds"), 0.0)


def test_keys_of_the_users_own_are_not_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    client.submit(sleep, 1, seconds=0.1, key="marker-alice").result()
    wait_for_rows(recorder, lambda rows: len(rows) > 1, "the task's time")
    assert b"marker" not in recorder.bytes


def test_time_goes_by_the_names_that_groups_go_by(
    client: Client, register: Register, recorder: Recorder
) -> None:
    before = client.submit(hold, "before", key="marker-before")
    # Its graph travels by itself: it may else come to the scheduler after the plugin.
    Event("before is running", client=client).wait(timeout=PATIENCE)
    register(computation__code__transmit=False)
    client.gather(client.map(sleep, range(4), seconds=0.1, pure=False))
    client.gather(client.map(spin, range(4), seconds=0.1, key="marker-bob"))
    wait_for_rows(
        recorder,
        lambda rows: (
            rows.get("sleep", {}).get("thread-noncpu", 0) >= 0.4
            and rows.get("spin", {}).get("thread-cpu", 0) >= 0.35
            and rows.get("hold", {}).get("running", 0) > 0
        ),
        "the time of all three",
    )
    Event("before", client=client).set()
    before.result()
    assert {row.prefix for beat in recorder.beats for row in beat.task_groups} == {"sleep", "spin"}
    assert b"marker" not in recorder.bytes


def test_what_came_since_the_last_look_goes_by_the_name_that_is_known_by_now() -> None:
    naming, key = Naming(Counter()), ("execute", "sleep", "thread-cpu", "seconds")
    metrics = {key: 5.0}
    worker_metrics = WorkerMetrics(metrics, naming, Counter())
    assert worker_metrics.read({}).seconds == {"(own key)": {"thread-cpu": 0.0}}
    task: Any = SimpleNamespace(
        key=f"sleep-{uuid.uuid4()}",
        prefix=SimpleNamespace(name="sleep"),
        run_spec=SimpleNamespace(func=sleep),
    )
    assert naming.prefix(task) == "sleep"
    metrics[key] = 7.0
    seconds = worker_metrics.read({}).seconds
    assert seconds == {"(own key)": {"thread-cpu": 0.0}, "sleep": {"thread-cpu": 2.0}}


@pytest.mark.own_cluster
def test_time_that_dask_tells_of_two_functions_together_goes_by_neither(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    client.submit(sleep, 1, seconds=0.3, key="marker-1").result()
    _, before = wait_for_rows(
        recorder,
        lambda rows: rows.get("sleep", {}).get("thread-noncpu", 0) >= 0.3,
        "the time of the first",
    )
    client.submit(spin, 1, seconds=0.3, key="marker-2").result()
    _, after = wait_for_rows(
        recorder,
        lambda rows: rows.get("(own key)", {}).get("thread-cpu", 0) >= 0.25,
        "the time of the second",
    )
    # What was told stays: totals only ever grow.
    assert after["sleep"]["thread-noncpu"] == pytest.approx(before["sleep"]["thread-noncpu"])
    assert after.get("spin", {}).get("thread-cpu", 0) < 0.1
    assert b"marker" not in recorder.bytes


@pytest.mark.own_cluster
def test_rows_add_up_after_a_restart_and_a_lost_worker(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(sleep, range(4), seconds=0.2))
    client.restart()
    client.gather(client.map(sleep, range(4, 8), seconds=0.2))
    _held = client.submit(hold, "never")
    wait_for_rows(recorder, lambda rows: "running" in rows.get("hold", {}), "the held task")
    cluster.scale(0)
    recorder.wait_for(lambda: recorder.losses() or None, "the loss")
    last, rows = wait_for_rows(
        recorder, lambda rows: rows["hold"].get("running") == 0.0, "the end of the task"
    )

    # That may be told twice there: as busy while it was, and as idle when its worker was lost.
    had = sum(last.status.worker_seconds.values())
    assert total(rows) == pytest.approx(had, rel=0.1)
    assert rows["sleep"]["thread-noncpu"] > 0.7
    # Nobody will ever tell what it did; idle it was not.
    assert rows["hold"]["lost"] > 0


def report_no_more(dask_worker: Worker) -> None:
    dask_worker.periodic_callbacks["heartbeat"].stop()


@pytest.mark.own_cluster
def test_what_ended_after_the_last_heartbeats_has_its_time_once_the_cluster_has_stopped(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    counts_equal_truth: Truth,
) -> None:
    register()
    client.gather(client.map(sleep, range(4), seconds=0.2))
    wait_for_rows(
        recorder,
        lambda rows: rows.get("sleep", {}).get("thread-noncpu", 0) > 0.79,
        "what was reported",
    )
    client.run(report_no_more)
    client.gather(client.map(sleep, range(4, 10), seconds=0.3))
    client.gather([*client.map(metered_for, range(2), seconds=0.3)])
    for failed in client.map(fail, [0.2, 0.21]):
        assert failed.exception() is not None
    cluster.close()
    stop = recorder.wait_for(
        lambda: next((beat for beat in recorder.beats if beat.phase == "stop"), None), "the stop"
    )
    rows = rows_at(recorder, stop.seq)
    computed: Counter[str] = Counter()
    for run in counts_equal_truth.runs:
        computed[run.prefix] += run.seconds["compute"]  # type: ignore[assignment]
    for prefix in ("sleep", "metered_for", "fail"):
        row = rows[prefix]
        reported = total({"": row}) - row.get("executor", 0.0) - row.get("other", 0.0)
        assert reported == pytest.approx(computed[prefix], abs=0.02)
    assert rows["sleep"]["unsplit"] > 1.75
    assert rows["metered_for"].keys() == rows["fail"].keys() == {"unsplit"}
    # Not more than the threads had.
    had = sum(stop.status.worker_seconds.values())
    assert total(rows) == pytest.approx(had, rel=0.02)


@pytest.mark.own_cluster
def test_what_was_reported_in_time_is_not_told_again_at_the_end(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(sleep, range(8), seconds=0.1))
    client.gather(client.map(metered_for, range(4), seconds=0.1))
    client.gather(client.map(secedes, range(2), seconds=0.2))
    wait_for_rows(
        recorder,
        lambda rows: (
            rows.get("secedes", {}).get("thread-noncpu", 0) > 0.3
            and rows["secedes"].get("running", 0.0) == 0.0
        ),
        "the end of the last ones",
    )
    close_plugin(client)
    rows = recorder.activities()
    told_again = {name: row["unsplit"] for name, row in rows.items() if "unsplit" in row}
    assert sum(told_again.values()) == pytest.approx(0, abs=0.02), rows


def _heard_at(dask_scheduler: Scheduler) -> float:
    """Return when the worker that was heard least lately sent its last heartbeat."""
    return min(worker.last_seen for worker in dask_scheduler.workers.values())


@pytest.mark.own_cluster
@pytest.mark.parametrize("is_heard_again", [False, True])
def test_what_was_cancelled_and_still_ran_when_its_worker_left_has_its_time(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    *,
    is_heard_again: bool,
) -> None:
    register()
    before = time.time()
    held = client.submit(hold, "until the end")
    wait_for_rows(
        recorder, lambda rows: rows.get("hold", {}).get("running", 0) > 1, "a task that runs"
    )
    held.cancel()
    client.submit(sleep, -3, seconds=0, pure=False).result()  # the scheduler has heard of it
    now = time.time()
    took = now - before
    if is_heard_again:  # Then no worker's last heartbeat names it any more.
        wait_until(lambda: client.run_on_scheduler(_heard_at) > now + 1, what="more heartbeats")
        cluster.close()
    else:
        close_plugin(client)
    stop = recorder.wait_for(
        lambda: next((beat for beat in recorder.beats if beat.phase == "stop"), None), "the stop"
    )
    rows = rows_at(recorder, stop.seq)
    # Until it was cancelled: from then on its thread counts as idle, unless its end is reported.
    assert 1 < rows["hold"]["cancelled"] <= took + 0.1
    assert rows["hold"]["running"] == 0
    assert total(rows) == pytest.approx(sum(stop.status.worker_seconds.values()), rel=0.02)
