"""What becomes of computations, on real clusters."""

from __future__ import annotations

import threading
from typing import Any

import dask.array as da
import pytest
from dask.delayed import delayed
from distributed import Client, Event, LocalCluster, span, wait

from daskscope import protocol
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract


def inc(x: int) -> int:
    return x + 1


def _inc_called(name: str) -> Any:
    return type(name, (), {"__call__": lambda self, x: x + 1})()


def double(x: int) -> int:
    return 2 * x


def hold(x: int, name: str) -> int:
    Event(name).wait()
    return x


def fail(x: int) -> int:
    raise ValueError(f"no {x}")


def test_a_collection_is_one_computation_with_its_groups(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    da.ones((40, 40), chunks=(10, 10)).sum().compute()

    computation = recorder.computation()
    groups = recorder.groups(computation.id)
    assert computation.status == "finished"
    assert computation.tasks == computation.completed == sum(g.tasks for g in groups.values())
    assert sum(computation.states.values()) == computation.tasks
    assert computation.seconds["compute"] > 0
    assert computation.stopped_at is not None
    assert computation.stopped_at > computation.started_at
    first = next(group for group in groups.values() if not group.dependencies)
    assert first.tasks == 16
    assert sum(first.durations) == 16
    assert first.shortest is not None
    assert first.longest is not None
    assert 0 < first.shortest <= first.longest
    names = {group.name for group in groups.values()}
    assert all(set(group.dependencies) <= names for group in groups.values())


def test_submits_in_a_loop_are_one_computation(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    futures = [client.submit(hold, x, "loop") for x in range(20)]
    # Graphs travel by themselves: the event may else overtake the last ones.
    recorder.wait_for(
        lambda: sum(row.tasks for row in recorder.computations().values()) == 20, "all of them"
    )
    Event("loop", client=client).set()
    wait(futures)

    computation = recorder.computation()
    assert computation.tasks == 20
    assert len(recorder.computations()) == 1


def test_two_lines_are_two_computations_even_of_one_function_at_the_same_time(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    one = client.map(hold, range(3), name="two-lines")
    other = client.map(hold, range(10, 14), name="two-lines")
    Event("two-lines", client=client).set()
    wait(one + other)

    recorder.wait_for(lambda: len(recorder.computations()) == 2, "two computations")
    recorder.wait_for(
        lambda: sorted(row.completed for row in recorder.computations().values()) == [3, 4],
        "both finished, each with its own tasks",
    )


def test_computing_the_same_again_is_another_computation(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    for _ in range(2):
        assert delayed(inc)(1, dask_key_name="inc-again").compute() == 2
        recorder.wait_for(
            lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)),
            "Dask to forget the task",
        )

    recorder.wait_for(
        lambda: [row.completed for row in recorder.computations().values()] == [1, 1],
        "two finished computations",
    )


@pytest.mark.own_cluster
def test_what_comes_and_goes_between_two_beats_is_told(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="1h")
    assert client.submit(inc, 1).result() == 2
    da.ones(10, chunks=5).sum().compute()
    cluster.close()  # the last beat tells all

    assert [row.status for row in recorder.computations().values()] == ["finished", "finished"]
    assert recorder.beats[-1].phase == "stop"


def test_the_calling_line_travels_once_and_only_when_asked_for(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    for _ in range(2):
        client.submit(inc, 1, pure=False).result()  # this very line

    computation = recorder.computation()
    assert computation.frames
    frame = computation.frames[-1]
    assert frame.file == __file__
    code = recorder.wait_for(lambda: recorder.code().get(frame.code or ""), "the code")
    line = code.text.splitlines()[frame.line - code.first_line]
    assert "this very line" in line
    sent = [sent.hash for beat in recorder.beats for sent in beat.code]
    assert len(sent) == len(set(sent))


def test_failures_are_counted_where_they_were_raised(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    failed = client.map(fail, range(3))
    after = client.map(inc, failed)
    wait(after)

    computation = recorder.computation(lambda row: row.tasks == 3 and row.erred == 3)
    assert computation.status == "erred"
    recorder.wait_for(lambda: recorder.failures(), "the failure")
    (failure,) = recorder.failures()
    assert failure.count == 3
    assert failure.computation == computation.id
    assert failure.type == "ValueError"
    assert failure.function == "fail"
    assert failure.message is not None
    assert failure.message.startswith("ValueError('no ")
    assert failure.traceback is not None
    assert "in fail" in failure.traceback


def test_retries_are_counted(client: Client, register: Register, recorder: Recorder) -> None:
    register()
    client.submit(_fail_once, "retry", retries=2).result()

    computation = recorder.computation()
    assert computation.status == "finished"
    assert (computation.retried, computation.erred, computation.completed) == (1, 0, 1)
    (group,) = recorder.groups(computation.id).values()
    assert (group.retried, group.erred, group.completed) == (1, 0, 1)
    assert sum(group.durations) == 1  # it is of runs that finished; both took their time
    assert group.longest is not None
    assert group.seconds["compute"] > group.longest
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    assert (failure.count, failure.retried) == (1, 1)
    assert failure.computation == computation.id
    assert failure.message == "OSError('once')"
    assert failure.traceback is not None
    assert "in _fail_once" in failure.traceback
    assert failure.worker is not None


def test_a_failure_that_outlives_its_retries_is_counted_each_time(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(fail, 1, retries=2))

    computation = recorder.computation()
    assert computation.status == "erred"
    assert (computation.retried, computation.erred) == (2, 1)
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    assert (failure.count, failure.retried) == (3, 2)


def test_a_failure_that_is_retried_by_hand_is_forgiven(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    future = client.submit(_fail_once, "by-hand", "wait-for-it")
    after = client.submit(inc, future)
    Event("wait-for-it", client=client).set()
    wait(after)
    erred = recorder.computation(lambda row: row.erred == 1)
    assert erred.status == "erred"
    # What only needed the result did not raise; it has no result either.
    recorder.computation(lambda row: row.status == "erred" and row.erred == 0)
    after.retry()
    assert after.result() == 2

    forgiven = recorder.wait_for(
        lambda: next((r for r in recorder.computations().values() if r.retried), None), "a retry"
    )
    assert forgiven.id == erred.id
    recorder.wait_for(
        lambda: {row.status for row in recorder.computations().values()} == {"finished"},
        "both to finish",
    )
    rows = recorder.computations().values()
    assert sorted((row.erred, row.retried, row.completed) for row in rows) == [(0, 0, 1), (0, 1, 1)]
    (failure,) = recorder.failures()
    assert (failure.computation, failure.count, failure.retried) == (erred.id, 1, 1)


def test_each_retry_by_hand_is_told_with_what_failed_before_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    once = client.submit(_fail_once, "other-by-hand")
    always = client.map(fail, range(3))
    wait([once, *always])
    for _ in range(2):
        always[0].retry()
        wait(always[0])
    once.retry()
    assert once.result() == 1

    told = recorder.wait_for(
        lambda: (
            {row.function: (row.count, row.retried) for row in recorder.failures()}
            if all(row.retried for row in recorder.failures())
            else None
        ),
        "both failures",
    )
    assert told == {"fail": (5, 2), "_fail_once": (1, 1)}
    assert sum(row.retried for row in recorder.computations().values()) == 3


def _fail_once(name: str, after: str | None = None) -> int:
    if after is not None:
        Event(after).wait()
    event = Event(name)
    if not event.is_set():
        event.set()
        raise OSError("once")
    return 1


def test_cancelled_work_is_cancelled(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    futures = client.map(hold, range(4), name="cancel")
    recorder.wait_for(
        lambda: any(row.states.get("processing") for row in recorder.computations().values()),
        "tasks being processed",
    )
    client.cancel(futures)

    computation = recorder.computation()
    assert (computation.status, computation.cancelled, computation.erred) == ("cancelled", 4, 0)
    assert not recorder.failures()
    # Dask cannot stop a thread: let the next test have it.
    Event("cancel", client=client).set()


@pytest.mark.own_cluster
def test_a_restart_cancels_what_runs(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    futures = client.map(hold, range(4), name="restart")
    recorder.wait_for(lambda: recorder.computations(), "the computation")
    client.restart()
    del futures

    assert recorder.computation().status == "cancelled"
    assert client.submit(inc, 1).result() == 2
    recorder.computation(lambda row: row.status == "finished")


def test_a_running_computation_shows_its_progress(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    held = client.map(hold, range(3), name="progress")
    row = recorder.wait_for(
        lambda: next((r for r in recorder.computations().values() if r.tasks == 3), None), "it"
    )
    assert row.status == "running"
    assert row.stopped_at is None
    Event("progress", client=client).set()
    wait(held)
    assert recorder.computation().id == row.id


def test_span_names_and_the_user_are_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    with span("etl"), span("load"):
        client.submit(inc, 1).result()

    computation = recorder.computation()
    assert computation.spans == ("etl / load",)
    assert computation.user == recorder.beats[0].cluster.user


def test_many_groups_are_folded_into_other(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    # Keys as Dask makes them, each of another function.
    graph = {(f"inc-{x:032x}", 0): (_inc_called(f"inc_{x}"), x) for x in range(260)}
    client.get(graph, list(graph))

    computation = recorder.computation()
    groups = recorder.groups(computation.id)
    assert len(groups) == 201
    assert groups["other"].tasks == 60
    assert computation.completed == 260


def test_a_key_of_the_users_own_is_not_told_but_the_function_is(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)  # these lines hold the keys
    patient = client.submit(inc, 1, key="patient-smith")
    client.submit(double, patient, key=("visits-of-jones", 7)).result()
    client.submit(fail, 1, key="patient-brown").exception()

    recorder.wait_for(lambda: recorder.failures(), "the failure")
    groups = recorder.wait_for(
        lambda: next(
            (
                found
                for identity in recorder.computations()
                if (found := recorder.groups(identity)).get("double")
            ),
            None,
        ),
        "the group that is called by its function",
    )
    assert groups["double"].dependencies == ("inc",)
    for word in (b"patient", b"smith", b"visits", b"jones", b"brown"):
        assert word not in recorder.bytes, word


@pytest.mark.own_cluster
def test_a_killed_worker_is_a_failure_and_a_loss(
    client: Client, register: Register, recorder: Recorder
) -> None:
    client.run_on_scheduler(_allow_no_failures)
    register()
    future = client.submit(_die)
    wait(future)

    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    assert failure.type == "KilledWorker"
    assert failure.traceback is None
    loss = recorder.wait_for(lambda: next(iter(recorder.losses()), None), "the loss")
    assert not loss.expected
    assert loss.processing == 1


def _allow_no_failures(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


def _die() -> None:
    import os

    os._exit(1)


def test_two_clients_with_equal_code_do_not_share_a_computation(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    with Client(client.cluster) as other:
        held = [one.submit(hold, number, "clients") for number, one in enumerate((client, other))]
        recorder.wait_for(lambda: len(recorder.computations()) == 2, "two computations")
        Event("clients", client=client).set()
        for future in held:
            future.result()


@pytest.mark.own_cluster
def test_a_cluster_that_was_closed_had_what_it_had_until_then(
    client: Client, cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    """Its workers leave before its scheduler does."""
    register()
    client.submit(len, ()).result()
    before = recorder.wait_for(
        lambda: next((b.status for b in recorder.beats if b.status.workers), None), "workers"
    )
    cluster.close()

    stop = recorder.beats[-1]
    assert (stop.phase, stop.status.stopped_at is None) == ("stop", False)
    told, had = (
        (status.workers, status.threads, status.memory_limit) for status in (stop.status, before)
    )
    assert told == had
    assert all(told)


def test_totals_of_the_cluster_grow_with_its_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.submit(_spin, 0.3).result()
    first = recorder.wait_for(
        lambda: next((b for b in recorder.beats if b.status.worker_seconds["busy"] >= 0.3), None),
        "busy seconds",
    )
    assert first.status.workers == 1
    assert first.status.threads == 2
    assert first.status.memory_used > 0
    assert first.status.memory_limit > first.status.memory_used
    idle = recorder.wait_for(
        lambda: next((b for b in recorder.beats if b.status.idle_seconds), None), "idle time"
    )
    assert isinstance(idle, protocol.Heartbeat)
    for state in ("busy", "idle", "paused"):
        seconds = [beat.status.worker_seconds[state] for beat in recorder.beats]
        assert seconds == sorted(seconds)


def _spin(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_names_are_cut_to_what_the_wire_allows(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow="*")
    long = "x" * 10_000
    first, last = (f"inc-{1:032x}", 0), (f"inc-{2:032x}", 0)
    client.get({first: (_inc_called(long), 1), last: (_inc_called("last"), first)}, last)
    client.log_event(long, 1)

    groups = recorder.groups(recorder.computation().id)
    cut = long[: protocol.MAX_NAME]
    assert set(groups) == {cut, "last"}
    assert groups["last"].dependencies == (groups[cut].name,)
    assert len(groups[cut].name) == protocol.MAX_NAME
    recorder.wait_for(lambda: [e for e in recorder.events() if e.topic == cut], "the event")


@pytest.mark.own_cluster
def test_a_finished_computation_stays_finished_when_its_results_go_with_the_workers(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    held = client.map(inc, range(4))
    wait(held)
    ended = recorder.computation().stopped_at
    cluster.scale(0)
    recorder.wait_for(lambda: recorder.losses(), "the worker to leave")
    cluster.close()

    (computation,) = recorder.computations().values()
    assert computation.status == "finished"
    assert computation.stopped_at == ended
