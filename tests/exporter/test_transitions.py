"""Transitions are noted on the event loop, and counted in another thread: all of them."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import Any

import dask.bag
import pytest
from distributed import Client, Event, LocalCluster, wait
from distributed.metrics import monotonic
from distributed.scheduler import Scheduler

from daskscope.observe import transitions
from daskscope.observe.observer import Observer
from daskscope.observe.tasks import computation as computation_module
from daskscope.observe.tasks.computations import Computations
from daskscope.plugin import NAME
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import double, hold, inc
from tests.exporter.test_scale import forgotten, held, observer_of, run
from tests.patience import wait_on_loop, wait_until

pytestmark = [
    pytest.mark.usefixtures("loops_never_pause"),
    pytest.mark.contract,
    pytest.mark.uncounted("it takes snapshots that are never sent"),
]


def fail() -> None:
    raise ValueError


async def given(dask_scheduler: Scheduler) -> float:
    """Wait until a worker has a task. Return when."""
    workers = dask_scheduler.workers
    await wait_on_loop(
        lambda: any(worker.processing for worker in workers.values()), what="a task on a worker"
    )
    return monotonic()


async def known(count: int, dask_scheduler: Scheduler) -> None:
    """Wait until so many tasks are known."""
    await wait_on_loop(lambda: len(dask_scheduler.tasks) >= count, what="all tasks")


async def taken_to_count(dask_scheduler: Scheduler) -> None:
    """Wait until no transitions wait that a quiet loop has counted.

    Some may stay: a loop that was quiet in between had those before them counted already.
    """
    plugin: Any = dask_scheduler.plugins[NAME]
    noted = plugin.session.observer.transitions
    few = transitions.WORTHWHILE * transitions._OF_STEP
    await wait_on_loop(
        lambda: len(noted._steps) < few and not noted._waiting, what="the end of the count"
    )


def test_they_are_counted_off_the_event_loop(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()
    count = Computations.count

    def noted(self: Computations, *args: Any) -> None:
        counted[threading.current_thread().name] += 1
        count(self, *args)

    monkeypatch.setattr(Computations, "count", noted)
    monkeypatch.setattr(transitions, "AT_ONCE", 100)
    register()
    run(client, 500)

    # What is left when a beat is due is counted on the loop.
    assert counted["daskscope-count"] > 0
    computation = recorder.computation()
    assert (computation.tasks, computation.completed) == (500, 500)


def test_so_is_what_is_left_once_the_loop_is_quiet(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    threads = []
    count = Computations.count

    def counted(self: Computations, *args: Any) -> None:
        threads.append(threading.current_thread().name)
        count(self, *args)

    monkeypatch.setattr(Computations, "count", counted)
    futures = client.map(inc, range(transitions.WORTHWHILE // 2), pure=False)
    wait(futures)
    client.run_on_scheduler(taken_to_count)

    assert set(threads) == {"daskscope-count"}
    (row,) = observer_of(cluster).snapshots.whole("beat").computations
    assert row.states == {"memory": transitions.WORTHWHILE // 2}


@pytest.mark.own_cluster
def test_none_is_left_out_while_the_other_thread_does_not_get_its_turn(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transitions, "AT_ONCE", 100)
    monkeypatch.setattr(transitions, "MAX_WAITING", 2)
    register(interval="1h")
    noted = observer_of(cluster).transitions
    waiting = []
    noted._many_wait = lambda: waiting.append(len(noted._waiting))
    run(client, 100)

    assert len(waiting) > 1
    assert set(waiting) == {1}
    assert len(noted._waiting) < 2
    cluster.close()
    computation = recorder.computation()
    assert (computation.tasks, computation.completed) == (100, 100)
    assert computation.status == "finished"


def test_never_do_more_wait_than_are_counted_at_once_though_many_err_in_one_go(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transitions, "AT_ONCE", 50)
    register(interval="1h")
    noted = observer_of(cluster).transitions
    sizes = []
    count = noted._many_wait

    def many_wait() -> None:
        sizes.append(max(len(steps) // 3 for steps, *_ in tuple(noted._waiting)))
        count()

    noted._many_wait = many_wait
    # None of them runs: they wait for one that fails, and err with it.
    failed = client.submit(fail, pure=False)
    dependents = client.map(inc, [failed] * 1_000, pure=False)
    wait(dependents)

    assert len(sizes) > 10
    assert max(sizes) == 50
    assert len(noted._steps) // 3 < 50


def test_threads_have_a_task_from_the_moment_on_that_it_is_theirs_until_it_ends(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    observer = observer_of(cluster)
    before = observer.snapshots.whole("beat").workers
    future = client.submit(hold, 1, "threads")
    began: float = client.run_on_scheduler(given)
    worked = monotonic() - began
    during = observer.snapshots.whole("beat").workers
    Event("threads", client=client).set()
    future.result()
    ended = monotonic()
    while monotonic() < ended + 2 * (ended - began):
        client.run_on_scheduler(id, 1)
    rested = monotonic() - ended
    after = observer.snapshots.whole("beat").workers

    assert during.unassigned - before.unassigned <= during.capacity - before.capacity - worked
    assert after.unassigned - during.unassigned >= after.threads * rested


def test_a_key_that_comes_back_is_another_task(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    for _ in range(2):
        client.submit(inc, 1, key="again", pure=False).result()
        client.run_on_scheduler(forgotten)

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert sum(row.tasks for row in rows) == 2
    assert sum(row.completed for row in rows) == 2


def test_nor_is_it_what_went_by_that_key_before_daskscope_came(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    before = client.submit(inc, 1, key="again", pure=False)
    before.result()
    register(interval="1h")
    del before
    client.run_on_scheduler(forgotten)
    after = client.submit(inc, 1, key="again", pure=False)
    after.result()

    (row,) = observer_of(cluster).snapshots.whole("beat").computations
    assert (row.status, row.tasks, row.completed, row.states) == ("finished", 1, 1, {"memory": 1})


def test_a_graph_does_not_wait_until_what_it_has_nothing_to_do_with_is_counted(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    noted = observer_of(cluster).transitions
    futures = client.map(inc, range(10), pure=False)
    wait(futures)
    waiting = len(noted._steps)
    others = client.map(hold, range(1), ["others"], pure=False)
    client.run_on_scheduler(given)

    assert len(noted._steps) > waiting > 0
    Event("others", client=client).set()
    wait(others)
    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert sorted((row.status, row.completed) for row in rows) == [
        ("finished", 1),
        ("finished", 10),
    ]


def counted_by(observer: Observer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many transitions wait each time that all are counted, from now on."""
    counts: list[int] = []
    count = observer.transitions.count

    def count_noted() -> None:
        counts.append(len(observer.transitions._steps))
        count()

    monkeypatch.setattr(observer.transitions, "count", count_noted)
    return counts


