"""Loops that submit tasks one by one: each graph is told as if it had been looked at alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import dask
import pytest
from dask.delayed import delayed
from distributed import Client, Event, LocalCluster, wait
from distributed.client import SourceCode
from distributed.scheduler import TaskState

from daskscope import protocol
from daskscope.observe.tasks import computation as computation_module
from daskscope.observe.tasks import computations, graph_matching
from daskscope.observe.tasks.graph_matching import MAX_BYTES
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import double, hold, inc
from tests.exporter.test_scale import forgotten, observer_of
from tests.exporter.test_transitions import known

pytestmark = [pytest.mark.contract, pytest.mark.uncounted("it takes snapshots that are never sent")]


def hold_too(x: int, name: str) -> int:
    Event(name).wait()
    return x


def open_gate(client: Client, name: str, futures: list[Any]) -> None:
    """Let them end, once all have arrived: each joins those that are at work."""
    client.run_on_scheduler(known, len(futures))
    Event(name, client=client).set()
    wait(futures)


def test_of_one_line_each_task_goes_by_its_own_function(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    futures = [
        client.submit(function, number, "own", key=f"work-{number}-{function.__name__}")
        for number, function in enumerate((hold, hold, hold_too, hold_too, hold))
    ]
    open_gate(client, "own", futures)

    snapshot = observer_of(cluster).snapshots.whole("beat")
    assert {group.prefix: group.completed for group in snapshot.task_groups} == {
        "hold": 3,
        "hold_too": 2,
    }
    assert [row.completed for row in snapshot.computations] == [5]


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise TypeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


def test_what_a_task_needs_may_be_new_too(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    parts = [client.persist(delayed(inc)(0)), delayed(inc)(1), delayed(inc)(2)]
    futures = [client.compute(delayed(hold)(part, "needs")) for part in parts]
    client.run_on_scheduler(known, 6)
    open_gate(client, "needs", futures)

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert sorted((row.tasks, row.completed) for row in rows) == [(1, 1), (5, 5)]


def test_each_may_need_another_group(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    parts = [client.submit(function, 1, pure=False) for function in (inc, inc, double)]
    wait(parts)
    futures = [client.submit(hold, part, "groups", pure=False) for part in parts]
    client.run_on_scheduler(known, 6)
    open_gate(client, "groups", futures)

    groups = observer_of(cluster).snapshots.whole("beat").task_groups
    assert [group.dependencies for group in groups if group.prefix == "hold"] == [("inc", "double")]


def test_annotations_are_told_of_each(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    futures = []
    for owner in ("ann", "ann", "bob"):
        with dask.annotate(owner=owner):  # type: ignore[attr-defined]
            futures.append(client.submit(hold, 1, "annotated", pure=False))
    open_gate(client, "annotated", futures)

    (row,) = observer_of(cluster).snapshots.whole("beat").computations
    assert (row.tasks, row.annotations) == (3, {"owner": "bob"})


def test_annotations_may_be_anything(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h")
    futures = []
    for value in (1, Unequal(), Unequal(), 1):
        with dask.annotate(owner=value):  # type: ignore[attr-defined]
            futures.append(client.submit(hold, 1, "anything", pure=False))
    open_gate(client, "anything", futures)

    snapshot = observer_of(cluster).snapshots.whole("beat")
    assert [row.tasks for row in snapshot.computations] == [4]
    assert "internal error" not in snapshot.drops


def test_a_cell_that_was_changed_is_another_computation(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    futures = []
    for text in ("go(1)", "go(1)", "go(2)"):
        code = (SourceCode(text, 1, 0, "cell"),)
        monkeypatch.setattr(client, "_get_computation_code", lambda code=code, **_: code)
        futures.append(client.submit(hold, 1, "cell", pure=False))
    open_gate(client, "cell", futures)

    snapshot = observer_of(cluster).snapshots.whole("beat")
    assert sorted(row.tasks for row in snapshot.computations) == [1, 2]
    assert sorted(code.text for code in snapshot.code) == ["go(1)", "go(2)"]


def test_a_loop_that_is_slower_than_its_tasks_is_one_computation(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    observer = observer_of(cluster)
    for number in range(3):
        client.submit(inc, number, pure=False).result()
        snapshot = observer.snapshots.whole("beat")
        (row,) = snapshot.computations
        assert (row.status, row.stopped_at, row.completed) == ("running", None, number + 1)
        # What is traced of it is told once, when it has stopped.
        assert not snapshot.traced[row.id].samples

    # Or its last task may be let go of between the two snapshots.
    client.run_on_scheduler(forgotten)
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 0)
    snapshot = observer.snapshots.whole("beat")
    (last,) = snapshot.computations
    assert (last.id, last.status, last.completed) == (row.id, "finished", 3)
    assert last.stopped_at == pytest.approx(snapshot.task_groups[0].stopped_at, abs=1)
    assert len(snapshot.traced[row.id].samples["inc"]) == 3
    assert not observer.snapshots.whole("beat").computations


def test_a_loop_whose_pause_was_too_long_is_another_computation(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    for number in range(2):
        client.submit(inc, number, pure=False).result()
        monkeypatch.setattr(computation_module, "LOOP_PAUSE", 0)

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert [(row.status, row.tasks) for row in rows] == [("finished", 1), ("finished", 1)]


def test_a_map_in_batches_is_one_computation(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    wait(client.map(inc, range(4), batch_size=1, pure=False))

    (row,) = observer_of(cluster).snapshots.whole("beat").computations
    assert (row.tasks, row.completed) == (4, 4)


def test_each_call_of_compute_is_a_computation_however_soon_the_next_one_comes(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    register(interval="1h")
    for number in range(3):
        delayed(inc)(number).compute()

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert [(row.status, row.tasks) for row in rows] == [("finished", 1)] * 3


def test_nor_does_compute_go_on_with_what_was_submitted_or_the_other_way_round(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    # What is called alike comes from one line, then.
    register(interval="1h", computation__code__transmit=False)
    futures = []
    for number in range(5):
        futures.append(
            client.compute(delayed(inc)(number))
            if number % 2
            else client.submit(inc, number, pure=False)
        )
        wait(futures)

    rows = observer_of(cluster).snapshots.whole("beat").computations
    assert sorted(row.tasks for row in rows) == [1, 1, 3]


def test_lines_that_may_go_on_are_bounded(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computation_module, "LOOP_PAUSE", 3600)
    monkeypatch.setattr(computations, "MAX_ENDED", 1)
    # What is called alike comes from one line, then.
    register(interval="1h", computation__code__transmit=False)
    observer = observer_of(cluster)
    futures = []

    def told_after(function: Callable[[int], int]) -> dict[str, protocol.ComputationStatus]:
        futures.append(client.submit(function, 1, pure=False))
        wait(futures)
        return {row.id: row.status for row in observer.snapshots.whole("beat").computations}

    (first,) = told_after(inc)
    told = told_after(double)
    assert len(told) == 2
    assert told.pop(first) == "finished"
    assert list(told.values()) == ["running"]
    # What has been told as finished does not go on, though its last task has just ended.
    assert first not in told_after(inc)


@pytest.mark.own_cluster
def test_what_comes_after_a_restart_is_another_computation(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()

    def submit(name: str) -> Any:
        return client.submit(hold, 1, name, pure=False)

    before = [submit("before") for _ in range(2)]
    recorder.wait_for(lambda: statuses(recorder) == [("running", 2)], "both")
    client.restart()
    after = [submit("after") for _ in range(2)]
    open_gate(client, "after", after)

    recorder.wait_for(
        lambda: statuses(recorder) == [("cancelled", 2), ("finished", 2)], "one of each"
    )
    del before


def statuses(recorder: Recorder) -> list[tuple[protocol.ComputationStatus, int]]:
    return sorted((row.status, row.tasks) for row in recorder.computations().values())


def test_what_is_remembered_is_bounded_and_holds_no_task(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_matching, "MAX_LOOPS", 2)
    register(interval="1h")
    remembered = observer_of(cluster)._arrivals._loops._loops
    futures = [client.submit(inc, 1, pure=False)]
    futures[0].result()
    assert len(remembered) == 1
    futures.append(client.submit(inc, 2, pure=False))
    futures[1].result()
    futures.append(client.submit(inc, 3, pure=False))
    futures[2].result()
    assert len(remembered) == 1

    keys = {future.key for future in futures}
    del futures
    gc.collect()
    client.run_on_scheduler(forgotten)
    tasks = (thing for thing in gc.get_objects() if type(thing) is TaskState)
    assert not [task for task in tasks if task.key in keys]


def test_nor_is_much_code_kept_for_it_or_annotations(
    client: Client, cluster: LocalCluster, register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="1h")
    remembered = observer_of(cluster)._arrivals._loops._loops
    with dask.annotate(note="x" * MAX_BYTES):  # type: ignore[attr-defined]
        client.submit(inc, 1, pure=False).result()
    assert not remembered
    code = (
        SourceCode("#" * MAX_BYTES, 1, 0, "cell"),
        SourceCode("go()", 1, 0, "cell"),
    )
    monkeypatch.setattr(client, "_get_computation_code", lambda **_: code)
    client.submit(inc, 1, pure=False).result()
    assert not remembered
