"""Much at once: huge graphs, very many of them, many workers, workers that come and go.

There is more of everything than is looked at in one go, or may wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from distributed.core import Status
from distributed.metrics import monotonic
from distributed.scheduler import Scheduler, WorkerState

import daskscope
from daskscope import names, protocol
from daskscope.observe.observer import Observer
from daskscope.observe.workers import losses
from daskscope.observe.workers import workers as observed_workers
from daskscope.plugin import NAME
from tests.exporter.conftest import Register, collect_garbage, let_few_wait
from tests.exporter.recorder import Recorder
from tests.exporter.simulated_workers import MEMORY, MEMORY_LIMIT, THREADS, SimulatedWorkers
from tests.exporter.test_computations import inc
from tests.patience import wait_on_loop

#: What needs the workers, of which there are none here.
NO_WORKERS = {"logs__transmit": False, "profile__transmit": False}


@pytest.fixture
def cluster(recorder: Recorder) -> Iterator[LocalCluster]:
    """A cluster without workers."""
    with LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=False) as cluster:
        yield cluster


@pytest.fixture
def workers(client: Client) -> Iterator[SimulatedWorkers]:
    workers = SimulatedWorkers(client)
    yield workers
    workers.leave()


def observer_of(cluster: LocalCluster) -> Observer:
    scheduler: Any = cluster.scheduler
    observer: Observer = scheduler.plugins[NAME].session.observer
    return observer


def run(client: Client, tasks: int) -> None:
    """Run so many tasks, and wait until Dask has forgotten them: what is lost it would run anew."""
    wait(client.map(inc, range(tasks), pure=False))
    client.run_on_scheduler(forgotten)


async def arrived(number: int, dask_scheduler: Scheduler) -> None:
    """Wait until Dask has so many tasks."""
    await wait_on_loop(lambda: len(dask_scheduler.tasks) >= number, what="all tasks")


async def forgotten(dask_scheduler: Scheduler) -> None:
    """Wait until Dask has forgotten all tasks."""
    looks = 0
    while dask_scheduler.tasks:
        looks += 1
        if looks % 100 == 0:
            await collect_garbage(dask_scheduler)
        await asyncio.sleep(0.01)


def held(thing: Any, path: str = "", seen: set[int] | None = None) -> Counter[str]:
    """Return how many items are in each collection that ``thing``, one of ours, is made of."""
    seen = set() if seen is None else seen
    sizes: Counter[str] = Counter()
    if id(thing) in seen:
        return sizes
    seen.add(id(thing))
    if isinstance(thing, dict | list | set | deque | bytearray):
        sizes[path] = len(thing)
        for each in list(thing.values() if isinstance(thing, dict) else thing):
            sizes.update(held(each, f"{path}[]", seen))
    elif type(thing).__module__.startswith("daskscope."):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        # In one order: what is reached by two ways is told by the first.
        names = {*slots, *getattr(thing, "__dict__", ())} - {"__dict__", "__weakref__"}
        for name in sorted(names):
            sizes.update(held(getattr(thing, name, None), f"{path}.{name}", seen))
    return sizes


def test_many_workers_are_counted_and_all_their_tasks(
    client: Client,
    register: Register,
    recorder: Recorder,
    workers: SimulatedWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed_workers, "WORKERS_AT_ONCE", 100)
    register(**NO_WORKERS)
    workers.come(350)
    run(client, 1_000)

    status = recorder.wait_for(
        lambda: next((b.status for b in recorder.beats if b.status.workers == 350), None),
        "a beat of all workers",
    )
    assert status.threads == 350 * THREADS
    assert status.memory_limit == 350 * MEMORY_LIMIT
    assert status.memory_used == 350 * MEMORY
    computation = recorder.computation()
    assert (computation.tasks, computation.completed) == (1_000, 1_000)


def test_workers_that_come_and_go_leave_their_losses_and_nothing_else(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    workers: SimulatedWorkers,
    loops_never_pause: None,
) -> None:
    register(**NO_WORKERS)
    sizes = []
    for wave in range(1, 5):
        workers.come(50)
        run(client, 100)
        workers.leave()
        recorder.wait_for(lambda: len(recorder.losses()) == 50 * wave, "the losses")  # noqa: B023
        recorder.wait_for(
            lambda: sum(row.completed for row in recorder.computations().values()) == 100 * wave,  # noqa: B023
            "the tasks",
        )
        observer = observer_of(cluster)
        observer.transitions.count()
        sizes.append(held(observer))
        # Whose the last computations were stays, of as many as there is room for.
        assert sizes[-1].pop("._cluster._refusals._clients") == wave
        # Dask itself has a task for an hour for each worker that left.
        sizes[-1].pop("._cluster.idle._calls._left_to_run._dasks", None)
        # By seconds and by changes, of as many as there is room for.
        for grows in [path for path in sizes[-1] if path.startswith("._arrivals._meanwhile.")]:
            del sizes[-1][grows]

    assert {loss.reason for loss in recorder.losses()} == {names.LOSS_LOST_CONNECTION}
    assert len({loss.id for loss in recorder.losses()}) == 200
    # What the first wave left is there once: names, totals.
    assert sizes[-1] == sizes[1], sizes[-1] - sizes[1]


def test_threads_of_workers_that_pause_are_paused(
    client: Client, register: Register, recorder: Recorder, workers: SimulatedWorkers
) -> None:
    register(**NO_WORKERS)
    workers.come(2)
    workers.pause()

    def paused() -> protocol.Status | None:
        last = recorder.beats[-1].status if recorder.beats else None
        return last if last is not None and last.worker_seconds["paused"] > 0 else None

    assert recorder.wait_for(paused, "paused threads").workers == 2


def test_idle_threads_are_paused_from_the_moment_on_that_they_are(
    cluster: LocalCluster, client: Client, register: Register, workers: SimulatedWorkers
) -> None:
    register(interval="1h", **NO_WORKERS)
    workers.come(2)
    workers.pause()

    async def paused_since(dask_scheduler: Scheduler) -> float:
        workers = dask_scheduler.workers
        await wait_on_loop(
            lambda: all(one.status is Status.paused for one in workers.values()), what="the pause"
        )
        return monotonic()

    since: float = client.run_on_scheduler(paused_since)
    known = monotonic() - since
    seconds = observer_of(cluster).snapshots.whole("beat").status.worker_seconds
    assert seconds["paused"] >= 2 * THREADS * known


def test_losses_beyond_the_bound_are_counted(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    workers: SimulatedWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(losses, "MAX_LOSSES", 30)
    register(interval="1h", **NO_WORKERS)
    workers.come(50)
    workers.leave()

    async def gone(dask_scheduler: Scheduler) -> None:
        await wait_on_loop(lambda: not dask_scheduler.workers, what="the end of all workers")

    client.run_on_scheduler(gone)
    cluster.close()  # the last beat tells all

    assert len(recorder.losses()) == 30
    assert recorder.beats[-1].drops["worker loss"] == 20
    assert recorder.beats[-1].status.workers == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["a graph of", "a loop that submits"])
def test_very_many_tasks_are_one_row(
    client: Client,
    register: Register,
    recorder: Recorder,
    workers: SimulatedWorkers,
    one_by_one: bool,
) -> None:
    number = 1_000 if one_by_one else 3_000
    register(**NO_WORKERS)
    if one_by_one:
        futures = [client.submit(inc, value, pure=False) for value in range(number)]
    else:
        futures = client.map(inc, range(number), pure=False)
    client.run_on_scheduler(arrived, number)
    # Only now, so that none ends before the last has come.
    workers.come(10)
    wait(futures)

    def ended() -> protocol.Computation | None:
        rows = recorder.computations().values()
        return next((row for row in rows if row.status == "finished"), None)

    computation = recorder.wait_for(ended, "its end")
    assert (computation.completed, computation.tasks) == (number, number)
    (group,) = recorder.groups(computation.id).values()
    assert (group.tasks, group.completed, group.output_bytes) == (number,) * 3
    assert group.states == {"memory": number}
    assert not recorder.beats[-1].drops


@pytest.mark.slow
@pytest.mark.uncounted("its graphs are made up, without a scheduler's transitions")
def test_more_graphs_between_two_beats_than_may_wait_are_all_told(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_few_wait(monkeypatch, 500)
    register(interval="1h", **NO_WORKERS)
    number = 1_500
    client.run_on_scheduler(_run_graphs, number, 1)

    def all_told() -> dict[str, protocol.Computation] | None:
        rows = recorder.computations()
        return rows if len(rows) == number else None

    rows = recorder.wait_for(all_told, "all of them")
    assert {(row.status, row.completed) for row in rows.values()} == {("finished", 1)}
    assert not recorder.beats[-1].drops


def _run_graphs(number: int, tasks: int, dask_scheduler: Scheduler) -> None:
    """Tell the plugin of so many graphs of so many tasks, as Dask's scheduler does."""
    plugin: Any = dask_scheduler.plugins[NAME]
    worker = WorkerState(
        address="tcp://10.0.0.1:1",
        status=Status.running,
        pid=1,
        name=1,
        nthreads=1,
        memory_limit=MEMORY_LIMIT,
        local_directory="/nowhere",
        nanny=None,
        server_id="worker-1",
        scheduler=dask_scheduler,
    )
    for serial in range(number):
        keys = [(f"inc-{serial:032x}", task) for task in range(tasks)]
        for key in keys:
            dask_scheduler.new_task(key, None, "released").processing_on = worker
        plugin.update_graph(dask_scheduler, client="a client", tasks=keys)
        for key in keys:
            plugin.transition(key, "released", "waiting")
        for key in keys:
            plugin.transition(key, "waiting", "processing")
            plugin.transition(key, "processing", "memory", nbytes=1, typename="int")