def test_nor_does_one_of_a_loop_whose_last_task_is_still_at_work(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    observer = observer_of(cluster)
    counted = counted_by(observer, monkeypatch)
    futures = []
    for number in range(5):
        held = client.submit(hold, number, "two lines", pure=False)
        futures += [held, client.submit(inc, held, pure=False)]
    client.run_on_scheduler(known, 10)
    while_they_came = list(counted)
    Event("two lines", client=client).set()
    wait(futures)

    assert not while_they_came
    rows = observer.snapshots.whole("beat")
    assert [(row.status, row.tasks, row.completed) for row in rows.computations] == [
        ("finished", 5, 5)
    ] * 2
    needs = {group.prefix: group.dependencies for group in rows.task_groups}
    assert needs == {"hold": (), "inc": ("hold",)}


def test_nor_does_one_of_a_loop_whose_last_task_has_just_ended(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    observer = observer_of(cluster)
    counted = counted_by(observer, monkeypatch)
    futures = []
    for number in range(5):
        futures.append(client.submit(inc, number, pure=False))
        wait(futures[-1])
        futures += client.map(double, range(2), pure=False)
        wait(futures)
    while_they_came = list(counted)

    assert not while_they_came
    rows = observer.snapshots.whole("beat").computations
    assert sorted((row.status, row.tasks, row.completed) for row in rows) == [
        ("running", 5, 5),
        ("running", 10, 10),
    ]


def test_one_of_a_loop_whose_last_task_was_let_go_is_another_computation(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    for number in range(2):
        futures = client.map(hold, range(1), [f"let go {number}"], pure=False)
        client.run_on_scheduler(given)
        client.cancel(futures)
        client.run_on_scheduler(forgotten)
        Event(f"let go {number}", client=client).set()

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert [(row.status, row.tasks) for row in rows] == [("cancelled", 1), ("cancelled", 1)]


def test_nor_does_any_once_all_tasks_from_before_daskscope_came_are_gone(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client.submit(inc, 1, pure=False)
    before.result()
    register(interval="1h")
    observer = observer_of(cluster)
    counted = counted_by(observer, monkeypatch)
    wait(client.submit(inc, 1, pure=False))
    assert counted

    del before
    client.run_on_scheduler(forgotten)
    observer.snapshots.whole("beat")
    counted.clear()
    wait(client.map(inc, range(3), pure=False))
    assert not counted


@pytest.mark.own_cluster
def test_what_ended_before_a_restart_has_ended(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    futures = client.map(inc, range(5), pure=False)
    wait(futures)
    client.restart()

    (row,) = observer_of(cluster).snapshots.whole("beat").computations
    assert (row.status, row.completed, row.cancelled) == ("finished", 5, 0)


def _has_settled(observer: Observer) -> bool:
    observer.snapshots.whole("beat")
    return not observer._computations._settling


def test_collections_that_dask_has_forgotten_leave_nothing(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    observer = observer_of(cluster)
    sizes = []
    for size in (1, 2, 4, 8):
        numbers = dask.bag.from_sequence(range(size), npartitions=size)
        assert len(client.compute(numbers.map(inc)).result()) == size
        client.run_on_scheduler(forgotten)
        assert observer.snapshots.whole("beat").task_groups
        wait_until(partial(_has_settled, observer), what="what comes with the workers' next beats")
        sizes.append(held(observer._computations))

    # An activity is there from its first moment on, which may be in any of them; there are few.
    for held_then in sizes:
        assert held_then.pop("._prefixes._first_runs._prefixes_of[][].seconds") <= 12
    # What the first one left is there once: names, totals.
    assert sizes[-1] == sizes[1], sizes[-1] - sizes[1]
