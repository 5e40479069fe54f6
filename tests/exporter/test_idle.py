"""How long a cluster is idle, and what there is to keep it for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from distributed import Client, LocalCluster, wait
from distributed.core import rpc

from daskscope import protocol
from daskscope.observe.cluster.idle import MAX_STEP, PATIENCE, Idle
from daskscope.worker_process import begun_beside
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import wait_for_file, wait_until

pytestmark = pytest.mark.contract


class Counter:
    def __init__(self) -> None:
        self.count = 0


def inc(x: int) -> int:
    return x + 1


def fail(x: int) -> int:
    raise ZeroDivisionError


def _status(
    recorder: Recorder, fits: Callable[[protocol.Status], object], what: str
) -> protocol.Status:
    """Wait for a status that fits, in a beat that is to come."""
    before = len(recorder.beats)
    return recorder.wait_for(
        lambda: next((b.status for b in recorder.beats[before:] if fits(b.status)), None), what
    )


def test_a_task_that_runs_for_long_is_work(
    client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register()
    waits = client.submit(wait_for_file, str(tmp_path / "go"))
    status = _status(recorder, lambda s: s.held_by.get("processing"), "a status of its run")
    assert status.idle_seconds is None
    # Nothing moves on the scheduler meanwhile.
    for _ in range(3):
        assert _status(recorder, lambda s: True, "one more").idle_seconds is None
    (tmp_path / "go").touch()
    waits.result()
    assert _status(recorder, lambda s: s.idle_seconds, "idleness").held_by["results"] == 1


def test_what_dask_does_not_count_is_told_and_is_idle_all_the_same(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    # Workers of the shared cluster may have clients of their own, from other tests.
    clients = client.run_on_scheduler(
        lambda dask_scheduler: len(dask_scheduler.clients.keys() - {"fire-and-forget"})
    )
    data = client.scatter([1, 2, 3])
    actor = client.submit(Counter, actor=True).result()
    status = _status(
        recorder, lambda s: s.idle_seconds and s.held_by.get("actors"), "an idle status"
    )
    assert status.held_by == {"clients": clients, "results": 3, "actors": 1}
    del data, actor
    _status(recorder, lambda s: s.held_by == {"clients": clients}, "nothing but clients")


def test_a_task_that_no_worker_can_run_is_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    stuck = client.submit(inc, 1, resources={"no such thing": 1}, pure=False)
    status = _status(recorder, lambda s: s.held_by.get("unrunnable"), "an unrunnable task")
    assert status.idle_seconds is None
    stuck.cancel()
    _status(recorder, lambda s: s.idle_seconds is not None, "idleness")


def test_a_clients_call_is_work(
    client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register()
    running = client.run(wait_for_file, str(tmp_path / "go"), wait=True, asynchronous=True)

    async def both() -> None:
        import asyncio

        call = asyncio.ensure_future(running)
        await asyncio.to_thread(
            _status,
            recorder,
            lambda s: s.held_by.get("calls") == 1 and s.idle_seconds is None,
            "a call",
        )
        (tmp_path / "go").touch()
        await call

    client.sync(both)
    _status(recorder, lambda s: s.idle_seconds and "calls" not in s.held_by, "idleness")


def test_idleness_is_counted_anew_after_each_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    _status(recorder, lambda s: (s.idle_seconds or 0) > 1, "some idleness")
    # Not fire_and_forget: if that comes after the result, Dask keeps it for ever.
    assert client.submit(inc, 1, pure=False).result() == 2
    recorder.computation()
    assert _status(recorder, lambda s: s.idle_seconds is not None, "idleness again")
    idle = [b.status.idle_seconds for b in recorder.beats]
    assert any(
        later is None or later < earlier for earlier, later in itertools.pairwise(idle) if earlier
    )


def test_a_scheduler_that_waits_for_its_first_worker_is_not_idle(recorder: Recorder) -> None:
    options = ["--daskscope-endpoint", recorder.url, "--daskscope-interval", "100ms"]
    with scheduler_process(
        "--preload", "daskscope", *options, DASK_DASKSCOPE__TOKEN=TOKEN
    ) as scheduler:
        status = _status(recorder, lambda s: True, "a status")
        assert status.idle_seconds is None
        assert status.held_by == {"workers starting": 1}
        with worker_process(scheduler.address):
            status = _status(recorder, lambda s: s.idle_seconds is not None, "an idle status")
            assert status.held_by == {}
        # It has had its workers.
        status = _status(recorder, lambda s: s.workers == 0, "a status without a worker")
        assert status.idle_seconds is not None


# --- with a clock of the test's own ---------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, idle: Idle, seconds: float) -> None:
        """Let time pass while the cluster is watched."""
        for _ in range(int(seconds)):
            self.now += 1
            idle.look()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_puts_away_results_and_failed_tasks_has_done_no_work(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    kept = client.map(inc, range(3), pure=False)
    kept += client.map(fail, range(3), pure=False)
    kept.append(client.submit(sum, kept[3:], pure=False))
    wait(kept)
    before = _status(recorder, lambda s: (s.idle_seconds or 0) > 1, "some idleness")
    assert before.tasks["erred"] == 4
    del kept
    after = _status(recorder, lambda s: not s.tasks["erred"] + s.tasks["memory"], "their release")
    assert after.idle_seconds is not None
    assert before.idle_seconds is not None
    assert after.idle_seconds >= before.idle_seconds


@pytest.fixture
def idle(cluster: LocalCluster, clock: Clock) -> Idle:
    _wait_for_dask(cluster)
    assert cluster.scheduler is not None
    return Idle(cluster.scheduler, clock)


def _wait_for_dask(cluster: LocalCluster) -> None:
    """Wait until Dask itself has seen that all has come to rest: by another clock than its own, no
    time would pass for it.
    """
    scheduler: Any = cluster.scheduler
    wait_until(
        lambda: (
            scheduler.idle_since is not None
            and scheduler._idle_transition_counter == scheduler.transition_counter
        ),
        what="Dask's own idleness",
    )


def test_a_process_that_was_halted_was_not_idle_meanwhile(idle: Idle, clock: Clock) -> None:
    idle.look()
    clock.passes(idle, 5)
    assert idle.seconds() == 5
    clock.now += 8 * 3600
    idle.look()
    assert idle.seconds() == 5 + MAX_STEP


def test_after_a_halt_it_is_watched_anew_before_it_may_be_closed(idle: Idle, clock: Clock) -> None:
    def settles() -> bool:
        clock.passes(idle, 1)
        return idle.settled()

    wait_until(settles, what=idle.busy_by)
    before = idle.seconds()
    assert before is not None
    clock.now += 5  # what arrived meanwhile waits to be read
    idle.look()
    assert not idle.settled()
    assert idle.seconds() == before + 5
    clock.passes(idle, 2)
    assert not idle.settled()
    wait_until(settles, what=idle.busy_by)  # its workers report by the machine's clock


class Actor:
    def method(self) -> None:
        pass


@pytest.mark.parametrize(
    "what", ["a function", "a method of an actor", "data sets", "of another package"]
)
def test_a_call_that_no_look_has_seen_begins_it_anew(
    cluster: LocalCluster, client: Client, idle: Idle, clock: Clock, what: str
) -> None:
    actor: Any = client.submit(Actor, actor=True).result()
    scheduler: Any = cluster.scheduler
    scheduler.handlers["theirs"] = lambda: None
    _wait_for_dask(cluster)
    idle.look()
    clock.passes(idle, 5)
    before = idle.calls_begun()
    call: Callable[[], Any] = {
        "a function": lambda: client.run(int),
        "a method of an actor": lambda: actor.method().result(),
        "data sets": client.list_datasets,
        "of another package": lambda: client.sync(cast(Any, client.scheduler).theirs),
    }[what]
    call()
    assert (idle.calls(), idle.calls_begun()) == (0, before + 1)
    clock.passes(idle, 3)
    assert idle.seconds() == 2, idle.busy_by()


def test_what_nobody_asks_for_is_no_sign_of_work(
    cluster: LocalCluster, client: Client, idle: Idle, clock: Clock
) -> None:
    idle.look()
    clock.passes(idle, 5)
    before = begun_beside(cluster.scheduler, ())
    # As adaptive scaling and cluster managers ask, a client, and Dask's own object of the cluster;
    # again and again: by the first question after work, Dask takes back that it is idle.
    asks: Any = client.scheduler
    for operation in ("adaptive_target", "workers_to_close", "check_idle", "identity"):
        client.sync(getattr(asks, operation))
        client.sync(getattr(asks, operation))
    client.sync(asks.get_metadata, keys=["cluster-manager-info"], default={})
    with Client(cluster.scheduler_address, set_as_default=False):
        pass

    async def ask_once() -> None:
        async with rpc(cluster.scheduler_address) as scheduler:
            await scheduler.adaptive_target()

    client.sync(ask_once)
    assert begun_beside(cluster.scheduler, ()) >= before + 8
    # Connections have been closed, which the scheduler may hear a moment later.
    wait_until(lambda: idle.work() is None, what="the end of all")
    _wait_for_dask(cluster)
    clock.passes(idle, 3)
    assert idle.seconds() == 8, idle.busy_by()


def test_calls_stay_counted_while_dask_lets_its_counts_age(
    cluster: LocalCluster, client: Client, idle: Idle
) -> None:
    scheduler: Any = cluster.scheduler
    client.run(int)
    before = idle.calls_begun()

    async def age() -> None:
        for _ in range(1000):
            scheduler._shift_counters()

    cluster.sync(age)
    assert idle.calls_begun() == before


def test_a_clock_that_goes_back_takes_nothing_away(idle: Idle, clock: Clock) -> None:
    idle.look()
    clock.passes(idle, 5)
    clock.now -= 3600
    idle.look()
    assert idle.seconds() == 5


def test_someone_who_wants_the_cluster_begins_it_anew(idle: Idle, clock: Clock) -> None:
    idle.look()
    clock.passes(idle, 5)
    idle.restart()
    clock.passes(idle, 2)
    assert idle.seconds() == 1


def test_workers_that_were_asked_for_are_waited_for_but_not_for_ever(
    cluster: LocalCluster, idle: Idle, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.look()
    assert idle.seconds() == 0
    specification: dict[Any, Any] = cluster.worker_spec
    monkeypatch.setitem(specification, "in a queue", specification[0])
    idle.look()
    assert (idle.seconds(), idle.workers_starting()) == (None, 1)
    clock.passes(idle, PATIENCE - 1)
    assert idle.seconds() is None
    clock.passes(idle, 10)
    assert idle.workers_starting() == 0
    assert idle.seconds() == pytest.approx(9, abs=2)


def test_a_worker_that_ends_again_and_again_is_not_waited_for_anew_each_time(
    cluster: LocalCluster, idle: Idle, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As one that fails while it starts, or that a batch system ends and starts again.
    scheduler: Any = cluster.scheduler
    specification: dict[Any, Any] = cluster.worker_spec
    monkeypatch.setitem(specification, "fails", specification[0])
    (worker,) = scheduler.workers.values()
    clock.passes(idle, 60)
    for _ in range(round(PATIENCE / 60) + 2):
        clock.passes(idle, 30)
        monkeypatch.setitem(scheduler.workers, "tcp://of-one-that-fails", worker)
        clock.passes(idle, 30)
        monkeypatch.delitem(scheduler.workers, "tcp://of-one-that-fails")
    assert idle.workers_starting() == 0
    assert "workers are starting" not in idle.busy_by()
    # More of them are.
    monkeypatch.setitem(specification, "one more", specification[0])
    assert idle.workers_starting() == 2
