"""Whatever a cluster is at keeps it: work that is no task of Dask's, too."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import (
    Client,
    Event,
    LocalCluster,
    Lock,
    MultiLock,
    Queue,
    Semaphore,
    Variable,
    wait,
)
from distributed.comm.core import connect
from distributed.core import Status
from distributed.diagnostics import nvml
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps
from distributed.scheduler import WorkerState
from tornado.iostream import StreamClosedError

from daskscope import protocol
from daskscope.observe.cluster.calls import Calls, asked_every
from daskscope.observe.cluster.other_plugins import FRISKY
from daskscope.observe.workers import cpu
from daskscope.observe.workers.cpu import LATE, SILENT, WINDOW, WorkersCpu
from daskscope.observe.workers.gpus import total_of
from daskscope.worker_process import (
    METRIC,
    STALLED,
    Transfers,
    WorkerProcess,
    used_by_others,
)
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE, wait_for_file, wait_on_loop, wait_until

pytestmark = pytest.mark.contract

#: Computes until there is a file.
BURN = """
import pathlib, sys
while not pathlib.Path(sys.argv[1]).exists():
    sum(range(100_000))
"""


class Sleeper:
    def wait_for_file(self, path: str) -> Any:
        wait_for_file(path)

    async def wait_for_file_on_the_loop(self, path: str) -> Any:
        await wait_on_loop(Path(path).exists, what=path)


def wait_for_event() -> None:
    Event("daskscope-never-set").wait()


def start_thread(path: str) -> None:
    """Start a thread that computes until there is a file, and return."""

    def burn() -> None:
        while not Path(path).exists():
            sum(range(100_000))

    threading.Thread(target=burn, daemon=True).start()


def start_process(path: str) -> None:
    """Start a process that computes until there is a file, and return."""
    subprocess.Popen([sys.executable, "-c", BURN, path])


@pytest.fixture
def done(tmp_path: Path) -> Iterator[Path]:
    """A file that ends the work. It is there after the test whatever happens."""
    path = tmp_path / "done"
    yield path
    path.touch()


def hold_the_gil(path: str, pipe: str) -> None:
    """Start a thread that, once there is a file, holds the GIL until something comes by a pipe."""
    end = os.open(pipe, os.O_RDWR)

    def hold() -> None:
        wait_for_file(path)
        # As a native extension does that does not release it: PyDLL does not, unlike CDLL.
        ctypes.PyDLL(None).read(end, ctypes.create_string_buffer(1), 1)

    threading.Thread(target=hold, daemon=True).start()


Stays = Callable[[str], None]


@pytest.fixture
def stays(register: Register, recorder: Recorder, cluster: LocalCluster) -> Stays:
    """Register; return what waits for a sign of work, and asks in vain for the cluster to close."""
    register()

    def stays(sign: str) -> None:
        status = _status(recorder, lambda status: _says(status, sign), sign)
        assert status.idle_seconds is None
        command = f"for {sign}"
        recorder.commands = [
            {
                "id": command,
                "action": "shutdown",
                "requested_by": "policy nights",
                "reason": "",
                "grace": 0,
            }
        ]
        rows = recorder.wait_for(
            lambda: [row for row in recorder.shutdowns() if row.id == command], "an answer to it"
        )
        recorder.commands = []
        assert [row.state for row in rows] == ["called off"]
        assert sign in rows[0].detail
        assert _is_up(cluster)

    return stays


def _says(status: protocol.Status, sign: str) -> bool:
    return any(sign in one for one in status.busy_by or ())


def _status(
    recorder: Recorder, fits: Callable[[protocol.Status], object], what: str
) -> protocol.Status:
    """Wait for a status that fits, in a beat that is to come."""
    before = len(recorder.beats)
    return recorder.wait_for(
        lambda: next((b.status for b in recorder.beats[before:] if fits(b.status)), None), what
    )


def _becomes_idle(recorder: Recorder) -> None:
    status = _status(recorder, lambda status: status.busy_by == (), "idleness")
    assert status.idle_seconds is not None


def test_a_thread_that_outlives_its_task_is_work(
    client: Client, recorder: Recorder, stays: Stays, done: Path
) -> None:
    client.submit(start_thread, str(done), pure=False).result()
    stays("a worker uses the CPU without a task")
    done.touch()
    _becomes_idle(recorder)


@pytest.mark.slow
def test_native_code_that_holds_the_gil_of_a_worker_is_work(
    client: Client,
    recorder: Recorder,
    stays: Stays,
    done: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The worker's event loop does not run, so no heartbeat says what keeps it.
    monkeypatch.setattr(cpu, "SILENT", 1.0)
    pipe, begin = tmp_path / "pipe", tmp_path / "begin"
    os.mkfifo(pipe)
    client.submit(hold_the_gil, str(begin), str(pipe), pure=False).result()
    _becomes_idle(recorder)
    begin.touch()
    try:
        stays("a worker does not report")
    finally:
        pipe.write_bytes(b"x")
    _becomes_idle(recorder)


@pytest.mark.own_cluster
def test_an_adaptive_cluster_stays_while_work_waits_for_its_workers(
    client: Client, cluster: LocalCluster, recorder: Recorder, stays: Stays, done: Path
) -> None:
    scheduler: Any = cluster.scheduler
    adaptive = cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=1)
    wait_until(lambda: not scheduler.workers, what="Dask removes the worker that nobody needs")
    adaptive.stop()  # as if no place were free for a worker
    result = client.submit(wait_for_file, str(done), pure=False)
    stays("tasks wait for a worker that can run them")
    cluster.adapt(minimum=0, maximum=1, interval="100ms")
    stays("tasks are running")
    done.touch()
    result.result()
    _becomes_idle(recorder)


@pytest.mark.slow
@pytest.mark.own_cluster
def test_work_that_a_blocked_scheduler_has_not_read_keeps_the_cluster(
    cluster: LocalCluster, register: Register, recorder: Recorder, done: Path
) -> None:
    scheduler: Any = cluster.scheduler
    register(idle__timeout="2s", idle__grace="0s")
    with Client(cluster.scheduler_address, set_as_default=False) as elsewhere:
        _becomes_idle(recorder)
        blocked, goes_on = threading.Event(), threading.Event()

        def block() -> None:
            blocked.set()
            goes_on.wait()

        scheduler.loop.add_callback(block)
        try:
            assert blocked.wait(PATIENCE)
            # Real time, not a clock of the test's: the work must have reached the scheduler's
            # socket by then, and what could say that it has is blocked.
            until = time.monotonic() + 5
            result = elsewhere.submit(wait_for_file, str(done), pure=False)
            wait_until(lambda: time.monotonic() > until, what="more than idle.timeout passes")
        finally:
            goes_on.set()
        _status(recorder, lambda status: _says(status, "tasks are running"), "the task")
        assert _is_up(cluster)
        assert "closing" not in {row.state for row in recorder.shutdowns()}
        done.touch()
        result.result()


def test_a_process_that_a_worker_started_is_work(
    client: Client, recorder: Recorder, stays: Stays, done: Path
) -> None:
    client.submit(start_process, str(done), pure=False).result()
    stays("a worker uses the CPU without a task")
    done.touch()
    _becomes_idle(recorder)


@pytest.mark.parametrize("method", ["wait_for_file", "wait_for_file_on_the_loop"])
def test_a_method_of_an_actor_is_work(
    client: Client, recorder: Recorder, stays: Stays, done: Path, method: str
) -> None:
    actor = client.submit(Sleeper, actor=True).result()
    call = getattr(actor, method)(str(done))
    stays("a client's call is in progress")
    assert recorder.beats[-1].status.held_by["calls"] == 1
    done.touch()
    call.result()
    _becomes_idle(recorder)
    del actor, call


def test_who_waits_for_another_part_of_the_program_keeps_the_cluster(
    client: Client, recorder: Recorder, stays: Stays
) -> None:
    event: Any = Event("daskscope", client=client)
    queue: Any = Queue("daskscope", client=client)
    variable: Any = Variable("daskscope", client=client)
    lock: Any = Lock("daskscope")
    other_lock: Any = Lock("daskscope")
    assert lock.acquire()
    semaphore: Any = Semaphore(max_leases=1, name="daskscope-leases")
    other_semaphore: Any = Semaphore(max_leases=1, name="daskscope-leases")
    assert semaphore.acquire()
    locks: Any = MultiLock(["daskscope-a", "daskscope-b"])
    other_locks: Any = MultiLock(["daskscope-b", "daskscope-c"])
    assert locks.acquire()
    for waits, ends in (
        (event.wait, event.set),
        (queue.get, lambda: queue.put(1)),
        (variable.get, lambda: variable.set(1)),
        (other_lock.acquire, lock.release),
        (other_semaphore.acquire, semaphore.release),
        (other_locks.acquire, locks.release),
    ):
        thread = threading.Thread(target=waits)
        thread.start()
        stays("a program waits for a Dask Event, Queue, Variable or Lock")
        ends()
        thread.join()
    other_lock.release()
    other_semaphore.release()
    other_semaphore.close()
    other_locks.release()
    variable.delete()
    _becomes_idle(recorder)


@pytest.mark.parametrize("kind", [Lock, Semaphore, MultiLock])
def test_a_lock_that_a_program_holds_keeps_the_cluster(
    client: Client, recorder: Recorder, stays: Stays, kind: Callable[..., Any]
) -> None:
    lock = kind(["daskscope-a", "daskscope-b"]) if kind is MultiLock else kind(name="daskscope-a")
    assert lock.acquire()
    stays("a program holds a Dask Lock, Semaphore or MultiLock")
    lock.release()
    _becomes_idle(recorder)


@pytest.mark.own_cluster
def test_a_worker_that_is_gone_waits_for_nothing(
    client: Client, cluster: LocalCluster, recorder: Recorder, register: Register
) -> None:
    register()
    client.submit(wait_for_event)
    scheduler: Any = cluster.scheduler
    wait_until(lambda: "event_wait" in scheduler._comms.values(), what="the call of the task")
    client.restart()  # which kills the worker, and cancels the task
    _becomes_idle(recorder)
    assert "event_wait" in scheduler._comms.values()  # for Dask it goes on


def test_what_a_client_that_is_gone_has_others_do_is_work_to_its_end(
    client: Client, cluster: LocalCluster, recorder: Recorder, register: Register, done: Path
) -> None:
    register()

    async def run() -> None:
        await wait_on_loop(done.exists, what="the end of the test")

    async def ask_and_go() -> None:
        connection = await connect(cluster.scheduler_address)
        await connection.write({"op": "run_function", "function": dumps(run), "wait": True})
        scheduler: Any = cluster.scheduler
        while "run_function" not in scheduler._comms.values():
            await asyncio.sleep(0.01)
        connection.abort()

    client.sync(ask_and_go)
    for _ in range(10):  # the connection is seen to be closed meanwhile
        _status(recorder, lambda status: _says(status, "a client's call"), "the call")
    done.touch()
    _becomes_idle(recorder)


def test_a_call_of_a_clients_says_so(
    client: Client, recorder: Recorder, stays: Stays, done: Path
) -> None:
    thread = threading.Thread(target=lambda: client.run(Sleeper().wait_for_file, str(done)))
    thread.start()
    stays("a client's call is in progress")
    done.touch()
    thread.join()
    _becomes_idle(recorder)


def test_a_client_that_fetches_from_a_worker_by_itself_says_so(
    client: Client, recorder: Recorder, stays: Stays
) -> None:
    # As over a slow line: more than the buffers between the two hold is not read yet.
    result = client.submit(bytes, 64_000_000)
    wait(result)
    (worker,) = client.who_has([result])[result.key]

    async def ask() -> Any:
        connection = await connect(worker, deserialize=False)
        await connection.write({"op": "get_data", "keys": [result.key], "who": None})
        return connection

    async def read(connection: Any) -> None:
        await connection.read()
        await connection.write("OK")
        await connection.close()

    connection = client.sync(ask)
    stays("a call to a worker is in progress")
    client.sync(read, connection)
    _becomes_idle(recorder)


@contextmanager
def _slowly(
    client: Client,
    address: str,
    begins: Callable[[Any], Awaitable[Any]],
    goes_on: Callable[[Any], Awaitable[Any]],
) -> Iterator[None]:
    """Connect to ``address``, begin, and go on a bit now and then, each with the connection."""

    async def begin() -> Any:
        connection = await connect(address, deserialize=False)
        await begins(connection)
        return connection

    async def go_on(connection: Any) -> None:
        while not connection.closed():
            await goes_on(connection)
            await asyncio.sleep(0.1)

    connection = client.sync(begin)
    loop: Any = client.loop
    going = asyncio.run_coroutine_threadsafe(go_on(connection), loop.asyncio_loop)
    try:
        yield
    finally:
        loop.add_callback(connection.abort)
        with suppress(StreamClosedError):
            going.result()


@pytest.mark.parametrize("to", ["the scheduler", "a worker"])
def test_data_that_comes_over_a_slow_line_is_work(
    client: Client, cluster: LocalCluster, recorder: Recorder, stays: Stays, to: str
) -> None:
    async def write(connection: Any, some: bytes = bytes(1000)) -> None:
        await connection.stream.write(some)

    (worker,) = cluster.scheduler_info["workers"]
    address = cluster.scheduler_address if to == "the scheduler" else worker
    length = struct.pack("Q", 100_000_000)
    with _slowly(client, address, lambda connection: write(connection, length), write):
        stays("a large message is on" if to == "the scheduler" else "a call to a worker is in")
    _becomes_idle(recorder)


def test_data_that_goes_over_a_slow_line_is_work(
    client: Client, cluster: LocalCluster, recorder: Recorder, stays: Stays
) -> None:
    async def ask(connection: Any) -> None:
        await connection.write({"op": "gather", "keys": [result.key]})

    async def read(connection: Any) -> None:
        await connection.stream.read_bytes(300_000)

    result = client.submit(bytes, 64_000_000)
    wait(result)
    with _slowly(client, cluster.scheduler_address, ask, read):
        stays("a large message is on its way")
    _becomes_idle(recorder)


def test_a_short_call_to_a_worker_is_counted_in_its_next_beat() -> None:
    operations: Counter[str] = Counter(ping=5)
    counters = {"op": SimpleNamespace(components=[operations])}
    worker: Any = SimpleNamespace(metrics={}, _comms={}, counters=counters)
    WorkerProcess().setup(worker)
    read = worker.metrics[METRIC]
    state: Any = SimpleNamespace(address="tcp://w", metrics={METRIC: read(worker)})
    cpu = WorkersCpu()

    def beat() -> int:
        state.metrics[METRIC] = read(worker)
        cpu.look([state], 1.0)
        return cpu.begun

    assert (beat(), beat()) == (0, 0)
    operations.update(actor_execute=2, get_data=1)
    assert (beat(), beat()) == (1, 1)
    cpu.restart()
    operations.update(what_another_package_adds=1)
    assert beat() == 2
    operations.update(ping=1, profile=2)
    assert beat() == 2
    cpu.look([], 2.0)
    assert not cpu._begun


def test_a_message_that_gets_no_further_is_no_work() -> None:
    stream = SimpleNamespace(_user_read_buffer=True, _read_buffer_size=1, _total_write_done_index=0)
    transfers, line = Transfers(), [_Connection(stream)]
    assert transfers.look(line, 1.0) == 0
    stream._read_buffer_size = 2
    assert transfers.look(line, 2.0) == 1
    assert transfers.look(line, 2.0 + STALLED / 2) == 1
    assert transfers.look(line, 2.0 + STALLED) == 0


class _Connection:
    def __init__(self, stream: Any) -> None:
        self.stream = stream


@pytest.mark.parametrize("where", ["on a worker", "on the scheduler"])
def test_a_coroutine_that_nobody_waits_for_is_work(
    client: Client, recorder: Recorder, stays: Stays, done: Path, where: str
) -> None:
    async def wait_for_file(path: str) -> None:
        await wait_on_loop(Path(path).exists, what=path)

    if where == "on a worker":
        client.run(wait_for_file, str(done), wait=False)
        stays("a call to a worker is in progress")
    else:
        client.run_on_scheduler(wait_for_file, str(done), wait=False)
        stays("a client's call is in progress")
    done.touch()
    _becomes_idle(recorder)


def test_a_client_that_waits_for_more_workers_says_so(
    cluster: LocalCluster, recorder: Recorder, stays: Stays
) -> None:
    # As where workers are a batch system's, or Kubernetes', to start.
    waits = Client(cluster.scheduler_address, set_as_default=False)

    def wait_for_workers() -> None:
        with suppress(Exception):  # the client is closed
            waits.wait_for_workers(50)

    thread = threading.Thread(target=wait_for_workers)
    thread.start()
    stays("a client waits for more workers")
    waits.close()
    thread.join()
    _becomes_idle(recorder)


class _Asking:
    """A scheduler that so many clients ask, each at its moment of every ``every`` seconds."""

    def __init__(self, moments: list[float], every: float) -> None:
        self.clients = dict.fromkeys(range(len(moments)))
        self._comms: dict[Any, str] = {}
        self.extensions: dict[str, Any] = {}
        self._op: Counter[str] = Counter()
        self.counters = {"op": SimpleNamespace(components=[self._op])}
        self.calls = Calls(cast(Any, self))
        self._moments, self._every, self._now = moments, every, 1.0

    def go_on(self, seconds: float, waiting: float = 0.0) -> set[bool]:
        """Let so many seconds pass, while one that waits for workers asks so often per second."""
        seen = set()
        for _ in range(round(seconds * 2)):
            before, self._now = self._now, self._now + 0.51
            for moment in self._moments:
                asked = (self._now - moment) // self._every - (before - moment) // self._every
                self._op["identity"] += int(asked)
            self._op["identity"] += round(waiting / 2)
            self.calls.look(self._now)
            seen.add(self.calls.waits_for_workers)
        return seen


@pytest.mark.parametrize("told", [True, False], ids=["told how often", "older"])
@pytest.mark.parametrize("moments", ["one", "apart"])
@pytest.mark.parametrize("clients", [1, 30, 150])
def test_a_client_that_waits_for_workers_is_told_from_those_that_ask_regularly(
    clients: int, moments: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told:
        monkeypatch.setattr(Client, "_adjust_heartbeat_intervals", None, raising=False)
    else:
        monkeypatch.delattr(Client, "_adjust_heartbeat_intervals", raising=False)
    every = asked_every(clients)
    spread = 0.01 if moments == "one" else every
    asking = _Asking([spread * number / clients for number in range(clients)], every)
    assert asking.go_on(120) == {False}
    asking.go_on(5 + clients / 6 + every, waiting=8)
    assert asking.go_on(60, waiting=8) == {True}
    asking.go_on(10 + clients)
    assert asking.go_on(120) == {False}


def test_what_dask_itself_does_later_is_no_work(
    client: Client, cluster: LocalCluster, recorder: Recorder, register: Register
) -> None:
    register()
    with Client(cluster, set_as_default=False):
        pass
    # It cleans up after the client that has left, an hour from now.
    scheduler: Any = cluster.scheduler
    assert len(scheduler._ongoing_background_tasks) > len(scheduler._comms)
    _becomes_idle(recorder)


class OtherScheduler(SchedulerPlugin):
    """Does as Frisky's plugin does, which has its own tasks in the scheduler's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scheduler = SimpleNamespace(n_tasks=0)


