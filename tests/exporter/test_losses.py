"""Workers that leave: the reason, and what they had at hand."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dask.config
import pytest
from distributed import Client, Event, LocalCluster, secede, wait
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from tornado.ioloop import PeriodicCallback

import daskscope
from daskscope import names, protocol
from daskscope.observe.naming import Naming
from daskscope.observe.workers import losses as losses_module
from daskscope.observe.workers.cpu import peak_memory_of
from daskscope.observe.workers.losses import (
    LAST_LINES,
    LOSSES_AT_ONCE,
    MAX_DETAIL_BYTES,
    MAX_LOSSES,
    MAX_PREFIXES,
    Losses,
)
from daskscope.plugin import NAME
from daskscope.scrubbing import SCRUBBED
from daskscope.size import size_of
from daskscope.worker_process import METRIC
from tests.exporter.conftest import TOKEN, Register, close_plugin, wait_for_worker_logs
from tests.exporter.dask_process import DaskProcess, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE, stretched, wait_until

MARKER = "mark" + "er7"

pytestmark = [pytest.mark.own_cluster, pytest.mark.usefixtures("sends_soon"), pytest.mark.contract]


def sleep_until_the_end(started: str, number: int) -> None:
    Event(started).set()
    Event("never").wait()


def run_without_thread(started: str, number: int) -> None:
    secede()
    sleep_until_the_end(started, number)


def run_again_until_the_end(folder: str, number: int) -> None:
    """Return at once, and never if it runs again."""
    mark = Path(folder, str(number))
    if mark.exists():
        sleep_until_the_end(f"again {number}", number)
    mark.touch()


def crash_once(folder: str) -> None:
    """End the process once another one sets the event, and return where that has been done."""
    mark = Path(folder, "crashed")
    if not mark.exists():
        Event("started").set()
        Event("crash").wait()
        mark.touch()
        os._exit(1)


def wait_its_turn(number: int) -> None:
    Event("never").wait()


def warn(text: str) -> None:
    logging.getLogger("mine").warning(text)


def stop_this_process(started: str) -> None:
    Event(started).set()
    os.kill(os.getpid(), signal.SIGSTOP)


def fill_memory(started: str) -> None:
    Event(started).set()
    held = []
    while True:
        held.append(b"x" * 10_000_000)


def len_of_bytes(size: int) -> int:
    return len(b"x" * size)


def kill(client: Client, workers: list[str] | None = None) -> None:
    for pid in client.run(os.getpid, workers=workers).values():
        os.kill(pid, signal.SIGKILL)


def loss(recorder: Recorder) -> protocol.WorkerLoss:
    return recorder.wait_for(lambda: next(iter(recorder.losses()), None), "the loss")


def attributes(recorder: Recorder) -> dict[str, Any]:
    """Wait for the log event of the loss, and return its attributes."""
    (record,) = recorder.wait_for(
        lambda: recorder.log_records(names.LOG_WORKER_LOST.name), "the log event"
    )
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in record.attributes
    }


def wait_for_metric(recorder: Recorder, reason: str) -> None:
    recorder.wait_for(
        lambda: [r for r in recorder.requests if r.path == "/v1/metrics"
                 and names.WORKER_LOSS.name.encode() in r.body and reason.encode() in r.body],
        "the metric",
    )  # fmt: skip


def test_a_worker_that_is_killed_died_with_its_tasks(
    client: Client, register: Register, recorder: Recorder
) -> None:
    before = time.time()
    register()
    (address,) = client.scheduler_info()["workers"]
    futures = [
        client.submit(sleep_until_the_end, "started", number, key=f"{MARKER}-{number}")
        for number in range(2)
    ]
    Event("started", client=client).wait()
    kill(client)

    found = loss(recorder)
    assert (found.address, found.name) == (address, "0")
    assert (found.reason, found.expected) == (names.LOSS_DIED, False)
    assert found.tasks == {"sleep_until_the_end": 2}
    assert found.processing == 2
    assert found.lifetime > found.at - before  # it was there before the plugin came
    assert found.memory_used
    assert found.memory_limit
    assert found.last_seen_at is not None
    assert found.last_seen_at <= found.at
    assert found.nanny_memory is None
    assert MARKER.encode() not in recorder.bytes
    wait_for_metric(recorder, names.LOSS_DIED)
    # Over OTLP the same is told, but what is not known.
    told = attributes(recorder)
    last_seen = told.pop(names.WORKER_LAST_SEEN)
    assert last_seen == pytest.approx(found.at - found.last_seen_at)
    assert told == {
        names.EVENT_NAME: names.LOG_WORKER_LOST.name,
        names.WORKER_ADDRESS: address,
        names.WORKER_NAME: "0",
        names.WORKER_LOSS_REASON: names.LOSS_DIED,
        names.WORKER_LOSS_EXPECTED: False,
        names.WORKER_LOSS_TASKS: 2,
        names.WORKER_LOSS_PREFIXES: '{"sleep_until_the_end": 2}',
        names.WORKER_LIFETIME: found.lifetime,
        names.WORKER_MEMORY_USED: found.memory_used,
        names.WORKER_MEMORY_LIMIT: found.memory_limit,
    }
    del futures


def test_a_lost_run_is_of_the_task_that_ran_and_not_of_one_that_waited_with_a_higher_priority(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    assert cluster.scheduler is not None
    (worker,) = cluster.scheduler.workers.values()
    # Both threads have a task, and one task goes on without a thread.
    held = [client.submit(run_without_thread, "apart", 0, pure=False)]
    Event("apart", client=client).wait(timeout=PATIENCE)
    for number in range(worker.nthreads):
        held.append(client.submit(sleep_until_the_end, f"ran {number}", number))
        Event(f"ran {number}", client=client).wait(timeout=PATIENCE)
    wait_until(lambda: len(worker.executing) == len(held), what="a heartbeat with all of them")
    waiting = client.map(wait_its_turn, range(3), priority=10)
    wait_until(lambda: len(worker.processing) == len(held) + 3, what="tasks in its queue")
    kill(client)

    found = loss(recorder)
    assert found.processing == len(held) + 3
    assert lost_by_prefix(recorder, found) == {"run_without_thread": 1, "sleep_until_the_end": 2}
    client.cancel([*held, *waiting])


def lost_by_prefix(recorder: Recorder, found: protocol.WorkerLoss) -> dict[str, int]:
    lost: Counter[str] = Counter()
    for computation, runs in found.computations.items():
        (prefix,) = {group.prefix for group in recorder.groups(computation).values()}
        assert recorder.computations()[computation].lost_runs == runs
        lost[prefix] += runs
    return dict(lost)


def test_what_is_lost_as_it_runs_again_after_its_computations_end_is_not_of_the_computation(
    client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    client.run_on_scheduler(_allow_no_failure)
    register()
    tasks = range(2)
    results = [client.submit(run_again_until_the_end, str(tmp_path), number) for number in tasks]
    wait(results)
    recorder.wait_for(lambda: recorder.computation().status == "finished", "the end")
    kill(client)
    for number in tasks:
        assert Event(f"again {number}", client=client).wait(timeout=PATIENCE)
    kill(client)
    wait(results, timeout=PATIENCE)

    assert {future.status for future in results} == {"error"}
    first, second = recorder.wait_for(
        lambda: losses if len(losses := recorder.losses()) == 2 else None, "both losses"
    )
    assert (first.processing, second.processing) == (0, 2)
    assert second.tasks == {"run_again_until_the_end": 2}
    assert (first.computations, second.computations) == ({}, {})
    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    row = recorder.computation()
    assert (row.status, row.completed, row.erred, row.lost_runs) == ("finished", 2, 0, 0)
    assert (failure.type, failure.computation) == ("KilledWorker", row.id)
    assert row.ended_at is not None
    assert failure.first_at > row.ended_at


class TestOneThread:
    @pytest.fixture
    def cluster(self, recorder: Recorder) -> Iterator[LocalCluster]:
        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
            yield cluster

    def test_a_crash_is_of_the_task_that_ran_and_not_of_lost_results_that_wait_to_run_again(
        self,
        cluster: LocalCluster,
        client: Client,
        register: Register,
        recorder: Recorder,
        tmp_path: Path,
    ) -> None:
        register()
        assert cluster.scheduler is not None
        (worker,) = cluster.scheduler.workers.values()
        # The scheduler is not to know what began to run there.
        client.run(_beat_no_more)
        crash = client.submit(crash_once, str(tmp_path))
        assert Event("started", client=client).wait(timeout=PATIENCE)
        with worker_process(cluster.scheduler_address, "--nthreads", "2") as holder:
            client.wait_for_workers(2)
            results = client.map(len, ["a", "bc"], priority=10)
            wait(results, timeout=PATIENCE)
            recorder.computation()
            holder.kill()
        wait_until(lambda: len(worker.processing) == 3, what="the lost results beside the crash")
        assert not worker.executing
        Event("crash", client=client).set()
        wait([crash, *results], timeout=PATIENCE)

        found = recorder.wait_for(
            lambda: next((one for one in recorder.losses() if one.address == worker.address), None),
            "the loss",
        )
        assert found.tasks == {"crash_once": 1, "len": 2}
        rows = {
            group.prefix: row
            for id, row in recorder.computations().items()
            for group in recorder.groups(id).values()
        }
        assert found.computations == {rows["crash_once"].id: 1}
        assert (rows["crash_once"].lost_runs, rows["len"].lost_runs) == (1, 0)


def _beat_no_more(dask_worker: Any) -> None:
    dask_worker.periodic_callbacks["heartbeat"].stop()


def test_of_what_a_worker_began_after_its_last_heartbeat_the_first_in_its_queue_ran() -> None:
    group = SimpleNamespace(name="work", prefix=SimpleNamespace(name="work"))
    running, ended, first, second = (
        _task(key, place, group) for key, place in [("d", 9), ("c", 0), ("b", 1), ("a", 2)]
    )
    # One of the two that it was running has ended since: its thread has another.
    executing = {running: 1.0, ended: 1.0}
    assert _put_down_to([running, first, second], executing) == ["d", "b"]


def test_of_what_a_worker_began_after_its_last_heartbeat_that_ran_which_saw_more_losses() -> None:
    group = SimpleNamespace(name="work", prefix=SimpleNamespace(name="work"))
    waited, crashed = _task("a", 1, group), _task("b", 2, group)
    waited.suspicious, crashed.suspicious = 1, 3
    assert _put_down_to([waited, crashed], {}) == ["b", "a"]


def _task(key: str, place: int, group: Any) -> _Task:
    return _Task(
        key=key, priority=(place,), suspicious=1, group=group, prefix=group.prefix, run_spec=None
    )


def _put_down_to(tasks: list[_Task], executing: dict[Any, float]) -> list[str]:
    """Return the keys of the tasks that were running when a worker with two threads was lost."""
    lost: list[Any] = []
    known = {task.key: task for task in tasks}
    scheduler: Any = SimpleNamespace(get_events=lambda topic: (), tasks=known)
    losses = _losses(scheduler, Counter(), lost=lost)
    worker: Any = _Lost(1)
    worker.executing = executing
    losses.added(worker)
    message = {"action": "remove-worker", "worker": worker.address, "processing-tasks": {*known}}
    losses.event("all", message)
    return [task.key for task in lost]


@pytest.mark.parametrize("system", ["SLURM", "HTCondor", "PBS", "LSF", "Kubernetes"])
def test_a_lost_worker_says_in_which_job_it_ran(
    recorder: Recorder, tmp_path: Path, system: str
) -> None:
    job = tmp_path / "job.ad"
    job.write_text("ClusterId = 12\nProcId = 3\n")
    variables, told = {
        "SLURM": (
            {
                "SLURM_JOB_ID": "4711",
                "SLURM_JOB_NAME": f"fit password={MARKER}",
                "SLURM_SUBMIT_DIR": MARKER,
            },
            {"slurm.job.id": "4711", "slurm.job.name": f"fit password={SCRUBBED}"},
        ),
        "HTCondor": ({"_CONDOR_JOB_AD": str(job)}, {"htcondor.job.id": "12.3"}),
        "PBS": ({"PBS_JOBID": "7.head", "PBS_O_PATH": MARKER}, {"pbs.job.id": "7.head"}),
        "LSF": (
            {"LSB_JOBID": "815", "LSB_JOBNAME": f"fit --key {MARKER}"},
            {"lsf.job.id": "815", "lsf.job.name": "fit"},
        ),
        "Kubernetes": (
            {
                "KUBERNETES_SERVICE_HOST": "10.0.0.1",
                "POD_NAME": "worker-x7",
                "POD_NAMESPACE": "team",
                "POD_SECRET": MARKER,
            },
            {"k8s.pod.name": "worker-x7", "k8s.namespace.name": "team"},
        ),
    }[system]
    # As of dask-jobqueue: each worker in a job of its own, the scheduler in none.
    with (
        LocalCluster(n_workers=1, env=variables, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        (worker,) = cluster.scheduler.workers.values()
        wait_until(lambda: worker.metrics.get(METRIC), what="what the worker says of itself")
        kill(client)
        found = loss(recorder)
        assert found.deployment == told
        sent = attributes(recorder)[names.WORKER_LOSS_DEPLOYMENT]
        assert json.loads(sent) == told
    assert recorder.beats[-1].cluster.deployment == {}
    assert MARKER.encode() not in recorder.bytes


def test_the_last_lines_of_a_lost_worker_go_over_otlp_too(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait_for_worker_logs(client)
    client.submit(warn, "the last words, password=hunter7").result()
    recorder.wait_for(lambda: recorder.log_records(names.LOG_RECORD.name), "the log record")
    kill(client)

    found = loss(recorder)
    assert found.log is not None
    assert found.log[-1].endswith("WARNING mine: the last words, password=[scrubbed]")
    assert attributes(recorder)[names.WORKER_LOSS_LOG] == "\n".join(found.log)


@pytest.fixture
def small_cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker that its nanny ends when it uses 400 MB."""
    memory = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": 0.95,
        "distributed.scheduler.allowed-failures": 0,
    }
    with dask.config.set(memory):
        with LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="400 MB", dashboard_address=":0"
        ) as cluster:
            yield cluster


