"""A cluster of real processes, and a server that records what its plugin sends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from distributed import Client, LocalCluster, Scheduler, Worker
from distributed.core import Status
from distributed.protocol.pickle import dumps

import daskscope
from daskscope.delivery import queue
from daskscope.observe.cluster import calls
from daskscope.observe.tasks import computation
from daskscope.plugin import NAME
from tests.exporter.everywhere import counted_everywhere
from tests.exporter.recorder import Recorder
from tests.exporter.truth import Truth
from tests.patience import PATIENCE, wait_until
from tests.ports import free_port

TOKEN = "dsk_test_0123456789abcdef"

Register = Callable[..., daskscope.Registration]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own settings out."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "DASK_DASKSCOPE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _spools_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test deliver what another one could not: all have the same token, and the address of
    one's server may be that of another's.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(Path(os.environ["XDG_STATE_HOME"], uuid4().hex)))


@pytest.fixture(autouse=True)
def _counted_beside_all(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count beside each plugin that starts in this process, unless :func:`register` does, or the
    test is marked ``uncounted``.
    """
    counted = {"register", "equals_truth", "counts_equal_truth"} & {*request.fixturenames}
    if counted or request.node.get_closest_marker("uncounted") is not None:
        yield
    else:
        with counted_everywhere():
            yield


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def start_cluster() -> LocalCluster:
    """Return a cluster of one worker process with two threads."""
    return LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        scheduler_port=free_port(),
        dashboard_address=":0",
        silence_logs=False,
    )


#: The cluster that tests share, while there is one.
_shared: list[LocalCluster] = []