@contextmanager
def _keeps_dask_alive(cluster: LocalCluster) -> Iterator[None]:
    scheduler: Any = cluster.scheduler
    ends = False

    async def keep() -> None:
        while not ends:
            scheduler.idle_since = None
            await asyncio.sleep(1)

    future = asyncio.run_coroutine_threadsafe(keep(), scheduler.loop.asyncio_loop)
    try:
        yield
    finally:
        ends = True
        future.result()


def test_a_plugin_that_keeps_dask_from_being_idle_is_heard(
    cluster: LocalCluster, recorder: Recorder, stays: Stays
) -> None:
    with _keeps_dask_alive(cluster):
        stays("another plugin of the scheduler reports work")


def test_another_schedulers_tasks_are_work_and_that_they_are_not_seen_is_said(
    cluster: LocalCluster, recorder: Recorder, stays: Stays
) -> None:
    scheduler: Any = cluster.scheduler
    frisky = OtherScheduler(FRISKY)
    scheduler.add_plugin(frisky)
    try:
        status = _status(recorder, lambda s: "other schedulers" in s.held_by, "another scheduler")
        assert status.held_by["other schedulers"] == 1
        _becomes_idle(recorder)
        frisky.scheduler.n_tasks = 80
        stays("Frisky, another scheduler in this one, has 80 tasks")
        frisky.scheduler.n_tasks = 0
        _becomes_idle(recorder)
    finally:
        scheduler.remove_plugin(name=FRISKY)