def test_a_worker_that_its_nanny_ends_for_its_memory(
    small_cluster: LocalCluster, recorder: Recorder
) -> None:
    with Client(small_cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        future = client.submit(fill_memory, "started")

        found = loss(recorder)
        assert (found.reason, found.expected) == (names.LOSS_OUT_OF_MEMORY, False)
        assert found.memory_limit == 400_000_000
        assert found.nanny_memory is not None
        assert found.nanny_memory > 0.95 * found.memory_limit
        assert found.tasks == {"fill_memory": 1}
        # A beat sees less: what the nanny saw is the most that there was.
        assert found.peak_memory is not None
        assert found.peak_memory >= found.nanny_memory > (found.memory_used or 0)
        status = recorder.wait_for(
            lambda: next((b.status for b in recorder.beats if b.worker_losses), None), "the beat"
        )
        assert status.peak_memory_used >= found.nanny_memory
        assert status.peak_memory_limit == found.memory_limit
        assert status.peak_worker_memory is not None
        assert status.peak_worker_memory >= found.nanny_memory
        # The run that it took along is one of its computation's.
        row = recorder.computation()
        assert (row.lost_runs, row.completed, row.erred) == (1, 0, 1)
        assert found.computations == {row.id: 1}
        assert attributes(recorder)[names.WORKER_LOSS_NANNY_MEMORY] == found.nanny_memory
        wait_for_metric(recorder, names.LOSS_OUT_OF_MEMORY)
        del future


def test_what_a_worker_had_that_left_between_two_beats_counts_for_its_cluster(
    small_cluster: LocalCluster, recorder: Recorder
) -> None:
    with Client(small_cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="1h")
        recorder.wait_for(lambda: recorder.beats, "the first beat")
        client.submit(len_of_bytes, 100_000_000).result()
        scheduler: Any = small_cluster.scheduler
        (worker,) = scheduler.workers.values()
        wait_until(lambda: (peak_memory_of(worker) or 0) > 100_000_000, what="its heartbeat")
        small_cluster.scale(0)
        wait_until(lambda: not scheduler.workers, what="its end")
        close_plugin(client)
    found = loss(recorder)
    assert found.peak_memory is not None
    assert found.peak_memory > 100_000_000
    assert (recorder.beats[-1].status.peak_worker_memory or 0) >= found.peak_memory


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        (lambda client, cluster: client.retire_workers(), names.LOSS_RETIRED),
        # Dask is asked to retire it by its name, and does not find it: its nanny closes it.
        (lambda client, cluster: cluster.scale(0), names.LOSS_CLOSED),
        (lambda client, cluster: client.run(_close), names.LOSS_CLOSED),
        (lambda client, cluster: client.restart(), names.LOSS_RESTARTED),
    ],
    ids=["retire", "scale down", "close", "restart"],
)
def test_a_worker_that_was_asked_to_leave_is_expected_to(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    leave: Callable[[Client, LocalCluster], None],
    reason: str,
) -> None:
    register()
    leave(client, cluster)

    found = loss(recorder)
    assert (found.reason, found.expected) == (reason, True)
    assert found.tasks == {}
    wait_for_metric(recorder, reason)


