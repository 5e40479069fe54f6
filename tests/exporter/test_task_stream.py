"""The task stream: the same runs that Dask's own record has, one by one or merged."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster, wait
from distributed.diagnostics.task_stream import TaskStreamPlugin

from daskscope import protocol
from daskscope.codec import pack_columns, unpack_columns
from daskscope.observe.tasks import stream as module
from daskscope.observe.tasks.stream import Stream
from daskscope.protocol import STREAM_OUTCOMES, STREAM_UNIT
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = [pytest.mark.own_cluster, pytest.mark.uncounted]

#: Seconds that are added up may differ by the rounding of each.
ROUNDED = STREAM_UNIT / 2


@pytest.fixture
def cluster(recorder: Recorder) -> Iterator[LocalCluster]:
    """Two worker processes, of two threads each."""
    with LocalCluster(
        n_workers=2, threads_per_worker=2, dashboard_address=":0", silence_logs=False
    ) as cluster:
        yield cluster


class Run(NamedTuple):
    """A run, or several, with times in units of the wire."""

    worker: str
    prefix: str
    outcome: str
    start: int
    stop: int
    number: int
    seconds: float
    longest: float
    transfer: float
    disk: float


def runs_of(row: protocol.TaskStream) -> list[Run]:
    worker, prefix, outcome, start, length, count, *amounts = unpack_columns(row.columns)
    began = round(row.started_at / STREAM_UNIT)
    starts = [began + ahead for ahead in accumulate(start)]
    seconds, longest, transfer, disk = ([one * STREAM_UNIT for one in each] for each in amounts)
    return [
        Run(
            row.workers[worker[at]],
            row.prefixes[prefix[at]],
            STREAM_OUTCOMES[outcome[at]],
            starts[at],
            starts[at] + length[at],
            count[at],
            seconds[at] if count[at] > 1 else length[at] * STREAM_UNIT,
            longest[at] if count[at] > 1 else length[at] * STREAM_UNIT,
            transfer[at],
            disk[at],
        )
        for at in range(len(starts))
    ]


def rows_of(recorder: Recorder) -> list[protocol.TaskStream]:
    rows = {row.id: row for beat in recorder.beats for row in beat.task_streams}
    return list(rows.values())


def flaky(folder: str) -> str:
    """Fail the first time."""
    path = os.path.join(folder, "failed")
    if not os.path.exists(path):
        open(path, "w").close()
        raise OSError("not yet")
    return path


def fail(number: int) -> int:
    raise ValueError(number)


def work(client: Client, folder: str) -> None:
    """Run arrays, a shuffle, failures, a retry, and lose a worker with its results."""
    x = da.random.default_rng(0).random((600, 600), chunks=(100, 100))
    (x @ x.T).sum().compute()
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        frame = dd.from_pandas(pd.DataFrame({"a": range(400), "b": range(400)}), npartitions=6)
        frame.shuffle("b").map_partitions(len).compute()
    wait(client.map(fail, range(3)))
    client.submit(flaky, folder, retries=1).result()
    held = client.map(pow, range(40), [2] * 40)
    wait(held)
    [pid, *_] = client.run(os.getpid).values()
    os.kill(pid, signal.SIGKILL)
    assert sum(client.gather(held)) == sum(number**2 for number in range(40))


def observed(client: Client, cluster: LocalCluster, recorder: Recorder, folder: str) -> list[Any]:
    """Do the work, and return Dask's own record of it, once all of ours was sent."""
    scheduler = cluster.scheduler
    assert scheduler is not None
    dasks = TaskStreamPlugin(scheduler, maxlen=100_000)

    async def begin() -> None:
        scheduler.add_plugin(dasks)

    client.sync(begin)
    work(client, folder)
    recorder.wait_for(
        lambda: sum(row.runs for row in rows_of(recorder)) > len(dasks.buffer), "all runs"
    )
    return list(dasks.buffer)


