"""Where the workers' threads were: merged, each sample once, and never at the scheduler's cost."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count, pairwise
from time import sleep
from typing import Any

import dask.config
import pytest
from distributed import Client, Event, LocalCluster, wait
from distributed.core import rpc
from distributed.metrics import time

from daskscope import protocol
from daskscope import session as running_module
from daskscope.observe.naming import OWN_KEY, Naming
from daskscope.observe.workers import call_tree
from daskscope.observe.workers import profile as profile_module
from daskscope.observe.workers.call_tree import CallTree
from daskscope.observe.workers.profile import Computed, Profiles
from daskscope.observe.workers.sample_weights import Window
from daskscope.plugin import NAME
from daskscope.scrubbing import SCRUBBED
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.patience import wait_on_loop, wait_until

#: Of tasks that took no time.
NOTHING = Computed({}, {})

pytestmark = [pytest.mark.own_cluster, pytest.mark.contract]


@pytest.fixture
def cluster(recorder: Recorder) -> Iterator[LocalCluster]:
    """Two worker processes that begin a new cycle of their profile ten times a second."""
    with dask.config.set({"distributed.worker.profile.cycle": "100ms"}):
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=False
        ) as cluster:
            yield cluster


def spin(seconds: float) -> int:
    ends = time() + seconds
    turns = 0
    while time() < ends:
        turns += sum(range(1000))
    return turns


def spin_until(event: str) -> None:
    while not Event(event).is_set():
        spin(0.1)


def nap(seconds: float) -> None:
    sleep(seconds)  # password = "hunter2"


def on_both(client: Client, function: Callable[[float], Any], seconds: float) -> None:
    workers = list(client.scheduler_info()["workers"])
    wait([client.submit(function, seconds, workers=[w], pure=False) for w in workers])


def profiles(recorder: Recorder) -> list[protocol.Profile]:
    return [row for beat in recorder.beats for row in beat.profiles]


def samples_of(row: protocol.Profile, function: str) -> int:
    calls = zip(row.line, row.samples, strict=True)
    return sum(samples for line, samples in calls if row.lines[line].function == function)


def hold_the_lock(seconds: float) -> None:
    """Hold the GIL, as a call does into a library that does not let go of it."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def seconds_of(row: protocol.Profile, function: str) -> float:
    return row.seconds * samples_of(row, function) / (roots(row) or 1)


def roots(row: protocol.Profile) -> int:
    """All samples of a row: those of the calls that nothing called."""
    calls = zip(row.parent, row.samples, strict=True)
    return sum(samples for parent, samples in calls if parent == -1)


def all_samples(recorder: Recorder) -> int:
    # Where a worker's clock went back, Dask cannot be asked for just what is new: that is counted.
    missed = recorder.beats[-1].drops.get("profile sample", 0)
    return missed + sum(map(roots, profiles(recorder)))


def all_that_workers_have(client: Client) -> int:
    """Dask's own question, from no time on: with one it may mean more, where a clock went back."""
    samples: int = client.profile()["count"]
    return samples