def _close(dask_worker: Any) -> None:
    dask_worker.loop.add_callback(dask_worker.close)


def test_a_worker_that_gives_up_after_an_error_inside_of_dask_has_failed(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.run(_confuse)

    found = loss(recorder)
    assert (found.reason, found.expected) == (names.LOSS_FAILED, False)
    # Dask tells of it by an event, which is allowed without a setting.
    (event,) = recorder.wait_for(recorder.events, "the event")
    assert event.topic == "worker-fail-hard"
    message = json.loads(event.message)
    assert (message["worker"], message["status"]) == (found.address, "error")


def _confuse(dask_worker: Any) -> None:
    dask_worker.loop.add_callback(dask_worker.handle_stimulus, "no event of Dask's")


class LoadsWhereItWasMade:
    """What no worker can unpickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (os.getpid(),)


def _load(made_by: int) -> LoadsWhereItWasMade:
    if os.getpid() != made_by:
        raise ValueError(MARKER)
    return LoadsWhereItWasMade()


def take(value: object) -> None:
    pass


async def _close_plugin(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins[NAME].close()


async def _allow_no_failure(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


@pytest.fixture
def lone_worker(recorder: Recorder) -> Iterator[tuple[Client, DaskProcess]]:
    """A worker without a nanny, and a client. It asks for the recorder so that that outlives it."""
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        with worker_process(cluster.scheduler_address, "--name", "lone") as worker:
            client.wait_for_workers(1)
            yield client, worker
            worker.kill()


def test_a_loss_that_may_get_clearer_is_told_before_the_plugin_goes(
    lone_worker: tuple[Client, DaskProcess],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(losses_module, "LINES_PATIENCE", 600.0)
    client, worker = lone_worker
    daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
    worker.kill()
    wait_until(lambda: not client.scheduler_info()["workers"], what="the loss of the worker")
    assert not recorder.losses()
    # Dask does not tell a plugin that it was removed: its next beat finds that, and is its last.
    client.run_on_scheduler(lambda dask_scheduler: bool(dask_scheduler.plugins.pop(NAME)))
    assert loss(recorder).reason == names.LOSS_LOST_CONNECTION


@pytest.mark.parametrize("nanny", [True, False])
def test_a_worker_that_cannot_read_what_it_is_sent_says_so_before_it_ends(
    request: pytest.FixtureRequest,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    nanny: bool,
) -> None:
    # The lines are not to be late on a busy machine; that they have come is awaited here.
    monkeypatch.setattr(losses_module, "NANNY_PATIENCE", 600.0)
    monkeypatch.setattr(losses_module, "LINES_PATIENCE", 600.0)
    client = (
        request.getfixturevalue("client") if nanny else request.getfixturevalue("lone_worker")[0]
    )
    daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
    wait_for_worker_logs(client)
    (address,) = client.scheduler_info()["workers"]
    client.run_on_scheduler(_allow_no_failure)
    future = client.submit(take, LoadsWhereItWasMade())

    def last_line() -> list[LogRecord]:
        return [
            record
            for record in recorder.log_records(names.LOG_RECORD.name)
            if "Failed to deserialize" in record.body.string_value
        ]

    (record,) = recorder.wait_for(last_line, "why it ends")
    told = {pair.key: pair.value.string_value for pair in record.attributes}
    assert told[names.WORKER_ADDRESS] == address
    assert told[names.EXCEPTION_TYPE] == "ValueError"
    # Its last beat tells of all losses.
    client.run_on_scheduler(_close_plugin)
    found = loss(recorder)
    assert (found.address, found.reason) == (address, names.LOSS_LOST_CONNECTION)
    assert found.log is not None
    assert [line for line in found.log if line.endswith("Failed to deserialize (ValueError)")]
    assert MARKER.encode() not in recorder.bytes
    del future


def test_a_worker_with_something_to_say_ends_though_its_scheduler_does_not_listen(
    lone_worker: tuple[Client, DaskProcess], recorder: Recorder
) -> None:
    client, worker = lone_worker
    daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
    wait_for_worker_logs(client)
    client.run_on_scheduler(_do_not_listen)
    future = client.submit(take, LoadsWhereItWasMade())
    worker.wait(PATIENCE)
    del future


async def _do_not_listen(dask_scheduler: Any) -> None:
    async def never_answer(**_: Any) -> None:
        await asyncio.Event().wait()

    assert "daskscope-logs" in dask_scheduler.handlers
    dask_scheduler.handlers["daskscope-logs"] = never_answer


def test_a_worker_that_stops_beating_is_timed_out(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    pids = client.run(os.getpid).values()
    client.submit(stop_this_process, "started")
    Event("started", client=client).wait()
    client.run_on_scheduler(_check_ttl_soon)

    try:
        found = loss(recorder)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert (found.reason, found.expected) == (names.LOSS_TIMED_OUT, False)
    assert found.last_seen_at is not None
    assert found.at - found.last_seen_at > 1


async def _check_ttl_soon(dask_scheduler: Any) -> None:
    # Dask waits ten beats at least, five seconds.
    dask_scheduler.worker_ttl = 1
    dask_scheduler.periodic_callbacks["worker-ttl"].stop()
    again = PeriodicCallback(dask_scheduler.check_worker_ttl, 200)
    dask_scheduler.periodic_callbacks["worker-ttl"] = again
    again.start()


def test_a_worker_without_a_nanny_that_is_cut_off_has_lost_its_connection(
    lone_worker: tuple[Client, DaskProcess], recorder: Recorder
) -> None:
    client, _ = lone_worker
    daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
    kill(client)
    found = loss(recorder)
    assert (found.reason, found.expected) == (names.LOSS_LOST_CONNECTION, False)
    assert found.name == "lone"


def test_what_refused_logs_would_tell_of_a_loss_is_absent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(logs__transmit=False)
    client.submit(warn, MARKER).result()
    kill(client)
    assert loss(recorder).log is None
    assert names.WORKER_LOSS_LOG not in attributes(recorder)
    assert MARKER.encode() not in recorder.bytes


class _Task(SimpleNamespace):
    def __hash__(self) -> int:  # type: ignore[override]  # as Dask's have
        return hash(self.key)


class _Lost:
    """What is left of a worker that Dask has removed."""

    nanny = None
    last_seen = 1.0
    memory_limit = 10**9
    nthreads = 2
    metrics: ClassVar[dict[str, int]] = {"memory": 10**8}
    executing: ClassVar[dict[Any, float]] = {}
    long_running: ClassVar[set[Any]] = set()

    def __init__(self, number: int) -> None:
        self.address = f"tcp://10.0.0.1:{number}"
        self.name = number


@pytest.mark.parametrize(("keys", "expected"), [((), True), (("x", "y"), False)])
def test_a_worker_whose_lifetime_ends_while_it_has_tasks_was_not_expected_to(
    keys: tuple[str, ...], expected: bool
) -> None:
    scheduler: Any = SimpleNamespace(get_events=lambda topic: (), tasks={})
    losses = _losses(scheduler, Counter())
    worker: Any = _Lost(1)
    losses.added(worker)
    reason = {"action": "closing-worker", "reason": "worker-lifetime-reached"}
    losses.event(worker.address, reason)
    # As it leaves, Dask counts what it takes along against its tasks.
    message = {"action": "remove-worker", "worker": worker.address, "processing-tasks": keys}
    losses.event("all", {**message, "stimulus_id": "handle-worker-cleanup-1", "expected": False})
    (row,) = losses.take(last=True)
    assert (row.reason, row.expected) == (names.LOSS_RETIRED, expected)


def _losses(scheduler: Any, drops: Counter[str], lost: list[Any] | None = None) -> Losses:
    def count(tasks: Collection[Any]) -> dict[str, int]:
        if lost is not None:
            lost.extend(tasks)
        return {}

    return Losses(
        scheduler,
        Naming(Counter()).prefix,
        drops,
        left=lambda worker, keys: None,
        unended=list,
        lost=count,
        peak=lambda address, memory: None,
        had=lambda memory: None,
    )


def leave_at_once(
    workers: int, lines: tuple[str, ...] | None, stimulus: str = ""
) -> tuple[Losses, Counter[str]]:
    drops: Counter[str] = Counter()
    scheduler: Any = SimpleNamespace(get_events=lambda topic: (), tasks={})
    losses = _losses(scheduler, drops)
    for number in range(workers):
        worker: Any = _Lost(number)
        losses.added(worker)
        for line in lines or ():
            losses.logged(worker.address, line)
        losses.event(
            "all",
            {
                "action": "remove-worker",
                "worker": worker.address,
                "processing-tasks": ["x"],
                "stimulus_id": stimulus,
            },
        )
    return losses, drops


def take_all(losses: Losses) -> list[protocol.WorkerLoss]:
    """Take what wait, as many beats as that is."""
    told: list[protocol.WorkerLoss] = []
    while losses.many_wait():
        told += losses.take(last=False)
        assert not len(told) % LOSSES_AT_ONCE
    return [*told, *losses.take(last=False)]


def test_a_whole_fleet_that_leaves_at_once_is_told_and_what_is_beyond_is_counted() -> None:
    losses, drops = leave_at_once(MAX_LOSSES, ("a line",))
    assert not drops
    told = take_all(losses)
    assert len(told) == MAX_LOSSES
    assert all(row.log == ("a line",) and row.tasks == {names.OTHER: 1} for row in told)
    assert losses.take(last=False) == ()

    _, drops = leave_at_once(MAX_LOSSES + 3, None)
    assert drops == {"worker loss": 3}


def test_where_their_last_lines_take_too_much_room_losses_come_without_and_that_is_counted() -> (
    None
):
    losses, drops = leave_at_once(1_000, ("x" * 500,) * 10)
    told = take_all(losses)
    assert len(told) == 1_000
    with_lines = [row for row in told if row.log is not None]
    assert 0.9 * MAX_DETAIL_BYTES < size_of(with_lines) < 1.3 * MAX_DETAIL_BYTES
    assert drops == {"worker loss detail": 1_000 - len(with_lines)}
    # There is room again.
    worker: Any = _Lost(9_999)
    losses.added(worker)
    losses.logged(worker.address, "a line")
    losses.event("all", {"action": "remove-worker", "worker": worker.address})
    (row,) = losses.take(last=False)
    assert row.log is not None


def test_lines_that_arrive_after_their_worker_has_left_are_as_many_as_of_others() -> None:
    losses, drops = leave_at_once(500, ("x" * 500,) * 10, stimulus="handle-worker-cleanup-1")
    assert losses.take(last=False) == ()  # each may have something to say yet
    for address in ("tcp://10.0.0.1:0", "tcp://10.0.0.1:499"):
        for number in range(2 * LAST_LINES):
            losses.logged(address, f"{number}")
    full, *_, last = losses.take(last=True)
    assert (
        full.log == last.log == tuple(f"{number}" for number in range(LAST_LINES, 2 * LAST_LINES))
    )
    assert not drops


def test_where_there_is_no_room_late_lines_are_left_out_and_that_is_counted_once() -> None:
    losses, drops = leave_at_once(2_000, ("x" * 500,) * 4, stimulus="handle-worker-cleanup-1")
    without = drops["worker loss detail"]
    for number in range(LAST_LINES):
        losses.logged("tcp://10.0.0.1:0", f"{number}" + "y" * 5_000)
        losses.logged("tcp://10.0.0.1:1999", f"{number}")
        losses.logged("tcp://10.0.0.1:2000", "of one that is not known")
    assert without
    assert drops == {"worker loss detail": without + 1}
    told = losses.take(last=True)
    assert len(told) == 2_000
    assert told[-1].log is None


def test_of_a_lost_worker_with_tasks_of_many_kinds_the_most_are_told_by_prefix() -> None:
    drops: Counter[str] = Counter()
    keys = [f"kind{number % 30}-{number:032x}" for number in range(600)]
    tasks = {}
    for key in keys:
        kind = key.split("-")[0]
        function = SimpleNamespace(func=type(kind, (), {}))
        prefix = SimpleNamespace(name=kind)
        group = SimpleNamespace(name=key, prefix=prefix)
        tasks[key] = _Task(key=key, run_spec=function, prefix=prefix, group=group, priority=(0, 1))
    scheduler: Any = SimpleNamespace(get_events=lambda topic: (), tasks=tasks)
    losses = _losses(scheduler, drops)
    worker: Any = _Lost(1)
    losses.added(worker)
    message = {"action": "remove-worker", "worker": worker.address, "processing-tasks": keys}
    losses.event("all", message)
    (row,) = losses.take(last=False)
    assert row.processing == sum(row.tasks.values()) == 600
    assert len(row.tasks) == MAX_PREFIXES + 1
    assert row.tasks[names.OTHER] == 600 - sum(
        count for name, count in row.tasks.items() if name != names.OTHER
    )


@pytest.fixture
def empty_cluster(recorder: Recorder) -> Iterator[tuple[Client, str]]:
    """A cluster that workers of a test's own join: a client, and its address."""
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster) as client:
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        yield client, cluster.scheduler_address


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["with a task", "without"])
def test_a_worker_that_ends_at_its_lifetime_was_retired(
    empty_cluster: tuple[Client, str], recorder: Recorder, busy: bool
) -> None:
    client, address = empty_cluster
    # So long that it has begun with the task by then.
    lifetime = f"{stretched(4.0):.0f}s" if busy else "1s"
    with worker_process(address, "--lifetime", lifetime, nanny=True):
        if busy:
            held = client.submit(sleep_until_the_end, f"lifetime {lifetime}", 1, retries=0)
            Event(f"lifetime {lifetime}", client=client).wait(timeout=PATIENCE)
        found = loss(recorder)
        events = [event for _, event in client.get_events("all")]
    # What Dask expects it does not hold against the task.
    (expected,) = (e["expected"] for e in events if e.get("action") == "remove-worker")
    assert (found.reason, found.expected) == (names.LOSS_RETIRED, expected or not busy)
    assert found.processing == busy
    if busy:
        assert list(found.tasks.values()) == [1]
        lost = recorder.wait_for(
            lambda: [row for row in recorder.computations().values() if row.lost_runs], "the run"
        )
        assert [row.lost_runs for row in lost] == [1]
        held.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["with a task", "without"])
