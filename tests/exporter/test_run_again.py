"""Graphs of tasks that Dask knows already, some of whose results are gone: they run again."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from typing import Any

import pytest
from distributed import Client, Event, wait

from daskscope import protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("equals_truth")]


def inc(x: int) -> int:
    return x + 1


def double(x: int) -> int:
    return 2 * x


def take(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def hold_if_told(x: int, name: str) -> int:
    Event(f"{name} runs").set()
    if Event(f"{name} holds").is_set():
        Event(f"{name} goes on").wait()
    return x


def fail_if_told(x: int, name: str) -> int:
    if Event(f"{name} fails").is_set():
        raise ValueError("as told")
    return x


def parts(name: str) -> dict[Any, Any]:
    return {(name, number): (inc, number) for number in range(4)}


def two_layers(name: str) -> dict[Any, Any]:
    return parts(name) | {
        (f"{name}-doubled", number): (double, (name, number)) for number in range(4)
    }


def told(recorder: Recorder, count: int) -> list[protocol.Computation]:
    """Wait until so many computations have ended; return them in their order."""

    def look() -> list[protocol.Computation] | None:
        rows = sorted(recorder.computations().values(), key=lambda row: row.started_at)
        ended = len(rows) == count and all(row.status != "running" for row in rows)
        return rows if ended else None

    return recorder.wait_for(look, f"the end of {count} computations")


def wait_until(recorder: Recorder, client: Client, state: str, count: int, name: str) -> None:
    """Wait until Dask has so many tasks in that state in groups that are called so."""

    def look(dask_scheduler: Any) -> int:
        return sum(
            group.states[state]
            for group in dask_scheduler.task_groups.values()
            if group.name.startswith(name)
        )

    recorder.wait_for(lambda: client.run_on_scheduler(look) == count, f"{count} {state}")


def test_some_results_of_a_graph_that_are_gone_are_another_computation_when_asked_for_again(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    graph = parts("some-1")
    first, *others = client.get(graph, list(graph), sync=False)
    wait([first, *others])
    del others
    wait_until(recorder, client, "forgotten", 3, "some-1")
    assert client.get(graph, list(graph)) == [1, 2, 3, 4]

    one, two = told(recorder, 2)
    assert (one.tasks, one.completed) == (4, 4)
    assert (two.tasks, two.completed) == (3, 3)
    assert one.frames is not None
    assert two.frames is not None
    assert one.frames[-1].line < two.frames[-1].line
    for row in (one, two):
        (group,) = recorder.groups(row.id).values()
        assert (group.tasks, group.completed) == (row.tasks, row.completed)
    # When all are gone, the next is as the first.
    del first
    wait_until(recorder, client, "forgotten", 0, "some-1")
    client.get(graph, list(graph))
    assert told(recorder, 3)[-1].tasks == 4


def test_what_was_needed_by_what_is_kept_is_another_computation_when_asked_for_itself(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    graph = two_layers("layers-1")
    doubled = client.get(graph, [key for key in graph if key[0] == "layers-1-doubled"], sync=False)
    wait(doubled)
    wait_until(recorder, client, "released", 4, "layers-1")
    assert client.get(graph, [("layers-1", 0), ("layers-1", 2)]) == [1, 3]

    one, two = told(recorder, 2)
    assert (one.tasks, one.completed, two.tasks, two.completed) == (8, 8, 2, 2)
    # What is there already runs no more, and is no computation; what it needs does not run either.
    assert client.get(graph, [("layers-1-doubled", 1)]) == [4]
    assert client.submit(inc, 10, pure=False).result() == 11
    assert told(recorder, 3)[-1].tasks == 1


def test_a_task_with_a_key_of_its_own_is_of_the_computation_that_has_it_run_again(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    first: Any = client.submit(inc, 1, key="again-1")
    second = client.submit(double, first, key="again-2")
    wait(second)
    del first
    wait_until(recorder, client, "released", 1, "again")
    assert client.submit(inc, 1, key="again-1").result() == 2

    one, two, three = told(recorder, 3)
    assert [row.completed for row in (one, two, three)] == [1, 1, 1]
    assert three.tasks == 1
    assert second.result() == 4


def test_one_that_was_given_up_stays_so_when_another_has_its_tasks_run(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    name = "given-up-1"
    graph: dict[Any, Any] = {
        (name, 0): (hold_if_told, 1, name),
        (f"{name}-doubled", 0): (double, (name, 0)),
    }
    (kept,) = client.get(graph, [(f"{name}-doubled", 0)], sync=False)
    wait(kept)
    wait_until(recorder, client, "released", 1, name)
    Event(f"{name} runs", client=client).clear()
    Event(f"{name} holds", client=client).set()
    (given_up,) = client.get(graph, [(name, 0)], sync=False)
    Event(f"{name} runs", client=client).wait()
    given_up.release()  # to cancel it would cancel what is kept, too
    wait_until(recorder, client, "released", 1, name)
    Event(f"{name} goes on", client=client).set()
    assert client.get(graph, [(name, 0)]) == [1]

    one, two, three = told(recorder, 3)
    assert [row.status for row in (one, two, three)] == ["finished", "cancelled", "finished"]
    assert (two.cancelled, two.completed, three.cancelled, three.completed) == (1, 0, 0, 1)


def test_what_fails_when_it_runs_again_is_a_failure_of_who_asked_for_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    name = "fails-again-1"
    graph: dict[Any, Any] = {
        (name, 0): (fail_if_told, 1, name),
        (f"{name}-doubled", 0): (double, (name, 0)),
    }
    (kept,) = client.get(graph, [(f"{name}-doubled", 0)], sync=False)
    wait(kept)
    wait_until(recorder, client, "released", 1, name)
    Event(f"{name} fails", client=client).set()
    with pytest.raises(ValueError, match="as told"):
        client.get(graph, [(name, 0)])

    one, two = told(recorder, 2)
    assert [(row.status, row.erred) for row in (one, two)] == [("finished", 0), ("erred", 1)]
    (failure,) = recorder.failures()
    assert failure.computation == two.id


@pytest.mark.own_cluster
def test_a_lost_result_that_is_computed_again_is_of_the_computation_that_it_was_of(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    graph = parts("lost-1")
    futures = client.get(graph, list(graph), sync=False)
    wait(futures)
    client.restart_workers(list(client.scheduler_info()["workers"]))
    assert client.gather(futures) == [1, 2, 3, 4]
    row = recorder.wait_for(
        lambda: next(
            (row for row in recorder.computations().values() if row.completed_later == 4), None
        ),
        "all to have run twice",
    )
    assert recorder.computations().keys() == {row.id}
    assert (row.status, row.completed, row.done) == ("finished", 4, 4)


def _later(recorder: Recorder, id: str, runs: int) -> protocol.Computation | None:
    row = recorder.computations()[id]
    return row if row.completed_later == runs else None


@pytest.mark.own_cluster
def test_what_a_computation_took_is_what_it_took_until_its_end(
    client: Client, register: Register, recorder: Recorder
) -> None:
    """However often its results are lost and computed again afterwards; then it is told apart."""
    register()
    graph: dict[Any, Any] = {("takes-1", i): (take, 0.1) for i in range(4)}
    futures = client.get(graph, list(graph), sync=False)
    wait(futures)
    (before,) = told(recorder, 1)
    (group,) = recorder.groups(before.id).values()
    for round in (1, 2):
        client.restart_workers(list(client.scheduler_info()["workers"]))
        assert client.gather(futures) == [0.1] * 4
        row = recorder.wait_for(
            partial(_later, recorder, before.id, 4 * round), "all to have run again"
        )
        assert row.seconds == before.seconds
        assert row.seconds_later is not None
        assert row.seconds_later >= 0.4 * round
        assert (row.completed, row.largest_output) == (4, before.largest_output)
        assert row.worker_shares == before.worker_shares
        (now,) = recorder.groups(before.id).values()
        assert now == dataclasses.replace(group, states=now.states)