def test_the_busiest_function_of_all_workers_is_the_heaviest(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(profile__interval="1s")
    on_both(client, spin, 2.0)

    def of_both() -> Iterator[protocol.Profile]:
        for row in profiles(recorder):
            # On a busy machine a second may pass between the start of both and that of the tasks.
            if row.workers == 2 and any(line.file == __file__ for line in row.lines):
                yield row

    row = recorder.wait_for(lambda: next(of_both(), None), "a profile")
    ours = [line for line in row.lines if line.file == __file__]
    assert [line.function for line in ours] == ["spin"]
    # It is called by Dask alone, and whatever it calls is no heavier.
    assert samples_of(row, "spin") == roots(row) > 0
    assert row.stopped_at > row.started_at
    assert row.seconds >= 0.01 * roots(row)
    assert not row.cut
    assert all(parent < call for call, parent in enumerate(row.parent))


def test_windows_hold_every_sample_once(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(profile__interval="300ms")
    on_both(client, spin, 2.5)

    whole = all_that_workers_have(client)
    recorder.wait_for(lambda: all_samples(recorder) >= whole, "all samples")
    beats = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) > beats + 5, "more beats")

    rows = profiles(recorder)
    assert len({row.id for row in rows}) == len(rows) > 3
    assert all_samples(recorder) == whole
    for row, following in pairwise(rows):
        assert row.stopped_at <= following.started_at


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("interval", "at_once"), [("300ms", False), ("300ms", True), ("1h", True)])
def test_time_in_which_no_sample_can_be_taken_is_told_and_is_nobody_elses(
    client: Client, register: Register, recorder: Recorder, interval: str, at_once: bool
) -> None:
    register(interval="100ms" if interval == "300ms" else "1h", profile__interval=interval)
    one, other = client.scheduler_info()["workers"]
    held = client.submit(hold_the_lock, 2.7, workers=[one], pure=False)
    if not at_once:
        wait(held)
    wait([held, client.submit(nap, 2.0, workers=[other], pure=False)])
    client.run_on_scheduler(_end)

    recorder.wait_for(lambda: recorder.beats[-1].phase == "stop", "the goodbye")
    took = {group.prefix: group.seconds["compute"] for group in recorder.all_groups()}
    rows = profiles(recorder)
    of_nap = sum(seconds_of(row, "nap") for row in rows)
    unsampled = [row.unsampled for row in rows if row.unsampled is not None]
    assert 0 < of_nap <= 1.15 * took["nap"]
    assert sum(unsampled) >= 0.75 * took["hold_the_lock"]
    # All that the tasks took is in one of both. Of one that runs, what it took is counted until its
    # end is known, which is late on a busy machine.
    told = sum(row.seconds for row in rows) + sum(unsampled)
    assert told >= 0.85 * sum(took.values())
    if interval == "1h":
        assert told <= 1.15 * sum(took.values())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines for a machine slower than anyone's who waits for a cluster to close."""
    monkeypatch.setattr(profile_module, "WORKER_DEADLINE", 20.0)
    monkeypatch.setattr(profile_module, "LEAVING_DEADLINE", 20.0)
    monkeypatch.setattr(running_module, "PROFILE_DEADLINE", 20.0)
    monkeypatch.setattr(running_module, "CLOSE_DEADLINE", 40.0)


@pytest.mark.usefixtures("patient")
def test_the_last_window_is_told_with_the_goodbye(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="1h", profile__interval="1h")
    on_both(client, spin, 0.5)
    client.run_on_scheduler(_end)

    recorder.wait_for(lambda: recorder.beats[-1].phase == "stop", "the goodbye")
    assert all_samples(recorder) == all_that_workers_have(client) > 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("how", ["closed", "restarted", "retired"])
def test_what_workers_were_last_at_is_told_before_they_are(
    client: Client, cluster: LocalCluster, register: Register, recorder: Recorder, how: str
) -> None:
    register(interval="1h", profile__interval="1h")
    on_both(client, spin, 0.5)
    whole = all_that_workers_have(client)
    if how == "retired":
        client.retire_workers(workers_of(cluster)[:1])
        client.run_on_scheduler(_end)
    elif how == "restarted":
        client.restart()
        client.run_on_scheduler(_end)
    else:
        cluster.close()

    recorder.wait_for(lambda: recorder.beats[-1].phase == "stop", "the goodbye")
    assert all_samples(recorder) == whole > 0
    assert "internal error" not in recorder.beats[-1].drops


def test_workers_that_hang_hold_up_nobody_who_lets_them_go(
    client: Client, cluster: LocalCluster, register: Register
) -> None:
    register(interval="1h", profile__interval="1h")
    workers = client.run(os.getpid)
    hanging, _ = workers
    os.kill(workers[hanging], signal.SIGSTOP)
    try:
        # Its nanny is asked to restart it, and does.
        told = client.restart_workers([hanging], timeout=30)
    finally:
        with suppress(ProcessLookupError):
            os.kill(workers[hanging], signal.SIGCONT)
    assert told == {hanging: "OK"}


