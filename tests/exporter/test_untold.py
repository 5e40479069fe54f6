"""Computations that nobody takes for long: bounded, counted, and told whole if they are told."""

from __future__ import annotations

from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster, wait

import daskscope
from daskscope.observe import computations
from daskscope.plugin import NAME
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder


def inc(x: int) -> int:
    return x + 1


def double(x: int) -> int:
    return 2 * x


def count(dask_scheduler: Any) -> None:
    dask_scheduler.plugins[NAME]._running.observer.transitions.count()


def run(client: Client, number: int) -> list[Any]:
    """Run two groups of one task each; return what holds their results."""
    first = delayed(double)(number)
    held = client.compute([first, delayed(inc)(first)])
    wait(held)
    client.run_on_scheduler(count)
    return list(held)


def test_as_many_go_as_have_the_groups_that_are_too_many(
    cluster: LocalCluster, client: Client, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    scheduler: Any = cluster.scheduler
    monkeypatch.setattr(computations, "MAX_WAITING", 6)
    for number in range(5):
        run(client, number)
    assert scheduler.plugins[NAME]._running.observer.rows_wait()
    assert scheduler.plugins[NAME]._running.observer._computations.waiting() == 3
    assert scheduler.plugins[NAME].drops["computation"] == 2


def test_one_that_had_to_go_and_is_told_after_all_is_told_with_all_its_groups(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    monkeypatch.setattr(computations, "MAX_WAITING", 2)
    first, second = run(client, 1)
    run(client, 2)
    # What is let go has changed. The other group has not.
    second.release()
    recorder.wait_for(
        lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 1,
        "Dask to forget all but one task",
    )
    client.run_on_scheduler(count)
    daskscope.explain(client)

    told = recorder.computation(lambda row: row.states.get("forgotten") == 1)
    groups = recorder.groups(told.id)
    assert {name: group.completed for name, group in groups.items()} == {"double": 1, "inc": 1}
    assert first.result() == 2
