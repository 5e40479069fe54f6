"""A cluster is closed when it was idle for too long or the service asks for it, and how."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.deploy.subprocess import SubprocessCluster

import daskscope
from daskscope import names, protocol
from daskscope.plugin import NAME
from daskscope.shutdown import closing, shutdowns
from daskscope.shutdown.closing import TOPIC
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.forked import ForkedProcess
from tests.patience import PATIENCE, START_PATIENCE, stretched, wait_for_file, wait_until

own_cluster = pytest.mark.own_cluster


class Sleeper:
    def wait_for_file(self, path: str) -> Any:
        wait_for_file(path)


def inc(x: int) -> int:
    return x + 1


def _command(**fields: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "action": "shutdown",
        "requested_by": "ada",
        "reason": "It is Friday.",
        "grace": 0,
        **fields,
    }


def _row(recorder: Recorder, state: str, identity: str | None = None) -> protocol.Shutdown:
    """Wait for a shutdown that is in that state, and return it."""
    return recorder.wait_for(
        lambda: next(
            (
                row
                for row in recorder.shutdowns()
                if row.state == state and identity in (None, row.id)
            ),
            None,
        ),
        f"a shutdown that is {state}",
    )


def _stop(recorder: Recorder) -> protocol.Heartbeat:
    return recorder.wait_for(
        lambda: next((beat for beat in recorder.beats if beat.phase == "stop"), None),
        "the last beat",
    )


def _eventually(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what=what)


def _states(recorder: Recorder) -> list[str]:
    return [row.state for row in recorder.shutdowns()]


# --- because it is idle ---------------------------------------------------------------------------


@own_cluster
def test_an_idle_cluster_closes_with_its_manager_and_client(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(idle__timeout="2s", idle__grace="500ms")
    # Neither a connected client nor data in memory keeps a cluster.
    data = client.submit(inc, 1)
    data.result()
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")
    _eventually(lambda: client.status == "closed", "the client closes")

    announced, closes = _row(recorder, "announced"), _row(recorder, "closing")
    assert announced.requested_by == closes.requested_by == "idle.timeout"
    assert announced.id == closes.id
    assert announced.closes_at == pytest.approx(announced.at + 0.5, abs=0.1)
    assert "idle for 2" in announced.detail
    assert "LocalCluster" in closes.detail
    stop = _stop(recorder)
    assert [(row.id, row.state) for row in stop.shutdowns] == [(announced.id, "closing")]
    assert "It has closed" in stop.shutdowns[0].detail
    assert b"dask.cluster.shutdown" in recorder.bytes
    assert any("closes in 500" in record.getMessage() for record in caplog.records)
    # Dask's own close() of a cluster whose scheduler has gone waits for half a minute.
    began = time.monotonic()
    cluster.close()
    assert time.monotonic() - began < 15


def test_work_that_arrives_calls_it_off_and_a_later_idleness_closes(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register(idle__timeout="1s", idle__grace="30s")
    first = _row(recorder, "announced")
    assert client.submit(inc, 1).result() == 2
    off = _row(recorder, "called off")
    assert (off.id, off.closes_at) == (first.id, None)
    assert "Work has arrived" in off.detail
    second = recorder.wait_for(
        lambda: [
            row for row in recorder.shutdowns() if row.state == "announced" and row.id != first.id
        ],
        "another announcement",
    )
    assert second[0].at > off.at
    assert cluster.status == Status.running


def test_data_that_arrives_calls_it_off(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(idle__timeout="1s", idle__grace="30s")
    _row(recorder, "announced")
    data = client.scatter([1, 2])
    _row(recorder, "called off")
    del data


def test_a_call_that_comes_and_goes_calls_it_off(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(idle__timeout="1s", idle__grace="30s")
    _row(recorder, "announced")
    # Too short for the looks at what is in progress, of which there are two in a second.
    client.run_on_scheduler(int)
    assert "Work has arrived" in _row(recorder, "called off").detail


@own_cluster
def test_a_task_that_runs_keeps_the_cluster(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register(idle__timeout="1s", idle__grace="0s")
    waits = client.submit(wait_for_file, str(tmp_path / "go"))
    held = recorder.wait_for(
        lambda: next(
            (b.status for b in recorder.beats if b.status.held_by.get("processing")), None
        ),
        "the task",
    )
    recorder.wait_for(
        lambda: recorder.beats[-1].status.at > held.at + 3, "three seconds of nothing else"
    )
    assert (_states(recorder), cluster.status) == ([], Status.running)
    (tmp_path / "go").touch()
    waits.result()
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")


@own_cluster
def test_an_actor_at_work_keeps_the_cluster(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register(idle__timeout="1s", idle__grace="0s")
    actor = client.submit(Sleeper, actor=True).result()
    call = actor.wait_for_file(str(tmp_path / "go"))
    at = recorder.beats[-1].status.at
    recorder.wait_for(lambda: recorder.beats[-1].status.at > at + 4, "four seconds of it")
    assert (_states(recorder), cluster.status) == ([], Status.running)
    (tmp_path / "go").touch()
    call.result()
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")


def test_the_service_is_told_when_it_closes_itself(register: Register, recorder: Recorder) -> None:
    register(idle__timeout="1h")
    beats = recorder.wait_for(lambda: recorder.beats[:1], "a beat")
    assert beats[0].cluster.idle_timeout == 3600.0


# --- because the service asks ---------------------------------------------------------------------


@own_cluster
def test_a_command_closes_the_cluster_and_is_acted_on_once(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.commands = [_command(grace=1, reason="Friday"), _command(grace=1)]
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")
    _stop(recorder)
    states = _states(recorder)
    assert (states[0], states.count("announced"), states[-1]) == ("announced", 1, "closing")
    announced = recorder.shutdowns()[0]
    assert (announced.id, announced.requested_by) == ("c1", "ada")
    assert announced.detail == "Friday. Work that arrives calls it off."
    closes = _row(recorder, "closing")
    assert closes.detail.startswith("Friday. Its LocalCluster is closed.")


def test_a_shutdown_can_be_called_off_by_command(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.commands = [_command(grace=3600, reason="Friday")]
    assert _row(recorder, "announced").detail == "Friday. Work that arrives calls it off."
    recorder.commands.append(_command(action="call off", reason="Not yet."))
    assert "ada called it off. Not yet." in _row(recorder, "called off").detail
    # Nor does the same command start it again.
    seq = recorder.beats[-1].seq
    recorder.wait_for(lambda: recorder.beats[-1].seq > seq + 5, "five more beats")
    assert _states(recorder) == ["announced", "called off"]


def test_it_can_be_called_off_however_far_apart_the_beats_are(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.commands = [_command(grace=10)]
    _row(recorder, "announced")
    scheduler: Any = cluster.scheduler

    async def stop_beating() -> None:
        """As if the next beat were an hour away."""
        scheduler.plugins[NAME].session._timer.stop()

    cluster.sync(stop_beating)
    # Those that were on their way have been answered, too.
    session = scheduler.plugins[NAME].session
    recorder.wait_for(
        lambda: (
            not (session._clear.waiting() or session._report.waiting())
            and recorder.beats[-1].seq == session.sender._pending._seq
        ),
        "the last beat",
    )
    recorder.commands.append(_command(action="call off", reason="Not yet."))
    assert "ada called it off. Not yet." in _row(recorder, "called off").detail


def test_what_a_command_says_stays_one_line_in_logs_and_controls_no_terminal(
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register()
    odd = "\r\nERROR\x1b[2J\x85 \u2028\u202efdp"
    recorder.commands = [_command(grace=3600, requested_by=f"ada{odd}", reason=f"Friday{odd}")]
    announced = _row(recorder, "announced")
    assert announced.requested_by == "ada ERROR [2J fdp"
    assert announced.detail == "Friday ERROR [2J fdp. Work that arrives calls it off."
    off = _command(action="call off", requested_by=f"ada{odd}", reason=f"Not yet{odd}")
    recorder.commands.append(off)
    why = "ada ERROR [2J fdp called it off. Not yet ERROR [2J fdp"
    assert why in _row(recorder, "called off").detail
    said = [one.getMessage() for one in caplog.records if "Friday" in one.getMessage()]
    assert said
    assert all(text.isprintable() for text in said)


def test_of_one_answer_no_more_commands_are_obeyed_than_a_cluster_may_have(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="100ms")
    recorder.commands = [_command(id=f"c{i}", action="call off") for i in range(1_000)]
    seq = recorder.beats[-1].seq
    recorder.wait_for(lambda: recorder.beats[-1].seq > seq + 5, "five more beats")
    assert client.submit(abs, -1).result() == 1
    obeyed = {row.id for beat in recorder.beats for row in beat.shutdowns}
    assert obeyed <= {f"c{i}" for i in range(20)}
    assert obeyed


def test_a_command_finds_the_cluster_at_work(
    client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register()
    waits = client.submit(wait_for_file, str(tmp_path / "go"))
    recorder.wait_for(lambda: recorder.beats[-1].status.held_by.get("processing"), "the task")
    recorder.commands = [_command()]
    assert "tasks are running" in _row(recorder, "called off").detail
    assert _states(recorder) == ["called off"]
    (tmp_path / "go").touch()
    waits.result()


@own_cluster
def test_a_command_may_end_a_cluster_at_work(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    register()
    waits = client.submit(wait_for_file, str(tmp_path / "never"))
    recorder.wait_for(lambda: recorder.beats[-1].status.held_by.get("processing"), "the task")
    recorder.commands = [_command(grace=1, even_if_busy=True)]
    _row(recorder, "announced")
    client.submit(inc, 1)
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")
    assert _states(recorder)[:2] == ["announced", "closing"]
    del waits


def test_commands_that_make_no_sense_are_counted_and_change_nothing(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    recorder.commands = [
        "shutdown",
        {},
        _command(action="restart"),
        _command(id=""),
        _command(id=7),
        _command(grace="soon"),
        _command(grace=-1),
        _command(grace=True),
        _command(even_if_busy="false"),
        {"id": "c1", "action": "shutdown", "reason": "no one asks"},
    ]
    register()
    recorder.wait_for(
        lambda: recorder.beats[-1].drops.get("unknown command", 0) >= 20, "counted commands"
    )
    assert (_states(recorder), cluster.status) == ([], Status.running)


def test_an_answer_to_something_else_is_no_command(
    cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    # Whoever answers in the service's place does not get to close clusters.
    with Recorder() as other:
        other.commands = [_command()]

        def send_on(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(307)
            handler.send_header("Location", other.url + handler.path)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        recorder.misbehave = lambda path: send_on
        recorder.wait_for(lambda: recorder.refused > 1, "redirected beats")
        recorder.misbehave = lambda path: None
        seq = recorder.beats[-1].seq
        recorder.wait_for(lambda: recorder.beats[-1].seq > seq + 3, "more beats")
        assert other.requests == []
    assert (_states(recorder), cluster.status) == ([], Status.running)


@own_cluster
def test_a_shutdown_that_fails_says_so(
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise RuntimeError("no permission, token=abcdef123456")

    register()
    monkeypatch.setattr(cluster, "_close", fail)
    recorder.commands = [_command()]
    failed = _row(recorder, "failed")
    assert "RuntimeError: no permission" in failed.detail
    assert "abcdef123456" not in failed.detail
    # Without a grace: no time is told that is none.
    assert any("closes now, requested by ada" in record.getMessage() for record in caplog.records)
    scheduler: Any = cluster.scheduler
    assert scheduler.status == Status.running
    monkeypatch.undo()


@own_cluster
def test_a_manager_that_takes_long_is_asked_once_and_waited_for(
    cluster: LocalCluster, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdowns, "CLOSING_PATIENCE", 0.5)
    close: Any = cluster._close
    goes_on = threading.Event()
    asked: list[float] = []

    async def close_slowly() -> None:
        asked.append(time.monotonic())
        while not goes_on.is_set() and time.monotonic() < asked[0] + 30:
            await asyncio.sleep(0.05)
        await close()

    monkeypatch.setattr(cluster, "_close", close_slowly)
    register(idle__timeout="1s", idle__grace="0s")
    failed = _row(recorder, "failed")
    assert "not closed within 500.00 ms" in failed.detail
    # Neither is another one begun for its own sake, nor by who asks meanwhile.
    recorder.commands = [_command()]
    assert "It was already closing." in _row(recorder, "closing", "c1").detail
    recorder.wait_for(lambda: recorder.beats[-1].status.at > failed.at + 2, "two more seconds")
    goes_on.set()
    _eventually(lambda: cluster.status == Status.closed, "the cluster closes")
    last = {row.id: row for row in _stop(recorder).shutdowns}
    assert last.keys() == {failed.id, "c1"} == {row.id for row in recorder.shutdowns()}
    assert all(row.state == "closing" and "It has closed" in row.detail for row in last.values())
    assert len(asked) == 1


@own_cluster
def test_work_that_arrives_when_it_is_closing_is_told_of(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    close: Any = cluster._close
    done = threading.Event()

    async def close_slowly() -> None:
        ends = time.monotonic() + 30
        while not done.is_set() and time.monotonic() < ends:
            await asyncio.sleep(0.05)
        await close()

    monkeypatch.setattr(cluster, "_close", close_slowly)
    register()
    recorder.commands = [_command()]
    _row(recorder, "closing")
    client.submit(inc, 1).result()
    done.set()
    assert "Work that arrived while it closed may be lost." in _stop(recorder).shutdowns[0].detail
    told = [record.getMessage() for record in caplog.records]
    assert sum("work arrived while this cluster was closing" in text for text in told) == 1


@own_cluster
def test_work_that_arrives_before_workers_go_calls_it_off(
    cluster: LocalCluster, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # As if the manager were elsewhere, and did not hear; nor does a client without one.
    monkeypatch.setattr(closing, "manager_of", lambda scheduler: None)
    monkeypatch.setattr(closing, "MANAGER_PATIENCE", 5.0)
    with Client(cluster.scheduler_address) as client:
        client.set_metadata(["cluster-manager-info"], {"name": "elsewhere"})
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        recorder.commands = [_command()]
        _row(recorder, "closing")
        waits = client.submit(wait_for_file, str(tmp_path / "go"))
        off = _row(recorder, "called off")
        assert off.detail == "It is at work: tasks are running."
        (tmp_path / "go").touch()
        waits.result()
    assert len(cluster.workers) == 1
    assert cluster.status == Status.running


@own_cluster
def test_the_last_look_is_in_the_step_that_closes(cluster: LocalCluster) -> None:
    scheduler: Any = cluster.scheduler
    seen: list[Any] = []

    def look() -> None:
        asyncio.get_running_loop().call_soon(lambda: seen.append(cluster.status))

    assert cluster.sync(closing.close, scheduler, "", lambda: "at work") == "at work"
    assert cluster.status == Status.running
    cluster.sync(closing.close, scheduler, "", look)
    assert seen == [Status.closing]


def test_clients_may_hear_of_it(client: Client, register: Register, recorder: Recorder) -> None:
    heard: list[Any] = []
    client.subscribe_topic(TOPIC, lambda event: heard.append(event[1]))
    register()
    recorder.commands = [_command(grace=3600)]
    _eventually(lambda: heard, "an event")
    assert (heard[0]["state"], heard[0]["requested_by"]) == ("announced", "ada")


@own_cluster
def test_a_cluster_that_is_closed_meanwhile_says_so(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.commands = [_command(grace=3600)]
    _row(recorder, "announced")
    client.close()
    cluster.close()
    (row,) = _stop(recorder).shutdowns
    assert row.state == "closing"
    assert "Something else closed the cluster" in row.detail


# --- wherever the cluster's manager is ------------------------------------------------------------


OPTIONS = ["--preload", "daskscope", "--daskscope-interval", "100ms"]


def _gone(processes: list[psutil.Process]) -> bool:
    # An orphan stays a zombie where process 1 does not care.
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_an_idle_scheduler_of_the_command_line_ends_well(recorder: Recorder) -> None:
    options = [
        "--daskscope-endpoint", recorder.url,
        "--daskscope-idle-timeout", "2s",
        "--daskscope-idle-grace", "0s",
    ]  # fmt: skip
    with scheduler_process(*OPTIONS, *options, DASK_DASKSCOPE__TOKEN=TOKEN) as scheduler:
        started = recorder.wait_for(lambda: recorder.beats[:1], "a beat")[0].status.at
        recorder.wait_for(
            lambda: recorder.beats[-1].status.at > started + 4, "four seconds without a worker"
        )
        assert _states(recorder) == []
        with worker_process(scheduler.address, nanny=True) as worker:
            assert scheduler.process.wait(stretched(60)) == 0
            assert worker.wait(stretched(60)) == 0
    stop = _stop(recorder)
    assert stop.status.stopped_at is not None
    (row,) = stop.shutdowns
    assert (row.requested_by, row.state) == ("idle.timeout", "closing")
    assert "Workers and scheduler are closed. It has closed." in row.detail
    # It was told to go, and not left without a scheduler.
    (left,) = recorder.losses()
    assert (left.reason, left.expected) == (names.LOSS_RETIRED, True)


def test_workers_that_hold_data_end_too(recorder: Recorder) -> None:
    with (
        scheduler_process(
            *OPTIONS, "--daskscope-endpoint", recorder.url, DASK_DASKSCOPE__TOKEN=TOKEN
        ) as scheduler,
        worker_process(scheduler.address, nanny=True) as one,
        worker_process(scheduler.address, nanny=True) as other,
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        client.wait_for_workers(2, timeout=START_PATIENCE)
        data = client.scatter([1, 2], broadcast=True)
        children = [
            child
            for process in (one, other)
            for child in psutil.Process(process.pid).children(recursive=True)
        ]
        assert children
        # Waiting for workers is work, and is seen for two seconds afterwards.
        recorder.wait_for(lambda: (recorder.beats[-1].status.idle_seconds or 0) > 2.5, "idleness")
        recorder.commands = [_command()]
        assert scheduler.process.wait(PATIENCE) == 0
        assert (one.wait(PATIENCE), other.wait(PATIENCE)) == (0, 0)
        _eventually(lambda: _gone(children), "their nannies' children end")
        del data
    assert "It has closed" in _stop(recorder).shutdowns[0].detail
    # To retire them would move what they hold from one to the other.
    assert names.LOSS_RETIRED not in {left.reason for left in recorder.losses()}


class Copy:
    """A process as :mod:`asyncio` has it, of a Python that has imported Dask."""

    stderr = None

    def __init__(self, command: tuple[str, ...]) -> None:
        self._process = ForkedProcess(command[1:], os.environ, program="python")
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def communicate(self) -> None:
        await asyncio.to_thread(self._process.communicate, START_PATIENCE)


@pytest.mark.parametrize("listens", ["no one", "before", "after"])
def test_a_manager_in_another_process_is_asked_to_close(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, listens: str
) -> None:
    async def start(*command: str, **_: Any) -> Copy:
        return Copy(command)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    heard: list[str] = []

    def hear(event: tuple[float, Any]) -> None:
        heard.append(event[1]["state"])

    with SubprocessCluster(
        n_workers=1, threads_per_worker=1, worker_class="distributed.Worker"
    ) as cluster:
        with Client(cluster) as client:
            # A client has one handler per topic: the user's and ours must not be for the same one.
            if listens == "before":
                client.subscribe_topic(TOPIC, hear)
            daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
            if listens == "after":
                client.subscribe_topic(TOPIC, hear)
            data = client.submit(inc, 1)
            assert data.result() == 2
            recorder.wait_for(
                lambda: recorder.beats[-1].cluster.kind == "SpecCluster", "the manager's name"
            )
            recorder.commands = [_command()]
            _eventually(lambda: cluster.status == Status.closed, "the cluster closes")
            _eventually(lambda: client.status == "closed", "the client closes")
        assert "Its cluster manager is asked" in _row(recorder, "closing").detail
        assert _stop(recorder).shutdowns
    assert heard[:2] == ([] if listens == "no one" else ["announced", "closing"])