@pytest.mark.usefixtures("patient")
def test_a_worker_that_was_to_leave_and_stays_is_not_counted_twice(
    client: Client, cluster: LocalCluster
) -> None:
    drops = Counter[str]()
    ours = of_scheduler(cluster, drops)
    one, _ = workers_of(cluster)
    future = client.submit(spin_until, "read", workers=[one])
    samples = 0
    for leaving in ([one], [one], None):
        client.run(_wait_for_samples, workers=[one])
        samples += samples_read(ours, leaving)
    Event("read", client=client).set()
    wait(future)
    samples += samples_read(ours, workers_of(cluster))
    # A new worker's clock may have been set back: see above.
    assert 0 < samples + drops["profile sample"] <= all_that_workers_have(client)
    assert "worker profile" not in drops


def samples_read(ours: Profiles, leaving: list[str] | None) -> int:
    window = ours.window(NOTHING, leaving=leaving)
    assert window is not None
    ours.read(window)
    return sum(map(roots, ours.take()))


async def _wait_for_samples(dask_worker: Any) -> None:
    """Wait until the cycle that runs has some."""
    await wait_on_loop(lambda: dask_worker.profile_recent["count"], what="samples")


def test_windows_go_on_while_the_clock_has_been_set_back(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = of_scheduler(cluster, Counter())
    monkeypatch.setattr(profile_module, "time", lambda: time() - 3600)
    window = ours.window(NOTHING)
    assert window is not None
    assert time() - 3700 < window.started_at <= window.stopped_at < time() - 3500


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins[NAME].close()


@pytest.mark.parametrize("transmit", [True, False])
def test_a_profile_that_is_refused_is_not_asked_for(
    client: Client, register: Register, recorder: Recorder, transmit: bool
) -> None:
    client.run(_count_questions)
    register(profile__transmit=transmit, profile__interval="100ms")
    on_both(client, nap, 1.0)
    recorder.computation()
    beats = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) > beats + 5, "more beats")

    asked = sum(client.run(_questions).values(), Counter[str]())
    assert (asked["profile"] > 0) is transmit
    assert (asked["profile_metadata"] > 0) is transmit
    assert bool(profiles(recorder)) is transmit
    assert (b'"function":"nap"' in recorder.bytes) is transmit
    threads = [thread.name for thread in threading.enumerate()]
    assert ("daskscope-profile" in threads) is transmit