def test_of_many_workers_an_explanation_lets_others_have_their_turn(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    workers: SimulatedWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed_workers, "WORKERS_AT_ONCE", 50)
    register(interval="1h", **NO_WORKERS)
    observer: Any = observer_of(cluster)
    loop: Any = cluster.loop.asyncio_loop  # type: ignore[union-attr]
    take, turns, told = observer.snapshots.steps, 0, threading.Event()
    at_steps: list[int] = []

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not told.is_set():
            loop.call_soon(turn)

    def steps(phase: protocol.Phase) -> Generator[None, None, Any]:
        taken = take(phase)
        while True:
            at_steps.append(turns)
            try:
                next(taken)
            except StopIteration as end:
                return end.value
            yield

    monkeypatch.setattr(observer.snapshots, "steps", steps)
    loop.call_soon_threadsafe(turn)
    try:
        daskscope.explain(client)
        of_none = len(at_steps)
        workers.come(150)
        status = daskscope.explain(client)["always"].sends["heartbeat"]["status"]
    finally:
        told.set()
    assert status["workers"] == 150
    # Twice as many as without workers, and two more: between the first, second and third fifty.
    assert len(at_steps) == 2 * of_none + 2
    assert len(set(at_steps)) == len(at_steps)


def test_of_tasks_that_are_stolen_only_the_two_workers_are_looked_at(
    cluster: LocalCluster,
    register: Register,
    workers: SimulatedWorkers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(**NO_WORKERS)
    workers.come(1)
    watched, looked = observer_of(cluster)._workers, list[WorkerState | None]()
    scheduler = cluster.scheduler
    assert scheduler is not None
    (worker,) = scheduler.workers.values()

    async def steal() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(watched, "look", looked.append)
            # As Dask writes it down: https://distributed.dask.org/en/stable/work-stealing.html
            asked = (0.0, 1, "key", 0.1, worker.address, 1.0, worker.address, 0.0)
            scheduler.log_event("stealing", ("request", [asked]))
            watched.look_again(scheduler.workers.values())
            assert not looked
            moved = ("key", "waiting", worker.address, worker.address, "stimulus")
            scheduler.log_event("stealing", ("confirm", *moved))
            assert looked == [worker, worker]

    cluster.sync(steal)