def shared_cluster() -> LocalCluster:
    """Return the cluster that tests share, started if there is none."""
    if not _shared:
        _shared.append(start_cluster())
    return _shared[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End the shared cluster where no test here comes next: an idle one takes a tenth of a core."""
    try:
        yield
    finally:
        here = Path(__file__).parent
        if _shared and (nextitem is None or here not in nextitem.path.parents):
            _shared.pop().close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, recorder: Recorder) -> Iterator[LocalCluster]:
    """A cluster: the shared one, or one of the test's own if it is marked ``own_cluster``.

    It asks for the recorder only so that the recorder outlives it.
    """
    if request.node.get_closest_marker("own_cluster"):
        with start_cluster() as cluster:
            yield cluster
        return
    cluster = shared_cluster()
    yield cluster
    scheduler = cluster.scheduler
    assert scheduler is not None
    try:
        # What it has put into workers must not meet the next test.
        cluster.sync(take_off, scheduler)
        cluster.sync(_leave_no_task, scheduler)
        wait_until(lambda: not _calls(scheduler), what=lambda: _calls(scheduler))
        # Nor what workers have measured of its tasks.
        cluster.sync(scheduler.broadcast, msg={"op": "run", "function": dumps(_report)})
    except BaseException:
        # Its tasks may hold all threads for good: others would wait for one until their time is up.
        _shared.remove(cluster)
        cluster.close()
        raise


async def _report(dask_worker: Worker) -> None:
    await dask_worker.heartbeat()


def _calls(scheduler: Scheduler) -> list[str]:
    """Return the calls to the scheduler that are under way: for the next test it is not idle."""
    return [
        str(call)
        for connection, call in list(scheduler._comms.items())
        if call
        and call not in calls.STREAMS
        and not (call in calls.MEETINGS and connection.closed())
    ]


async def _leave_no_task(scheduler: Scheduler) -> None:
    """Wait until Dask has forgotten all tasks: those of one test are not to be the next one's."""
    ends = time.monotonic() + PATIENCE
    while scheduler.tasks:
        if time.monotonic() > ends:
            left = {
                key: (task.state, [client.client_key for client in task.who_wants or ()])
                for key, task in scheduler.tasks.items()
            }
            raise AssertionError(f"the test left tasks on the cluster that others use: {left}")
        await collect_garbage(scheduler)
        await asyncio.sleep(0.01)


async def collect_garbage(scheduler: Scheduler) -> None:
    """Let go of futures that are part of garbage, here or, of a task's own client, on a worker."""
    gc.collect()
    await scheduler.broadcast(msg={"op": "run", "function": dumps(gc.collect)})


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


@pytest.fixture
def collector() -> Iterator[Recorder]:
    """A server beside the service's, for OTLP."""
    with Recorder() as collector:
        yield collector


@pytest.fixture
def sends_soon(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK send spans and log records ten times a second: its own pauses are of seconds."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "100")


@pytest.fixture
def loops_never_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is submitted stop as soon as its tasks have ended: it does not go on then."""
    monkeypatch.setattr(computation, "LOOP_PAUSE", 0)


@pytest.fixture
def closes_before_servers(
    client: Client, recorder: Recorder, collector: Recorder
) -> Iterator[None]:
    """Close the plugin before the servers go: they would be missed, and that warned of."""
    yield
    close_plugin(client)


async def take_off(scheduler: Scheduler) -> None:
    """Close the plugin, if there is one, and take it off ``scheduler``. In one step: a beat that
    finds it taken off ends it without a report that the scheduler has closed.
    """
    plugin = scheduler.plugins.pop(NAME, None)
    if plugin is not None:
        await plugin.close()


def close_plugin(client: Client) -> None:
    """Close the plugin, as the scheduler does: what waits is sent. And wait for the threads that
    closing does not wait for: what they warn of is not the next test's.
    """
    assert client.cluster is not None
    scheduler = client.cluster.scheduler
    plugin = scheduler.plugins.get(NAME)
    if plugin is not None:
        running = plugin.session
        client.sync(take_off, scheduler)
        ends = time.monotonic() + PATIENCE
        while running is not None and not running._done() and time.monotonic() < ends:
            time.sleep(0.01)


def let_few_wait(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let no more rows of each kind wait for the service than that: it is quick to go beyond."""
    kinds = [replace(kind, limit=rows) for kind in queue._KINDS]
    monkeypatch.setattr(queue, "_KINDS", kinds)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What we, the SDK, and what it sends with have warned of."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
        and record.name.startswith(("daskscope", "opentelemetry", "urllib3"))
    ]


def wait_for_worker_logs(client: Client) -> None:
    """Wait until the workers send what they log."""

    def send(dask_worker: Any) -> bool:
        return "daskscope-logs" in dask_worker.plugins

    while not all(client.run(send).values()):
        time.sleep(0.01)


@pytest.fixture
def register(request: pytest.FixtureRequest, client: Client, recorder: Recorder) -> Register:
    """``daskscope.register`` for that cluster and recorder, beating ten times a second.

    Whatever runs is counted beside it, unless the test is marked ``uncounted``.
    """

    beside: list[Truth] = []
    if "equals_truth" in request.fixturenames:
        beside.append(request.getfixturevalue("equals_truth"))
    elif request.node.get_closest_marker("uncounted") is None:
        beside.append(request.getfixturevalue("counts_equal_truth"))

    def register(**settings: Any) -> daskscope.Registration:
        given = {"endpoint": recorder.url, "token": TOKEN, "interval": "100ms", **settings}
        for truth in beside:
            client.sync(truth.begin)
        registration: daskscope.Registration = daskscope.register(client, **given)
        return registration

    return register


@pytest.fixture
def equals_truth(cluster: LocalCluster, client: Client, recorder: Recorder) -> Iterator[Truth]:
    """Count beside the plugin from :func:`register` on. At the end of the test the plugin is
    closed, and all that it has sent must be the same.
    """
    with _counted_beside(cluster, client, recorder) as truth:
        yield truth
    if truth.began_at:
        beat = max(recorder.beats, key=lambda beat: beat.seq)
        last, prices = beat.status, beat.cluster.prices
        truth.assert_threads(last.worker_seconds, last.at)
        truth.assert_stretches(recorder.computations().values())
        rows = recorder.activities()
        truth.assert_activities(rows, last.at, stopped=last.stopped_at is not None)
        truth.assert_status(last, prices.per_hour if prices is not None else None)


@pytest.fixture
def counts_equal_truth(
    cluster: LocalCluster, client: Client, recorder: Recorder
) -> Iterator[Truth]:
    """Do the same, but not for the time of threads, which needs a calm machine."""
    with _counted_beside(cluster, client, recorder) as truth:
        yield truth


@contextmanager
def _counted_beside(cluster: LocalCluster, client: Client, recorder: Recorder) -> Iterator[Truth]:
    assert cluster.scheduler is not None
    truth = Truth(cluster.scheduler, NAME)
    yield truth
    is_open = cluster.status is not Status.closed  # the test may have closed it
    if truth.began_at and is_open:
        close_plugin(client)
    if truth.is_counting and is_open:  # also where the plugin never came
        client.sync(truth.end)
    if truth.began_at:
        truth.assert_equals(
            recorder.computations().values(), recorder.all_groups(), recorder.failures()
        )


@pytest.fixture(params=["setting", "OTEL_SDK_DISABLED"])
def registered_without_otlp(
    request: pytest.FixtureRequest, register: Register, monkeypatch: pytest.MonkeyPatch
) -> daskscope.Registration:
    """Registered with OTLP switched off, in each way there is."""
    if request.param == "setting":
        return register(otlp__enabled=False)
    monkeypatch.setenv(request.param, "true")
    registration = register()
    # The SDK of whoever submits, which is in this process too, is not switched off.
    monkeypatch.delenv(request.param)
    return registration
