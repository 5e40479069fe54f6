"""The values of what is measured: over OTLP and in the beats, on real clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import pytest
from dask.delayed import delayed
from dask.sizeof import sizeof
from dask.utils import parse_timedelta
from distributed import (
    Client,
    Event,
    LocalCluster,
    Scheduler,
    SchedulerPlugin,
    SpecCluster,
    Worker,
    wait,
)
from distributed.core import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

import daskscope
from daskscope import names, protocol
from daskscope.observe.cluster.cost import Cost
from daskscope.plugin import NAME
from tests.exporter.conftest import TOKEN, close_plugin, take_off
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import hold
from tests.exporter.test_idle import Clock
from tests.patience import wait_on_loop, wait_until

pytestmark = pytest.mark.contract

#: Seconds between two looks of Dask's at its own event loop.
DASKS_TICK = parse_timedelta(dask.config.get("distributed.admin.tick.interval"))

MIB = 1024**2
GIB = 1024**3

#: An hour's prices that make a second's whole numbers.
PER_HOUR: dict[str, float] = {
    "cluster": 3600,
    "worker": 2 * 3600,
    "thread": 10 * 3600,
    "gib": 100 * 3600,
    "gpu": 1000 * 3600,
}


class Result:
    """Claims to be as large as it is told, and takes a while to be written and read."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __sizeof__(self) -> int:
        return self.size

    def __reduce__(self) -> Any:
        time.sleep(0.05)
        return read, (self.size, bytes(100_000))


def read(size: int, _: bytes) -> Result:
    time.sleep(0.05)
    return Result(size)


def make(size: int) -> Result:
    return Result(size)


def use(result: Result) -> int:
    return result.size