@pytest.mark.own_cluster
def test_idle_timeout_waits_for_all_of_it(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder, done: Path
) -> None:
    register(idle__timeout="2s", idle__grace="500ms")
    client.submit(start_process, str(done), pure=False).result()
    at = recorder.beats[-1].status.at
    recorder.wait_for(lambda: recorder.beats[-1].status.at > at + 8, "eight seconds of it")
    assert _is_up(cluster)
    assert "closing" not in {row.state for row in recorder.shutdowns()}
    done.touch()
    # The share of the CPU falls until the window that began with the process is over.
    wait_until(lambda: not _is_up(cluster), what="the cluster closes", seconds=2 * WINDOW)


def _is_up(cluster: LocalCluster) -> bool:
    return bool(cluster.status == Status.running)


# --- with workers and a clock of the test's own -----------------------------------------------


class Workers:
    """Two workers that report once a second what their processes have used."""

    def __init__(self, *, told: bool = True, nanny: str | None = "tcp://n") -> None:
        self.now = 1000.0
        self.cpu = WorkersCpu()
        self._told = told
        self._used = [5.0, 7.0]
        self.workers = [
            SimpleNamespace(
                address=f"tcp://w{number}", host="h", pid=1, nanny=nanny, metrics={"time": 0.0}
            )
            for number in range(2)
        ]

    def pass_seconds(
        self, seconds: float, first: float, second: float = 0.0, *, look: bool = True
    ) -> None:
        """Let time pass in which each uses that share of a core."""
        for _ in range(int(seconds)):
            self.now += 1
            for number, share in enumerate((first, second)):
                self._used[number] += share
                metrics: dict[str, Any] = {"time": self.now, "cpu": 100 * share}
                if self._told:
                    metrics[METRIC] = (self.now - 500, self._used[number], 0)
                self.workers[number].metrics = metrics
            if look:
                self.look()

    def look(self) -> None:
        self.cpu.look(cast("list[WorkerState]", self.workers), self.now)