def test_a_worker_whose_nanny_gets_sigterm_was_terminated(
    empty_cluster: tuple[Client, str], recorder: Recorder, busy: bool
) -> None:
    client, address = empty_cluster
    # As a pod's first process, or that of a job, is asked to end.
    with worker_process(address, nanny=True) as nanny:
        if busy:
            held = client.submit(sleep_until_the_end, "terminated", 1)
            Event("terminated", client=client).wait(timeout=PATIENCE)
        else:
            client.wait_for_workers(1, timeout=PATIENCE)
        nanny.send_signal(signal.SIGTERM)
        found = loss(recorder)
    assert (found.reason, found.expected) == (names.LOSS_TERMINATED, not busy)
    assert found.processing == busy
    if busy:
        held.cancel()


def test_the_most_memory_is_of_the_limit_that_there_was_then(recorder: Recorder) -> None:
    with (
        LocalCluster(
            n_workers=2, processes=False, memory_limit="4 GB", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")

        def statuses(workers: int) -> list[protocol.Status]:
            return [b.status for b in recorder.beats if b.status.workers == workers]

        two = recorder.wait_for(
            lambda: [s for s in statuses(2) if s.memory_used], "what two workers use"
        )[-1]
        assert two.memory_limit == two.peak_memory_limit == 8_000_000_000
        cluster.scale(1)
        # Both are in one process, so that the one that stays uses about half as much.
        one = recorder.wait_for(lambda: statuses(1), "one worker")[-1]
        assert one.memory_limit == 4_000_000_000
        assert one.peak_memory_limit == 8_000_000_000
