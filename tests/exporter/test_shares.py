"""What single workers did for a computation, what came first there, and when most was done."""

from __future__ import annotations

import time
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait

from daskscope.observe.tasks.marks import MAX_MARKS, Marks
from daskscope.observe.tasks.prefixes import MAX_FIRST_RUNS, FirstRuns, PrefixTotals
from daskscope.observe.tasks.shares import MAX_SENT, MAX_WORKERS, Shares
from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE


def nap(number: int, slow: str) -> int:
    from distributed import get_worker

    time.sleep(0.2 if get_worker().address == slow else 0.02)
    return number


def fail(number: int) -> None:
    time.sleep(0.02)
    raise ValueError(number)


def make_bytes(size: int) -> bytes:
    return bytes(size)


@pytest.mark.own_cluster
@pytest.mark.contract
def test_a_worker_that_is_slower_is_the_first_of_the_shares(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    cluster.scale(2)
    client.wait_for_workers(2, timeout=PATIENCE)
    # Less than one beat long, and complete nevertheless.
    register(interval="1h")
    slow, fast = sorted(client.scheduler_info()["workers"])[:2]
    on_slow: dict[str, Any] = {"slow": slow, "pure": False, "workers": [slow]}
    on_fast: dict[str, Any] = {"slow": slow, "pure": False, "workers": [fast]}
    first = client.map(nap, range(2), **on_slow) + client.map(nap, range(40), **on_fast)
    client.gather(first)
    client.gather(client.map(nap, range(6), **on_slow))
    close_plugin(client)
    rows = [row for row in recorder.computations().values() if row.first_runs is not None]
    shares = [share for row in rows for share in row.worker_shares]
    assert sum(share.runs for share in shares if share.worker == slow) == 8
    assert sum(share.runs for share in shares if share.worker == fast) == 40
    worst = max(shares, key=lambda share: share.seconds - share.usual_seconds)
    assert worst.worker == slow
    assert worst.seconds > 0.2 * worst.runs
    # Of one function, on two workers.
    assert sum(row.first_runs or 0 for row in rows) == 2


@pytest.mark.contract
@pytest.mark.usefixtures("counts_equal_truth")
def test_a_worker_whose_runs_all_failed_ran_tasks_too(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.map(fail, range(3), pure=False))
    row = recorder.computation(lambda row: row.erred == 3)
    assert row.workers == len({share.worker for share in row.worker_shares}) == 1
    (share,) = row.worker_shares
    assert share.runs == 3
    assert share.seconds == share.usual_seconds >= 3 * 0.02


def test_the_largest_result_and_when_most_was_done(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.gather(client.map(make_bytes, [10, 100_000, 1_000], pure=False))
    row = recorder.computation(lambda row: row.completed == 3)
    assert row.largest_output is not None
    assert 100_000 <= row.largest_output < 110_000
    assert row.began_at is not None
    assert row.mostly_done_at is not None
    assert row.ended_at is not None
    assert row.started_at <= row.mostly_done_at <= row.ended_at
    # By the worker's clock, which may differ a little from the scheduler's.
    assert row.started_at - 1 < row.began_at < row.ended_at + 1


def test_marks_know_when_most_had_ended_however_many_there_were() -> None:
    for count in (1, 10, 1_000, 123_456):
        marks = Marks()
        for number in range(1, count + 1):
            marks.ended(float(number))
        assert len(marks._marks) <= MAX_MARKS + 1
        at = marks.when(0.95)
        # None: it was after the last mark, so with the last ones.
        assert 0.95 * count <= (at or count) <= 0.95 * count + max(count / 50, 1)
    assert Marks().when(0.95) is None


def test_shares_of_more_workers_than_are_kept_apart() -> None:
    shares = Shares()
    for number in range(MAX_WORKERS + 10):
        shares.ran(f"tcp://a:{number}", 1.0 + (number == 7), 1.0)
    assert len(shares) == MAX_WORKERS
    rows = shares.rows()
    assert len(rows) == MAX_SENT
    assert (rows[0].worker, rows[0].seconds, rows[0].longest) == ("tcp://a:7", 2.0, 2.0)


def test_first_runs_are_remembered_up_to_a_bound_and_while_the_worker_is_there() -> None:
    first = FirstRuns()
    prefix, other = PrefixTotals("one", first, None), PrefixTotals("other", first, None)
    assert first.is_first("a", prefix)
    assert not first.is_first("a", prefix)
    assert first.is_first("a", other)
    first.left("a")
    assert first.is_first("a", prefix)
    for number in range(MAX_FIRST_RUNS):
        first.is_first(f"tcp://{number}", prefix)
    # Nobody knows any more.
    assert not first.is_first("b", prefix)
    first.left("tcp://0")
    assert first.is_first("b", prefix)