@pytest.mark.parametrize("told", [True, False], ids=["told", "Dask's own"])
def test_an_idle_worker_uses_little_and_one_at_work_uses_more(told: bool) -> None:
    workers = Workers(told=told)
    workers.pass_seconds(300, 0.05, 0.05)
    assert workers.cpu.busy == 0
    workers.pass_seconds(WINDOW, 0.05, 0.4)
    assert workers.cpu.busy == 1
    assert workers.cpu.share == pytest.approx(0.4, abs=0.1)
    # Once it ends it is at rest within the window.
    workers.pass_seconds(WINDOW + 10, 0.05, 0.05)
    assert workers.cpu.busy == 0


def test_what_is_over_in_a_moment_is_no_work() -> None:
    workers = Workers()
    workers.pass_seconds(5, 0.02)
    workers.pass_seconds(1, 0.25)
    workers.pass_seconds(30, 0.02)
    workers.pass_seconds(1, 0.25)
    assert workers.cpu.busy == 0


def test_what_workers_used_before_it_was_quiet_does_not_count() -> None:
    workers = Workers()
    workers.pass_seconds(30, 1.0)
    workers.cpu.restart()
    workers.look()
    workers.pass_seconds(20, 0.02)
    assert workers.cpu.busy == 0


def test_many_idle_workers_in_one_process_are_idle() -> None:
    workers = Workers(nanny=None)
    # Each reports the whole process.
    workers.pass_seconds(30, 0.11, 0.11)
    assert workers.cpu.busy == 0
    workers.pass_seconds(30, 0.5, 0.5)
    assert workers.cpu.busy == 2


