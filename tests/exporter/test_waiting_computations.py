"""Computations that nobody takes, for a thread or what it waits for hangs: few of them wait."""

from __future__ import annotations

from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, Event, LocalCluster, wait

import daskscope
from daskscope.observe.tasks import unsent
from daskscope.plugin import NAME
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import double, fail, hold, inc

pytestmark = [pytest.mark.usefixtures("loops_never_pause"), pytest.mark.contract]


@pytest.mark.uncounted("more computations wait than are kept")
def test_computations_that_nobody_takes_are_bounded_and_counted(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(interval="1h")
    scheduler: Any = cluster.scheduler
    running = scheduler.plugins[NAME].session
    monkeypatch.setattr(unsent, "MAX_WAITING", 3)
    for number in range(5):
        client.submit(inc, number, pure=False).result()
        client.run_on_scheduler(_count)

    assert running.observer._computations.waiting() == 3
    cluster.sync(scheduler.plugins[NAME].close)
    recorder.wait_for(lambda: recorder.beats[-1].phase == "stop", "the last beat")
    assert len(recorder.computations()) == 3
    assert recorder.beats[-1].drops["computation"] == 2


@pytest.mark.uncounted("more computations wait than are kept")
def test_one_that_runs_is_told_with_all_its_groups_however_many_come_after_it(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(interval="1h")
    scheduler: Any = cluster.scheduler
    monkeypatch.setattr(unsent, "MAX_WAITING", 3)
    # The first group does not change again: its result is held.
    first = delayed(double)(1)
    held = client.compute([first, delayed(hold)(first, "runs")])
    assert held[0].result() == 2
    for number in range(5):
        client.submit(inc, number, pure=False).result()
        client.run_on_scheduler(_count)
    Event("runs", client=client).set()
    wait(held)
    daskscope.explain(client)

    computation = recorder.computation(lambda row: row.tasks == 2)
    groups = recorder.groups(computation.id)
    assert {name: group.completed for name, group in groups.items()} == {"double": 1, "hold": 1}
    # The one that runs has two groups of the three that may wait, and one other has the third.
    assert scheduler.plugins[NAME].drops["computation"] == 4


@pytest.mark.uncounted("more computations wait than are kept")
def test_those_that_never_had_to_run_are_bounded_and_counted_too(
    cluster: LocalCluster, client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where code is refused, what has another name comes from another line.
    register(interval="1h", computation__code__transmit=False)
    scheduler: Any = cluster.scheduler
    monkeypatch.setattr(unsent, "MAX_WAITING", 3)
    failed = client.submit(fail, 1)
    wait(failed)
    for number in range(5):
        wait(client.submit(_work(number), failed))
        client.run_on_scheduler(_count)

    ours = scheduler.plugins[NAME].session.observer._computations
    assert ours.waiting() == 3
    assert scheduler.plugins[NAME].drops["computation"] == 3
    assert len(ours._arrived) == 3


def _run(client: Client, number: int) -> list[Any]:
    """Run two groups of one task each; return what holds their results."""
    first = delayed(double)(number)
    held = client.compute([first, delayed(inc)(first)])
    wait(held)
    client.run_on_scheduler(_count)
    return list(held)


@pytest.mark.uncounted("more computations wait than are kept")
def test_as_many_go_as_have_the_groups_that_are_too_many(
    cluster: LocalCluster, client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    scheduler: Any = cluster.scheduler
    monkeypatch.setattr(unsent, "MAX_WAITING", 6)
    for number in range(5):
        _run(client, number)
    assert scheduler.plugins[NAME].session.observer.snapshots.rows_wait()
    assert scheduler.plugins[NAME].session.observer._computations.waiting() == 3
    assert scheduler.plugins[NAME].drops["computation"] == 2


@pytest.mark.uncounted("a part of it has to go")
def test_one_that_had_to_go_and_is_told_after_all_is_told_with_all_its_groups(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    monkeypatch.setattr(unsent, "MAX_WAITING", 2)
    first, second = _run(client, 1)
    _run(client, 2)
    # What is let go has changed. The other group has not.
    second.release()
    recorder.wait_for(
        lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 1,
        "Dask to forget all but one task",
    )
    client.run_on_scheduler(_count)
    daskscope.explain(client)

    told = recorder.computation(lambda row: row.states.get("forgotten") == 1)
    groups = recorder.groups(told.id)
    assert {name: group.completed for name, group in groups.items()} == {"double": 1, "inc": 1}
    assert first.result() == 2


def _work(number: int) -> Any:
    """Return something with a name of its own, so that nothing joins another computation."""
    return type(f"Work{number}", (), {"__call__": lambda self, x: x})()


def _count(dask_scheduler: Any) -> None:
    dask_scheduler.plugins[NAME].session.observer.transitions.count()