def spin(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


RELEASED = threading.Event()


async def until_released() -> None:
    await wait_on_loop(RELEASED.is_set, what="the release")


@pytest.fixture(scope="module")
def _two_workers() -> Iterator[LocalCluster]:
    memory = {"target": 0.2, "spill": False, "pause": False, "spill-compression": "zlib"}
    options = {f"distributed.worker.memory.{name}": value for name, value in memory.items()}
    with (
        dask.config.set(options),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=GIB,
            dashboard_address=":0",
            silence_logs=False,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def two_workers(
    _two_workers: LocalCluster, recorder: Recorder
) -> Iterator[tuple[Client, list[str]]]:
    """Two processes of one thread and 1 GiB each that spill, and what they tell of; addresses."""
    with Client(_two_workers) as client:
        daskscope.register(client, **_settings(recorder))
        yield client, list(client.scheduler_info()["workers"])
        client.sync(take_off, _scheduler(client))


@contextmanager
def in_process(*workers: dict[str, Any]) -> Iterator[Client]:
    """Run workers of one thread and 1 GiB, with those further options, in this process."""
    with (
        SpecCluster(
            workers={
                number: {"cls": Worker, "options": {"nthreads": 1, "memory_limit": GIB, **options}}
                for number, options in enumerate(workers)
            },
            scheduler={
                "cls": Scheduler,
                "options": {"host": "127.0.0.1", "dashboard_address": ":0"},
            },
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def call_in_progress(client: Client) -> Iterator[None]:
    """Have a ``client.run`` in progress."""
    RELEASED.clear()
    thread = threading.Thread(target=client.run, args=(until_released,))
    thread.start()
    try:
        wait_until(lambda: "broadcast" in _scheduler(client)._comms.values(), what="the call")
        yield
    finally:
        RELEASED.set()
        thread.join()


def _scheduler(client: Client) -> Any:
    """Return the scheduler, which runs in this process."""
    cluster: Any = client.cluster
    return cluster.scheduler


def _settings(recorder: Recorder, **settings: Any) -> dict[str, Any]:
    return {"endpoint": recorder.url, "token": TOKEN, "interval": "100ms", **settings}


def _points(
    recorder: Recorder,
    metric: names.Metric,
    fits: Callable[[dict[tuple[str, ...], float]], object] = bool,
) -> dict[tuple[str, ...], float]:
    """Wait for an export in which the metric's values fit, and return them."""
    return recorder.wait_for(
        lambda: next(filter(fits, recorder.points(metric)), None), f"a fitting {metric.name}"
    )


def _group(recorder: Recorder, prefix: str) -> protocol.TaskGroup:
    """Return the one group of that prefix, of a computation that has ended."""
    recorder.computation(lambda row: prefix in recorder.groups(row.id))
    (group,) = (
        groups[prefix]
        for groups in map(recorder.groups, recorder.computations())
        if prefix in groups
    )
    return group


def _wait_for_seconds(recorder: Recorder, prefix: str, seconds: dict[str, float]) -> None:
    """Wait for a beat with those activities of a prefix."""
    recorder.wait_for(
        lambda: any(
            row.prefix == prefix and seconds.items() <= row.seconds.items()
            for beat in recorder.beats
            for row in beat.activities
        ),
        f"{seconds} of {prefix}",
    )


# --- GPUs -----------------------------------------------------------------------------------------


def _gpu(utilization: float, used: int, limit: int | None) -> dict[str, Any]:
    """A worker that tells of a GPU as Dask does."""
    told = {"gpu_utilization": utilization, "gpu_memory_used": used, "gpu-memory-total": limit}
    return {
        "metrics": {
            name: lambda worker, value=value: value
            for name, value in told.items()
            if value is not None
        }
    }


def _older_gpu(utilization: float, used: int, limit: int | None) -> dict[str, Any]:
    """A worker that tells of a GPU as Dask once did."""
    return {
        "metrics": {"gpu": lambda worker: {"utilization": utilization, "memory-used": used}},
        "startup_information": {"gpu": lambda worker: {"name": "gpu", "memory-total": limit}},
    }


@pytest.mark.parametrize(
    ("workers", "gpu"),
    [
        ([{}], None),
        ([{}, _gpu(40, 3, 8)], protocol.Gpu(1, 0.4, 3, 8)),
        ([_gpu(25, 3, 8), _older_gpu(75, 5, 16)], protocol.Gpu(2, 0.5, 8, 24)),
        # Less than what all have is no limit.
        ([_gpu(0, 0, None), _gpu(100, 5, 16)], protocol.Gpu(2, 0.5, 5, None)),
        ([_older_gpu(100, 5, None)], protocol.Gpu(1, 1.0, 5, None)),
    ],
)
def test_gpus_are_told_as_far_as_workers_tell_of_them(
    recorder: Recorder, workers: list[dict[str, Any]], gpu: protocol.Gpu | None
) -> None:
    with in_process(*workers) as client:
        daskscope.register(client, **_settings(recorder))
        beat = recorder.wait_for(lambda: recorder.beats, "a beat")[0]
        _points(recorder, names.WORKER_COUNT)

    assert beat.status.gpu == gpu
    for metric, value in (
        (names.GPU_UTILIZATION, gpu and gpu.utilization),
        (names.GPU_MEMORY_USED, gpu and gpu.memory_used),
        (names.GPU_MEMORY_LIMIT, gpu and gpu.memory_limit),
    ):
        # What is not measured is absent, never zero.
        assert recorder.points(metric)[0] == ({} if value is None else {(): value}), metric.name


def test_what_clients_hold_and_the_most_that_a_worker_had_are_metrics_too(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, (one, _) = two_workers
    held = client.map(make, [MIB, 2 * MIB], workers=[one], pure=False)
    wait(held)
    nbytes = sizeof(Result(MIB)) + sizeof(Result(2 * MIB))
    _points(recorder, names.CLIENT_MEMORY, lambda values: values == {(): nbytes})
    _points(
        recorder,
        names.MEMORY_PEAK,
        lambda values: (
            values.get((), 0) in {beat.status.peak_worker_memory for beat in recorder.beats}
        ),
    )
    del held
    _points(recorder, names.CLIENT_MEMORY, lambda values: values == {(): 0})


def test_a_worker_whose_event_loop_is_blocked_shows_in_metrics(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, (one, _) = two_workers
    client.run(time.sleep, 2.0, workers=[one])  # on its event loop
    # Its next heartbeat comes after at most half a second of turns, 20 ms each.
    highest = 2.0 / (1 + 0.5 / 0.02)
    _points(
        recorder, names.WORKER_LOOP_INTERVAL, lambda values: values.get((), 0.0) >= 0.95 * highest
    )
    # Before, it had sent one every half second.
    _points(recorder, names.WORKER_HEARTBEAT_AGE, lambda values: values.get((), 0.0) >= 1.0)
    _points(recorder, names.HOST_LOAD, lambda values: values.get((), 0.0) > 0.0)
    # Each point has the highest since the one before it, and no older one.
    _points(recorder, names.WORKER_HEARTBEAT_AGE, lambda values: values.get((), 9.0) < 1.0)


# --- transfers and spilling -----------------------------------------------------------------------


def test_what_workers_fetch_from_each_other_is_told(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, (one, other) = two_workers
    made = client.map(make, [MIB, 2 * MIB], workers=[one], pure=False)
    # As Dask measures it: what the garbage collector needs counts too.
    nbytes = sizeof(Result(MIB)) + sizeof(Result(2 * MIB))
    wait(made)
    used = client.map(use, made, workers=[other], pure=False)
    wait(used)

    _points(recorder, names.TRANSFER_IO, lambda values: values == {("transmit",): nbytes})
    # The thread of the one waited while the other made its data ready.
    _points(recorder, names.TASK_TIME, lambda values: values.get(("", "transfer"), 0) > 0.05)

    makes, uses = _group(recorder, "make"), _group(recorder, "use")
    assert "compute" in makes.seconds
    assert "transfer" not in makes.seconds
    assert "compute" in uses.seconds
    assert uses.seconds["transfer"] > 0.05
    assert 0 <= makes.seconds["compute"] <= (makes.stopped_at or 0) - (makes.started_at or 0)
    assert makes.output_bytes == nbytes
    assert makes.types == {f"{__name__}.Result": 2}
    assert uses.types == {"int": 2}
    assert makes.states == uses.states == {"memory": 2}


def test_what_is_spilled_and_read_back_is_told(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, (one, _) = two_workers
    # More than the worker may hold in memory.
    made = client.submit(make, 300 * MIB, workers=[one], pure=False)
    wait(made)
    used = client.submit(use, made, workers=[one], pure=False)
    wait(used)

    moved = _points(recorder, names.SPILL_IO, lambda values: values.get(("read",)))
    # On disk it is compressed.
    assert 0 < moved["write",] == moved["read",] < 100_000
    took = _points(recorder, names.TASK_TIME, lambda values: ("use", "deserialize") in values)
    writes = {activity: took["make", activity] for activity in ("serialize", "compress")}
    reads = {activity: took["use", activity] for activity in ("deserialize", "decompress")}
    assert writes["serialize"] >= 0.05
    assert reads["deserialize"] >= 0.05
    assert writes["compress"] > 0
    assert reads["decompress"] > 0
    assert took["make", "disk-write"] > 0
    assert took["use", "disk-read"] > 0
    _wait_for_seconds(recorder, "make", writes)
    _wait_for_seconds(recorder, "use", reads)

    # Dask's own actions hold all that it takes to spill and to read back.
    # The workers' heartbeats may say only afterwards that there were any.
    for prefix, action in [("make", "disk-write"), ("use", "disk-read")]:
        recorder.wait_for(lambda: action in _group(recorder, prefix).seconds, action)  # noqa: B023
    makes, uses = _group(recorder, "make"), _group(recorder, "use")
    assert makes.seconds["disk-write"] >= sum(writes.values())
    assert uses.seconds["disk-read"] >= sum(reads.values())
    assert makes.output_bytes == sizeof(Result(300 * MIB))


def test_groups_that_were_sent_before_heartbeats_told_of_the_disk_are_sent_again(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, (one, _) = two_workers
    used = delayed(use, pure=False)(delayed(make, pure=False)(300 * MIB))
    client.compute(used, optimize_graph=False, workers=[one]).result()
    for prefix, action in [("make", "disk-write"), ("use", "disk-read")]:
        recorder.wait_for(lambda: action in _group(recorder, prefix).seconds, action)  # noqa: B023


class SlowData(dict[Any, Any]):
    """A worker's memory that takes longer to read and write than Dask thinks it does."""

    def __getitem__(self, key: Any) -> Any:
        time.sleep(0.02)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        time.sleep(0.02)
        super().__setitem__(key, value)


def test_time_in_which_workers_moved_nothing_to_or_from_disk_is_not_the_disks(
    recorder: Recorder,
) -> None:
    cluster = LocalCluster(
        n_workers=1, processes=False, dashboard_address=":0", silence_logs=False, data=SlowData
    )
    with cluster, Client(cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        said: list[str] = []
        assert cluster.scheduler is not None
        cluster.scheduler.add_plugin(Actions(said))
        made = client.submit(make, 1, pure=False)
        client.submit(use, made, pure=False).result()
        row = recorder.computation(lambda row: row.seconds.get("other", 0.0) >= 0.02)
        makes, uses = _group(recorder, "make"), _group(recorder, "use")
    assert {"disk-read", "disk-write"} <= set(said)
    for one in (row, makes, uses):
        assert one.seconds["other"] >= 0.02
        assert one.seconds.keys() <= {"compute", "other"}


class Actions(SchedulerPlugin):
    """Notes what Dask calls what tasks did."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def transition(self, key: Any, start: Any, finish: Any, *args: Any, **kwargs: Any) -> None:
        self.said += [action["action"] for action in kwargs.get("startstops") or ()]


def test_a_task_that_runs_and_its_computation_are_told_as_running(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, _ = two_workers
    held = client.submit(hold, 1, "metrics", pure=False)
    _points(recorder, names.TASK_RUNNING, lambda values: values.get(("hold",), 0) > 0)
    _points(recorder, names.COMPUTATION_COUNT, lambda values: values == {(): 1.0})
    Event("metrics", client=client).set()
    wait(held)
    count = len(recorder.points(names.TASK_RUNNING))
    recorder.wait_for(
        lambda: {("hold",): 0.0} in recorder.points(names.TASK_RUNNING)[count:], "its end"
    )
    recorder.wait_for(
        lambda: {(): 0.0} in recorder.points(names.COMPUTATION_COUNT)[count:], "that of both"
    )


# --- cost -----------------------------------------------------------------------------------------


def test_cost_is_exact_and_idle_is_the_share_of_idle_threads() -> None:
    clock = Clock()
    with in_process(_gpu(0, 0, None), {}) as client:
        scheduler = _scheduler(client)
        cost = Cost(protocol.Prices("EUR", PER_HOUR), clock)
        with_gpu, without = sorted(scheduler.workers.values(), key=lambda worker: worker.name)
        # Without a thread it is idle if the cluster is.
        clock.now += 2
        cost.look(0, 0, cluster_idle=True)
        clock.now += 2
        cost.look(0, 0, cluster_idle=False)
        assert cost.total == pytest.approx(4)
        assert cost.idle == pytest.approx(2)
        before = cost.idle

        cost.added(with_gpu)
        clock.now += 3
        cost.added(without)
        assert cost.total == pytest.approx(4 + 3 * 1113)
        cost.look(3, 0, cluster_idle=False)
        assert cost.idle == before
        # One of two threads has no task.
        clock.now += 10
        cost.look(23, 10, cluster_idle=False)
        assert cost.idle - before == pytest.approx(0.5 * 10 * 1225)

        # A worker that leaves between two looks has cost what it cost.
        total, was_idle = cost.total, cost.idle
        clock.now += 1
        cost.removed(with_gpu.address)
        clock.now += 1
        cost.look(26, 13, cluster_idle=True)
        assert cost.total - total == pytest.approx(1225 + 113)
        assert cost.idle - was_idle == pytest.approx(1225 + 113)
        # What it held is added up beside, for prices that only the service knows.
        assert cost.gpu_seconds == pytest.approx(3 + 10 + 1)
        gib = [(one.memory_limit or 0) / 2**30 for one in (with_gpu, without)]
        assert cost.gib_seconds == pytest.approx(14 * gib[0] + 12 * gib[1])


def test_what_is_held_is_reported_without_prices_and_with_none(recorder: Recorder) -> None:
    for prices, has_cost in (({}, False), ("none", True)):
        with in_process({}) as client:
            daskscope.register(client, **_settings(recorder, prices=prices))
            id, count = _scheduler(client).id, len(recorder.beats)
            recorder.wait_for(lambda n=count: len(recorder.beats) > n + 3, "beats")  # type: ignore[misc]
        beats = [b for b in recorder.beats if b.cluster.id == id and b.status.gib_seconds]
        assert beats[-1].status.gpu_seconds == 0
        # None says that it is to have no costs; without prices, others may have some for it.
        assert (beats[-1].cluster.prices == protocol.Prices("XXX", {})) is has_cost
        assert beats[-1].status.cost == (0.0 if has_cost else None)
        assert not any(recorder.points(names.CLUSTER_COST))


def test_while_a_client_runs_something_the_threads_are_idle_and_cost_as_such(
    recorder: Recorder,
) -> None:
    settings = _settings(recorder, prices={"currency": "EUR", "worker": 3600})
    with in_process({}, {}) as client:
        daskscope.register(client, **settings)
        recorder.wait_for(lambda: any(b.status.idle_cost for b in recorder.beats), "idle cost")
        with call_in_progress(client):
            count = len(recorder.beats)
            recorder.wait_for(lambda: len(recorder.beats) > count + 5, "some more beats")
        exported = _points(recorder, names.CLUSTER_COST, lambda values: values.get((), 0) > 0)
        recorder.wait_for(lambda: exported[()] in {b.status.cost for b in recorder.beats}, "it")

    statuses = [beat.status for beat in sorted(recorder.beats, key=lambda beat: beat.seq)]
    called = [status for status in statuses if status.idle_cost and "calls" in status.held_by]
    assert len(called) >= 3
    assert {status.idle_seconds for status in called} == {None}
    # The cluster is not idle, for it is being used; its threads have no task all the same.
    assert all(status.idle_cost == pytest.approx(status.cost, rel=0.05) for status in called)
    assert len({status.cost for status in called}) == len(called)
    # It is added up right after the status' time, and before the next one's.
    first, second, *_, before_last, last = called
    assert first.cost is not None
    assert before_last.cost is not None
    cost = before_last.cost - first.cost
    assert 2 * (before_last.at - second.at) * 0.99 < cost < 2 * (last.at - first.at) * 1.01


# --- since when counters count --------------------------------------------------------------------


def test_counters_start_when_the_plugin_began_or_when_they_were_last_nothing(
    cluster: LocalCluster, client: Client, register: Callable[..., Any], recorder: Recorder
) -> None:
    before = time.time()
    register()
    wait(client.map(abs, range(7), pure=False))
    done = {("abs", "finished"): 7.0}.items()
    _points(recorder, names.TASK_COMPLETED, lambda values: done <= values.items())
    wait(client.map(float, range(5), pure=False))
    done = {("float", "finished"): 5.0}.items()
    _points(recorder, names.TASK_COMPLETED, lambda values: done <= values.items())
    close_plugin(client)

    exports: list[dict[Any, tuple[int, int]]] = []
    first_seen: dict[Any, tuple[int, tuple[int, int]]] = {}
    for request in recorder.requests:
        if request.path == "/v1/metrics":
            exports.append(_cumulative(request.body))
            for series, point in exports[-1].items():
                first_seen.setdefault(series, (len(exports) - 1, point))
    times = [{at for _, at in export.values()} for export in exports]
    assert {len(at) for at in times} == {1}
    ends = [at.pop() for at in times]
    assert {metric for metric, _ in first_seen} > {"dask.task.completed", "dask.task.duration"}
    for (metric, _), (number, (start, at)) in first_seen.items():
        # Never with the time of its own first point: all of that would be counted in no time.
        assert before * 1e9 <= start < at, metric
        if number:
            assert start == ends[number - 1], metric
    for export in exports:
        for series, (start, _) in export.items():
            assert start == first_seen[series][1][0], series


def _cumulative(body: bytes) -> dict[tuple[str, frozenset[Any]], tuple[int, int]]:
    """Return start and time of the points of counters and histograms in an export."""
    found = {}
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind == "gauge":
                    continue
                for point in getattr(metric, kind).data_points:
                    told = frozenset(
                        (pair.key, pair.value.string_value) for pair in point.attributes
                    )
                    times = point.start_time_unix_nano, point.time_unix_nano
                    found[metric.name, told] = times
    return found


# --- scheduler and workers ------------------------------------------------------------------------


def test_what_is_sent_of_one_time_has_one_value(
    cluster: LocalCluster,
    client: Client,
    register: Callable[..., daskscope.Registration],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first is sent at once, all others as the test has it.
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    register()
    client.run_on_scheduler(time.sleep, 0.5)

    def seen_and_over() -> bool:
        lags = [beat.status.scheduler.lag for beat in recorder.beats if beat.status.scheduler]
        return max(lags, default=0) >= 0.5 - DASKS_TICK and lags[-1] < max(lags)

    recorder.wait_for(lambda: seen_and_over() or None, "a lag, and a beat after it")
    assert cluster.scheduler is not None
    metrics = cluster.scheduler.plugins[NAME].session._emitter._parts.metrics
    for _ in range(10):  # more often than the cluster is looked at
        metrics._collect()
    close_plugin(client)

    assert max(lags[()] for lags in recorder.points(names.SCHEDULER_LAG)) >= 0.5 - DASKS_TICK
    for metric in (names.SCHEDULER_LAG, names.QUEUE_SIZE):
        sent = list(zip(recorder.times(metric), recorder.points(metric), strict=True))
        by_time = dict(sent)
        assert len(by_time) < len(sent)
        assert [(at, values) for at, values in sent if values != by_time[at]] == [], metric.name


def test_an_export_that_is_due_waits_for_the_snapshot_that_is_about_to_come(
    cluster: LocalCluster,
    client: Client,
    register: Callable[..., daskscope.Registration],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    register()
    assert cluster.scheduler is not None
    metrics = cluster.scheduler.plugins[NAME].session._emitter._parts.metrics
    recorder.wait_for(lambda: recorder.times(names.WORKER_COUNT), "the one that is sent at once")
    # An export is always due, and each has to wait.
    thread = threading.Thread(target=metrics._collect_regularly, args=(0.0, 60.0), daemon=True)
    thread.start()
    recorder.wait_for(lambda: len(recorder.times(names.WORKER_COUNT)) >= 8 or None, "exports")
    times = recorder.times(names.WORKER_COUNT)[:8]
    close_plugin(client)
    thread.join()  # it does not wait for a snapshot that never comes
    assert len(set(times)) == len(times)


def test_what_holds_up_the_schedulers_loop_is_its_lag_and_its_cpu(
    two_workers: tuple[Client, list[str]], recorder: Recorder
) -> None:
    client, _ = two_workers
    before = recorder.wait_for(lambda: recorder.beats, "a beat")[-1]
    client.run_on_scheduler(spin, 0.5)
    _points(recorder, names.SCHEDULER_LAG, lambda values: values.get((), 0) >= 0.5 - DASKS_TICK)
    count = len(recorder.beats)
    recorder.wait_for(lambda: len(recorder.beats) > count + 1, "the beats meanwhile")

    beats = sorted(recorder.beats, key=lambda beat: beat.seq)
    statuses = [beat.status for beat in beats if beat.seq >= before.seq]
    loads = [status.scheduler for status in statuses if status.scheduler is not None]
    assert max(load.lag for load in loads) >= 0.5 - DASKS_TICK
    used = sum(
        load.cpu * (status.at - previous.at)
        for previous, status, load in zip(statuses, statuses[1:], loads[1:], strict=False)
    )
    assert used > 0.8 * 0.5
    # A Python process with Dask in it.
    assert all(load.memory > 20 * MIB for load in loads)
    assert recorder.points(names.SCHEDULER_CPU)[-1][()] > 0
    assert recorder.points(names.SCHEDULER_MEMORY)[-1][()] > 20 * MIB


def test_a_state_that_no_worker_is_in_any_more_is_zero(recorder: Recorder) -> None:
    none = {(state.name,): 0.0 for state in Status}
    with in_process({}, {}) as client:
        daskscope.register(client, **_settings(recorder))
        leaves = next(iter(client.scheduler_info()["workers"]))
        _points(recorder, names.WORKER_COUNT, lambda values: values == none | {("running",): 2})
        client.retire_workers([leaves], close_workers=False, remove=False)
        _points(
            recorder,
            names.WORKER_COUNT,
            lambda values: values == none | {("running",): 1, ("closing_gracefully",): 1},
        )
        client.retire_workers([leaves])
        _points(recorder, names.WORKER_COUNT, lambda values: values == none | {("running",): 1})
        lost = _points(recorder, names.WORKER_LOSS)
        assert lost == {(names.LOSS_RETIRED,): 1}


def test_a_beat_that_is_refused_is_a_failed_request(recorder: Recorder) -> None:
    recorder.misbehave = lambda path: 500 if path.startswith("/api") else None
    with in_process({}) as client:
        daskscope.register(client, **_settings(recorder))
        failed = _points(recorder, names.SEND_FAILURES)
        assert set(failed) == {("heartbeats",)}
        recorder.misbehave = lambda path: None