def test_a_worker_that_does_not_report_any_more_is_not_taken_for_idle() -> None:
    workers = Workers()
    workers.pass_seconds(3, 0.02)
    workers.now += SILENT + 5
    workers.look()
    assert workers.cpu.silent == 2
    workers.pass_seconds(1, 0.02)
    assert workers.cpu.silent == 0


@pytest.mark.parametrize("older", [False, True])
def test_a_gpu_that_is_in_use_is_work(older: bool) -> None:
    def report(percent: int) -> None:
        workers.pass_seconds(1, 0.02, look=False)
        metrics = workers.workers[1].metrics
        metrics.update({"gpu": {"utilization": percent}} if older else {"gpu_utilization": percent})
        workers.look()

    workers = Workers()
    for percent in (0, 0, 90):
        report(percent)
    assert workers.cpu.gpu == 0  # as a screen may use it for a moment
    report(80)
    assert workers.cpu.gpu == 0.8
    report(5)
    assert workers.cpu.gpu == 0


def test_a_gpu_that_others_use_is_no_work() -> None:
    workers = Workers()
    for _ in range(4):
        workers.pass_seconds(1, 0.02, look=False)
        metrics = workers.workers[1].metrics
        metrics.update({"gpu_utilization": 90, METRIC: (*metrics[METRIC][:3], None, {}, True)})
        workers.look()
    assert workers.cpu.gpu == 0