def as_sent(records: Iterable[dict[str, Any]]) -> list[Run]:
    """Return the runs of Dask's record."""
    found = []
    for record in records:
        seconds: Counter[str] = Counter()
        for action in record["startstops"]:
            seconds[action["action"]] += action["stop"] - action["start"]
        last = [one for one in record["startstops"] if one["action"] == "compute"][-1]
        found.append(
            Run(
                record["worker"],
                "",
                "erred" if record["status"] == "error" else "finished",
                round(last["start"] / STREAM_UNIT),
                round(last["stop"] / STREAM_UNIT),
                1,
                last["stop"] - last["start"],
                last["stop"] - last["start"],
                seconds["transfer"],
                seconds["disk-read"] + seconds["disk-write"],
            )
        )
    return found


def test_the_runs_are_those_of_dasks_own_record(
    client: Client, cluster: LocalCluster, recorder: Recorder, register: Register, tmp_path: Any
) -> None:
    register()
    expected = as_sent(observed(client, cluster, recorder, str(tmp_path)))

    rows = rows_of(recorder)
    runs = [run for row in rows for run in runs_of(row)]
    assert not any(row.merged for row in rows)
    assert sum(row.runs for row in rows) == len(runs)
    ours = Counter(run[:1] + run[2:5] for run in runs if run.outcome != "retried")
    assert ours == Counter(run[:1] + run[2:5] for run in expected)
    # Dask's record lacks the run that failed and was repeated.
    assert [run.prefix for run in runs if run.outcome == "retried"] == ["flaky"]
    assert Counter(run.prefix for run in runs if run.outcome == "erred") == {"fail": 3}
    transferred = sum(run.transfer for run in expected)
    assert transferred > 0
    assert sum(run.transfer for run in runs) == pytest.approx(transferred, abs=len(runs) * ROUNDED)
    assert not any("-" in prefix and len(prefix) > 40 for row in rows for prefix in row.prefixes)