def _count_questions(dask_worker: Any) -> None:
    asked = dask_worker.asked = Counter[str]()

    def counted(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            asked[name] += 1
            return handler(*args, **kwargs)

        return count

    for name in ("profile", "profile_metadata"):
        dask_worker.handlers[name] = counted(name, dask_worker.handlers[name])


def _questions(dask_worker: Any) -> Counter[str]:
    asked: Counter[str] = dask_worker.asked
    return asked


@pytest.mark.parametrize("transmit", [True, False])
def test_source_lines_fall_under_the_code_switch_and_are_scrubbed(
    client: Client, register: Register, recorder: Recorder, transmit: bool
) -> None:
    register(profile__interval="1s", computation__code__transmit=transmit)
    on_both(client, nap, 1.5)

    def of_nap() -> protocol.ProfileLine | None:
        lines = [line for row in profiles(recorder) for line in row.lines]
        return next((line for line in lines if line.function == "nap"), None)

    line = recorder.wait_for(of_nap, "the line")
    assert line.file == __file__
    if transmit:
        assert line.text == f"sleep(seconds)  # password = {SCRUBBED}"
    else:
        assert {line.text for row in profiles(recorder) for line in row.lines} == {None}
        assert b"sleep(seconds)" not in recorder.bytes
    assert b"hunter" + b"2" not in recorder.bytes


def test_a_worker_that_hangs_holds_up_neither_the_others_nor_the_beats(
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile_module, "WORKER_DEADLINE", 1.0)
    workers = client.run(os.getpid)
    hanging, well = workers
    os.kill(workers[hanging], signal.SIGSTOP)
    try:
        register(profile__interval="1s")
        client.submit(nap, 1.5, workers=[well]).result()
        beats = len(recorder.beats)
        row = recorder.wait_for(
            lambda: next(
                (
                    (row, index)
                    for index, beat in enumerate(recorder.beats)
                    for row in beat.profiles
                    if samples_of(row, "nap")
                ),
                None,
            ),
            "the other's profile",
        )
        assert row[0].workers == 1
        assert beats > 3
        dropped = recorder.wait_for(
            lambda: recorder.beats[-1].drops.get("worker profile"), "the count"
        )
        assert dropped > 0
    finally:
        os.kill(workers[hanging], signal.SIGCONT)


def test_nobody_is_looked_for_once_the_plugin_has_ended(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deadline in ("WORKER_DEADLINE", "WINDOW_DEADLINE", "LEAVING_DEADLINE"):
        monkeypatch.setattr(profile_module, deadline, 3600.0)
    gone = "tcp://127.0.0.1:9"
    ours = of_scheduler(cluster, Counter())
    window = ours.window(NOTHING)
    assert window is not None
    with dask.config.set({"distributed.comm.timeouts.connect": "1h"}):
        thread = threading.Thread(
            target=ours.read, args=(replace(window, threads={gone: 1}),), daemon=True
        )
        thread.start()
        wait_until(
            lambda: any(one.address == gone for one in list(rpc.active)), what="it to be asked"
        )
        ours.stop()
        wait_until(lambda: not thread.is_alive(), what="the end of that")
    assert window.was_read.is_set()
    assert not any(one.address == gone for one in list(rpc.active))
    # Nor is anyone asked after that.
    ours.read(replace(window, threads=dict.fromkeys(workers_of(cluster), 1)))
    assert ours.take() == ()


def workers_of(cluster: LocalCluster) -> list[str]:
    assert cluster.scheduler is not None
    return list(cluster.scheduler.workers)


def of_scheduler(cluster: LocalCluster, drops: Counter[str]) -> Profiles:
    assert cluster.scheduler is not None
    return Profiles(cluster.scheduler, Naming(drops), first=0.0, interval=60.0, drops=drops)


@pytest.mark.usefixtures("patient")
def test_a_worker_that_has_left_costs_nothing_and_is_not_told_of_as_left_out(
    client: Client, cluster: LocalCluster
) -> None:
    drops = Counter[str]()
    ours = of_scheduler(cluster, drops)
    on_both(client, nap, 0.5)
    window = ours.window(NOTHING, leaving=workers_of(cluster))
    assert window is not None
    # It is not asked for as long as whoever is there may take to answer.
    with dask.config.set({"distributed.comm.timeouts.connect": "5s"}):
        ours.read(replace(window, threads={"tcp://127.0.0.1:9": 1, **window.threads}))

    rows = ours.take()
    assert {row.workers for row in rows} <= {2}
    # On a busy machine the first heartbeats set new workers' clocks back, and what cannot be asked
    # for any more is counted.
    of_both = sum(map(roots, rows)) + drops["profile sample"]
    assert of_both == all_that_workers_have(client) > 0
    assert "worker profile" not in drops
    assert ours.take() == ()


@pytest.mark.usefixtures("patient")
def test_nothing_is_counted_twice_where_a_workers_clock_went_back(
    client: Client, cluster: LocalCluster
) -> None:
    drops = Counter[str]()
    ours = of_scheduler(cluster, drops)
    on_both(client, nap, 1.0)
    client.run(_set_back_the_last_busy_cycle)
    window = ours.window(NOTHING, leaving=workers_of(cluster))
    assert window is not None
    # A worker's clock may be some tenths of a second behind, as if its first cycle were older.
    ours.read(replace(window, started_at=window.started_at - 5.0))

    (row,) = ours.take()
    assert roots(row) > 0
    assert drops["profile sample"] > 0
    assert roots(row) + drops["profile sample"] == all_that_workers_have(client)


def _set_back_the_last_busy_cycle(dask_worker: Any) -> None:
    history = dask_worker.profile_history
    busy = [place for place, (_, profile) in enumerate(history) if profile["count"]]
    assert len(busy) > 2
    first_ended_at, _ = history[busy[0]]
    history[busy[-1]] = (first_ended_at + 0.001, history[busy[-1]][1])


def test_where_there_are_many_workers_they_take_turns(
    cluster: LocalCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_module, "MAX_WORKERS", 1)
    ours = of_scheduler(cluster, Counter())
    asked: list[str] = []
    for _ in range(2):
        window = ours.window(NOTHING, leaving=workers_of(cluster))
        assert window is not None
        assert window.all_threads == 2
        asked += window.threads
    assert sorted(asked) == sorted(client.scheduler_info()["workers"])


_NO_FILES = """
import asyncio, gc, logging, resource
from collections import Counter
from distributed import Scheduler
from daskscope.observe.naming import Naming
from daskscope.observe.workers.profile import Profiles
from daskscope.observe.workers.sample_weights import Window
logging.disable(logging.INFO)  # Dask says that it starts
async def make():
    scheduler, drops = Scheduler(dashboard_address=":0"), Counter()
    return Profiles(scheduler, Naming(drops), first=1.0, interval=1.0, drops=drops)
profiles = asyncio.run(make())
window = Window(0.0, 1.0, {}, 0, {}, False)
most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
try:
    profiles.read(window)
except OSError as error:
    why = error.strerror
gc.collect()
resource.setrlimit(resource.RLIMIT_NOFILE, most)
print(why, window.was_read.is_set())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_where_no_file_can_be_opened_there_is_no_window_and_not_a_word() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", _NO_FILES],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "Too many open files True\n"
    assert ended.stderr == ""


# --- the tree -------------------------------------------------------------------------------------


def node(name: str, count: int, *children: dict[str, Any], line: int = 1) -> dict[str, Any]:
    """A node as a worker makes it."""
    return {
        "identifier": f"{name};f.py;1",
        "count": count,
        "children": {child["identifier"]: child for child in children},
        "description": {"filename": "f.py", "name": name, "line_number": line, "line": f"{name}()"},
    }


def told(*answers: dict[str, Any]) -> protocol.Profile:
    tree = CallTree()
    for answer in answers:
        tree.add(answer)
    return tree.row("1", 0.0, 1.0, workers=len(answers), seconds=0.0, unsampled=None)


def by_function(row: protocol.Profile) -> dict[str, int]:
    return {line.function: samples_of(row, line.function) for line in row.lines}


def test_the_innermost_call_is_counted_where_it_is() -> None:
    # Seen ten times: seven of them in c, called by b, three of them in b or in d.
    row = told(node("root", 10, node("a", 10, node("b", 7, node("c", 0)), node("d", 0))))
    assert by_function(row) == {"a": 10, "b": 7, "c": 7, "d": 3}
    assert row.parent[0] == -1


def test_samples_that_several_calls_may_have_are_all_shared_out() -> None:
    row = told(node("root", 11, node("a", 6, node("x", 0)), node("b", 2, node("y", 0))))
    assert by_function(row) == {"a": 8, "b": 3, "x": 6, "y": 2}
    assert roots(row) == 11


def test_a_line_is_that_of_the_heaviest_answer() -> None:
    row = told(
        node("root", 2, node("a", 0, line=5)),
        node("root", 9, node("a", 0, line=7)),
        node("root", 4, node("a", 0, line=9)),
    )
    assert [(line.line, line.text) for line in row.lines] == [(7, "a()")]
    assert row.samples == (15,)


def test_a_row_is_bounded_and_says_that_it_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = node("heavy", 0)
    light = [node(f"{number}-" + "light" * 50, 0) for number in range(2_000)]
    row = told(node("root", 90_000, heavy, node("b", 5_000, *light)))
    assert row.cut
    assert 100_000 < len(json.dumps(asdict(row))) < 220_000
    assert row.lines[row.line[0]].function == "heavy"

    monkeypatch.setattr(call_tree, "MAX_MERGED", 3)
    few = told(node("root", 10, node("b", 10, *light[:10])))
    assert few.cut
    assert len(few.samples) == 3


Estimate = Callable[..., tuple[Any, Any]]


@pytest.fixture
def estimate(cluster: LocalCluster) -> Estimate:
    """Estimates from what was ``seen``, in seconds of samples, and what tasks took."""
    assert cluster.scheduler is not None
    drops = Counter[str]()
    profiles = Profiles(cluster.scheduler, Naming(drops), first=1.0, interval=1.0, drops=drops)
    every = profiles._weights._sampled_every
    windows = count()

    def estimate(
        busy: dict[str, float],
        seen: dict[str, float],
        *,
        after: float = 0.0,
        hurried: bool = False,
        threads: dict[str, int] = {"a": 2},  # noqa: B006
        read: Collection[str] = (),
    ) -> tuple[float, float | None]:
        started_at = next(windows) + after
        window = Window(started_at, started_at + 1.0, threads, 2, busy, leaving=False)
        samples = Counter({name: round(took / every) for name, took in seen.items()})
        return profiles._weights.estimate(samples, window, read or threads, hurried=hurried)

    return estimate


def test_windows_together_estimate_no_more_than_the_tasks_took(estimate: Estimate) -> None:
    # The scheduler counts a task when its worker reports it, a window after it was seen.
    assert estimate({}, {"f": 1.0}) == (pytest.approx(1.0), 0.0)
    assert estimate({"f": 2.0}, {"f": 1.0}) == (pytest.approx(1.0), pytest.approx(0.0))
    assert estimate({}, {}) == (0.0, 0.0)
    # Where workers look too seldom, the tasks' own time is the better number, up to a bound.
    assert estimate({"f": 3.0}, {"f": 1.0}) == (pytest.approx(3.0), pytest.approx(0.0))
    assert estimate({"f": 100.0}, {"f": 1.0}) == (pytest.approx(4.0), pytest.approx(96.0))
    # What is beyond it was not seen by any sample, and is no later one's.
    assert estimate({"f": 1.0}, {"f": 1.0}) == (pytest.approx(1.0), pytest.approx(0.0))


def test_time_without_a_sample_is_not_given_to_samples_of_other_tasks(estimate: Estimate) -> None:
    seconds, unsampled = estimate({"hold": 2.9, "sleep": 1.1}, {"hold": 0.2, "sleep": 1.1})
    assert seconds == pytest.approx(1.3, rel=0.1)
    assert unsampled == pytest.approx(4.0 - seconds, abs=0.1)
    # All are seen as seldom: then each sample is of more time.
    assert estimate({"f": 3.0, "g": 6.1}, {"f": 1.0, "g": 2.0})[0] == pytest.approx(9.1)


def test_samples_that_come_late_get_the_time_of_their_own_tasks(estimate: Estimate) -> None:
    # No time was left to wait for the samples of the last moments.
    assert estimate({"f": 1.5, "g": 0.5}, {}, hurried=True) == (0.0, 0.0)
    assert estimate({}, {"g": 0.5}) == (pytest.approx(0.5), pytest.approx(1.5))
    # It is carried over no further.
    assert estimate({"f": 1.0}, {}, hurried=True) == (0.0, 0.0)
    assert estimate({}, {"f": 1.0}, after=60.0) == (pytest.approx(1.0), pytest.approx(1.0))


def test_a_worker_that_did_not_answer_was_not_sampled(estimate: Estimate) -> None:
    workers = {"a": 1, "b": 1}
    assert estimate({"f": 2.0}, {"f": 1.0}, threads=workers, read={"a"}) == (
        pytest.approx(1.0),
        pytest.approx(1.0),
    )
    # Where they take turns, it is not known what those that were asked had to do.
    assert estimate({"f": 2.0}, {"f": 1.0}, threads={"a": 1})[1] is None


def test_tasks_of_several_names_that_dask_calls_alike_are_one(client: Client) -> None:
    naming = Naming(Counter())
    tasks = {"own": "f", "others": "f", "mixed": "g"}
    for prefix, name in tasks.items():
        naming.sendable(name)
        naming._rename(prefix, None, name)
    assert naming.alike_of("own") == naming.alike_of("others") == naming.alike("f") == "f"
    naming._rename("mixed", "g", "h")
    naming._rename("mixed", OWN_KEY, "i")
    alike = {naming.alike_of("mixed"), naming.alike_of("unknown"), *map(naming.alike, "ghi")}
    assert alike == {OWN_KEY}
    assert naming.alike("f") == "f"