def test_a_metric_of_the_users_own_named_gpu_is_none_of_a_gpus() -> None:
    workers = Workers()
    for _ in range(4):
        workers.pass_seconds(1, 0.02, look=False)
        for worker in workers.workers:
            worker.metrics["gpu"] = 0.5
        workers.look()
    assert (workers.cpu.gpu, total_of(cast("list[WorkerState]", workers.workers))) == (0, None)


@pytest.mark.parametrize(
    ("users", "of_others"),
    [
        (["another"], True),
        (["another", "this"], False),
        (["another", "child"], False),
        (["another", "nobody"], False),  # of another namespace
        ([], False),
    ],
)
def test_whose_the_use_of_a_gpu_is_is_known_if_all_its_users_are(
    users: list[str], of_others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        pids = {"this": os.getpid(), "child": child.pid, "another": 1, "nobody": 2**22 + 1}
        processes = [SimpleNamespace(pid=pids[user]) for user in users]
        driver = SimpleNamespace(
            nvmlDeviceGetComputeRunningProcesses=lambda gpu: processes,
            nvmlDeviceGetGraphicsRunningProcesses=lambda gpu: [],
            nvmlDeviceGetMPSComputeRunningProcesses=lambda gpu: [],
        )
        monkeypatch.setattr(nvml, "is_initialized", lambda: True)
        monkeypatch.setattr(nvml, "_pynvml_handles", lambda: "the GPU")
        monkeypatch.setattr(nvml, "pynvml", driver)
        assert used_by_others() is of_others
        child.kill()


def test_a_worker_whose_heartbeat_is_late_may_be_at_anything() -> None:
    workers = Workers()
    workers.pass_seconds(3, 0.02)
    assert not workers.cpu.unheard
    workers.now += LATE + 2
    workers.look()
    assert workers.cpu.unheard
    assert workers.cpu.silent == 0
    workers.pass_seconds(1, 0.02)
    assert not workers.cpu.unheard


def test_a_worker_that_has_not_reported_yet_is_not_taken_for_idle() -> None:
    workers = Workers()
    workers.look()
    workers.now += SILENT / 2
    workers.look()
    assert workers.cpu.unheard
    # A worker on a busy host reads its use every five seconds only. One number says nothing.
    workers.pass_seconds(1, 0.02)
    assert workers.cpu.unheard
    workers.pass_seconds(1, 0.02)
    assert not workers.cpu.unheard
    # What it said before it was quiet says nothing of the time since.
    workers.cpu.restart()
    workers.look()
    assert workers.cpu.unheard
    workers.pass_seconds(2, 0.02)
    assert not workers.cpu.unheard