def test_totals_of_merged_runs_are_those_of_dasks_own_record(
    client: Client,
    cluster: LocalCluster,
    recorder: Recorder,
    register: Register,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, most in (("MAX_ENTRIES", 12), ("AT_FIRST", 0), ("MIN_ENTRIES", 8), ("MAX_NOTED", 30)):
        monkeypatch.setattr(module, name, most)
    register()
    expected = as_sent(observed(client, cluster, recorder, str(tmp_path)))

    rows = rows_of(recorder)
    runs = [run for row in rows for run in runs_of(row)]
    assert sum(row.merged for row in rows) == sum(run.number for run in runs if run.number > 1) > 50
    # Merged last: workers, where the others do not do.
    assert {run.worker for run in runs} <= {run.worker for run in expected} | {""}
    for outcome in ("finished", "erred"):
        theirs = [run for run in expected if run.outcome == outcome]
        mine = [run for run in runs if run.outcome == outcome]
        assert sum(run.number for run in mine) == len(theirs)
        assert sum(run.seconds for run in mine) == pytest.approx(
            sum(run.seconds for run in theirs), abs=len(mine) * 2 * ROUNDED
        )
        assert max(run.longest for run in mine) == pytest.approx(
            max(run.longest for run in theirs), abs=2 * ROUNDED
        )
        assert min(run.start for run in mine) == min(run.start for run in theirs)
        assert max(run.stop for run in mine) == max(run.stop for run in theirs)


def test_nothing_is_sent_of_a_stream_that_is_refused(
    client: Client, recorder: Recorder, register: Register
) -> None:
    register(stream__transmit=False)
    client.submit(pow, 2, 3).result()
    recorder.wait_for(
        lambda: any(row.completed for row in recorder.all_groups()), "a run that was counted"
    )
    assert not rows_of(recorder)


def make_stream(
    runs: int, workers: int = 4, prefixes: int = 2, failed: int = 0
) -> tuple[Stream, list[float]]:
    """Return a stream of so many runs, each a bit longer than the last, and their times."""
    stream, now = Stream(Counter()), time.time() - 600
    took = []
    for number in range(runs):
        seconds = 0.001 + number * 1e-6
        start = now + number * 0.001
        took.append(seconds)
        stream.ran(
            f"tcp://10.0.0.{number % workers}:4000",
            f"step-{number % prefixes}",
            [("compute", start, start + seconds)],
            "erred" if number < failed else "finished",
        )
    return stream, took


@pytest.mark.parametrize(
    ("runs", "workers", "prefixes"),
    [(100, 4, 2), (4_000, 4, 2), (35_000, 4, 2), (25_000, 700, 5), (25_000, 5_000, 1)],
)
def test_however_many_runs_there_are_the_row_is_bounded_and_adds_up(
    runs: int, workers: int, prefixes: int
) -> None:
    stream, took = make_stream(runs, workers, prefixes)
    [raw] = stream.take()
    row = raw.row()
    found = runs_of(row)
    assert len(row.columns) < 60_000
    assert len(found) <= module.MAX_ENTRIES
    assert row.runs == runs == sum(run.number for run in found)
    assert sum(run.seconds for run in found) == pytest.approx(sum(took), abs=len(found) * ROUNDED)
    assert max(run.longest for run in found) == pytest.approx(max(took), abs=STREAM_UNIT)
    assert bool(row.merged) == (runs > module.MAX_ENTRIES)
    assert raw.row() == row  # explain() makes it once more
    assert not stream.take()


def test_failed_and_slowest_runs_are_sent_one_by_one() -> None:
    stream, took = make_stream(9_000, failed=50)
    [raw] = stream.take()
    found = runs_of(raw.row())
    assert sum(run.outcome == "erred" and run.number == 1 for run in found) == 50
    number = int(module.MAX_ENTRIES * module.SLOWEST)
    slowest = sorted(took)[-number:]
    alone = sorted(run.seconds for run in found if run.number == 1 and run.outcome == "finished")
    assert alone[-number:] == pytest.approx(slowest, abs=2 * STREAM_UNIT)


@pytest.mark.parametrize("at_once", [1_000, 4_000, 20_000])
def test_a_cluster_that_has_sent_much_sends_less(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_FIRST", 10_000)
    runs, rng, entries = 100_000, random.Random(0), []
    stream = Stream(Counter())
    for number in range(runs):
        stop = time.time() - 60 + number % at_once * 10 / at_once
        action = ("compute", stop - rng.lognormvariate(-4, 1), stop)
        worker, prefix = f"tcp://10.0.0.{rng.randrange(20)}:4000", f"step-{rng.randrange(8)}"
        stream.ran(worker, prefix, [action], "finished")
        if number % at_once == at_once - 1:
            [raw] = stream.take()
            row = raw.row()
            assert row.runs == at_once
            entries.append(len(runs_of(row)))
    assert entries[0] == min(at_once, entries[0]) > 900
    assert sum(entries) <= 10_000 + runs * module.PER_RUN
    # And not much less than it may.
    assert entries[-1] > at_once * module.PER_RUN / 3


@pytest.mark.parametrize(
    "times",
    [(float("nan"), 2e9), (1.7e9, float("inf")), (1.7e9, 1.6e9), (1.7e9, 1e300), (-1.0, 1.7e9)],
)
def test_a_run_with_impossible_times_is_left_out_and_counted(times: tuple[float, float]) -> None:
    drops: Counter[str] = Counter()
    stream = Stream(drops)
    stream.ran("tcp://w", "inc", [("compute", *times)], "finished")
    assert not stream.take()
    assert drops == {"run without valid times": 1}


def test_columns_are_the_same_once_unpacked() -> None:
    columns = [[0, 1, 255, 256, 2**63 - 1], [0] * 5, [7, 0, 0, 0, 2**40]]
    packed = pack_columns(columns)
    assert [column.tolist() for column in unpack_columns(packed, 3)] == columns
    assert not any(map(len, unpack_columns(pack_columns([[]] * 10))))
