"""A disk that does not answer, as one across the network may, holds up what needs it alone."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from daskscope import names
from daskscope.delivery import spool, spool_worker
from daskscope.plugin import NAME
from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN, Register, let_few_wait, take_off
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE, START_PATIENCE

#: What of the spool uses the disk: to find what others left, to read it, to write, to remove, and
#: to let go of a file.
FIND, READ = (spool.Spool, "_entries"), (spool, "_content")
WRITE, REMOVE = (spool._File, "append"), (spool._File, "remove")
RELEASE = (spool._File, "release")

HANGS = "the disk does not respond"


class Disk:
    """Of the spool: ``reached`` once it hangs where it :meth:`hangs_at`, until it ``answers``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.answers = threading.Event(), threading.Event()
        self._monkeypatch = monkeypatch

    def hangs_at(self, what: tuple[Any, str]) -> None:
        real = getattr(*what)

        def hang(*arguments: Any) -> Any:
            if not self.answers.is_set():
                self.reached.set()
                self.answers.wait()
            return real(*arguments)

        self._monkeypatch.setattr(*what, hang)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(spool_worker, "OVERDUE", 0.1)
    disk = Disk(monkeypatch)
    yield disk
    disk.answers.set()


def after_it_hung(value: int) -> int:
    return value


def _away(path: str) -> int | None:
    return 503 if path.startswith("/api/") else None


def _well(path: str) -> None:
    return None


def _beats_go_on(recorder: Recorder, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """Wait for the warning, and for more beats than would come if each waited for the disk."""
    assert disk.reached.wait(PATIENCE)
    enough = len(recorder.beats) + PATIENCE / spool_worker.PATIENCE + 2
    recorder.wait_for(lambda: len(recorder.beats) >= enough, "beats")
    recorder.wait_for(lambda: HANGS in caplog.text, "the warning")
    assert not disk.answers.is_set()


def _close(cluster: LocalCluster) -> None:
    scheduler: Any = cluster.scheduler
    cluster.sync(take_off, scheduler)


# --- the service is well --------------------------------------------------------------------------


def test_beats_go_on_arriving_while_it_is_looked_into(
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk.hangs_at(FIND)
    register(spool__directory=str(tmp_path))
    assert client.submit(after_it_hung, 1).result() == 1
    _beats_go_on(recorder, disk, caplog)
    assert recorder.computation().tasks == 1
    assert caplog.text.count(HANGS) == 1


def test_beats_go_on_arriving_while_it_is_read_and_what_is_in_it_comes_later(
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"interval": "100ms", "spool__directory": str(tmp_path)}
    register(**settings)
    beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    left = spool.Spool(
        tmp_path, endpoint=recorder.url, token=TOKEN, max_bytes=1 << 20, drops=Counter()
    )
    cluster = replace(beat.cluster, id="left")
    left.append(spool_worker.body_of(replace(beat, cluster=cluster)))
    left.close()

    disk.hangs_at(READ)
    answers = iter([503])
    # It looks for what others left once the service has been away.
    recorder.misbehave = lambda path: next(answers, None) if "heartbeats" in path else None
    _beats_go_on(recorder, disk, caplog)
    disk.answers.set()
    recorder.wait_for(
        lambda: [beat for beat in recorder.beats if beat.cluster.id == "left"], "what was left"
    )


def test_beats_go_on_arriving_while_what_was_delivered_is_removed(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk.hangs_at(REMOVE)
    recorder.misbehave = _away
    register(spool__directory=str(tmp_path))
    client.submit(after_it_hung, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "a refused beat")
    recorder.misbehave = _well

    _beats_go_on(recorder, disk, caplog)
    assert recorder.computation().tasks == 1
    disk.answers.set()
    _close(cluster)
    assert not list(tmp_path.iterdir())
    assert caplog.text.count(HANGS) == 1


# --- the service is away --------------------------------------------------------------------------


def test_otlp_goes_on_with_what_is_new_and_nothing_is_lost(
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk.hangs_at(WRITE)
    recorder.misbehave = _away
    register(spool__directory=str(tmp_path))
    assert disk.reached.wait(PATIENCE)
    client.submit(after_it_hung, 1).result()

    recorder.wait_for(
        lambda: any(
            request.path == "/v1/metrics" and b"after_it_hung" in request.body
            for request in recorder.requests
        ),
        "metrics of it",
    )
    recorder.wait_for(lambda: HANGS in caplog.text, "the warning")
    recorder.misbehave = _well
    computation = recorder.wait_for(
        lambda: next(iter(recorder.computations().values()), None), "the computation"
    )
    assert computation.tasks == 1
    assert not recorder.beats[-1].drops
    assert caplog.text.count(HANGS) == 1


def test_what_waits_is_bounded_and_counted(
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_few_wait(monkeypatch, 500)
    disk.hangs_at(WRITE)
    recorder.misbehave = _away
    register(spool__directory=str(tmp_path), events__allow=["mine"])
    assert disk.reached.wait(PATIENCE)

    def counted() -> bool:
        for number in range(100):
            client.log_event("mine", number)
        return any(points.get(("unsent event",)) for points in recorder.points(names.DROPPED))

    recorder.wait_for(counted, "a count of what had to go")


def test_one_that_cannot_be_written_costs_one_warning_and_nothing_else(
    client: Client,
    register: Register,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = spool.Spool(
        tmp_path, endpoint=recorder.url, token=TOKEN, max_bytes=1 << 20, drops=Counter()
    )
    left.append(b"left")
    left.close()
    opened = os.open

    def read_only(path: Any, flags: int, *arguments: Any, **how: Any) -> int:
        if str(path).startswith(str(tmp_path)) and flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *arguments, **how)

    monkeypatch.setattr(os, "open", read_only)
    register(spool__directory=str(tmp_path))
    recorder.wait_for(lambda: recorder.beats, "a beat")
    recorder.misbehave = _away
    client.submit(after_it_hung, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused + 1, "refused beats")
    recorder.misbehave = _well

    assert recorder.computation().tasks == 1
    assert not recorder.beats[-1].drops
    assert caplog.text.count("Read-only file system") == 1
    assert caplog.text.count("the only warning.") == 1


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.own_cluster
@pytest.mark.parametrize("what", [FIND, WRITE], ids=["find", "write"])
def test_a_cluster_closes(
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    what: tuple[Any, str],
) -> None:
    monkeypatch.setattr(spool_worker, "OVERDUE", 3600.0)
    disk.hangs_at(what)
    recorder.misbehave = _away if what is WRITE else _well
    register(spool__directory=str(tmp_path))
    assert disk.reached.wait(PATIENCE)
    cluster.close()
    assert not disk.answers.is_set()
    assert caplog.text.count(HANGS) == 1
    if what is FIND:
        assert "is lost (rows: 0)" in caplog.text


def test_what_is_in_files_that_cannot_be_let_go_of_is_there_for_the_next_plugin(
    cluster: LocalCluster,
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(spool_worker, "OVERDUE", 3600.0)
    disk.hangs_at(RELEASE)
    recorder.misbehave = _away
    register(spool__directory=str(tmp_path))
    client.submit(after_it_hung, 1).result()
    scheduler: Any = cluster.scheduler
    ours = scheduler.plugins[NAME].session.sender.spool_worker
    _close(cluster)
    assert disk.reached.is_set()
    assert caplog.text.count(HANGS) == 1
    assert "is lost (rows: 0)" in caplog.text

    disk.answers.set()
    ours._thread.join(PATIENCE)
    recorder.misbehave = _well
    register(spool__directory=str(tmp_path))
    assert recorder.computation().tasks == 1


SCRIPT = """\
import sys
import threading
import time

import daskscope
from daskscope.delivery import spool
from distributed import Client, LocalCluster

reached = threading.Event()


def hang(self, record):
    reached.set()
    threading.Event().wait()


spool._File.append = hang
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=0, dashboard_address=":0")
    client = Client(cluster)
    daskscope.register(client, endpoint=sys.argv[1], interval="0.1s")
    future = client.submit(str, 1)
    reached.wait()
    sender = cluster.scheduler.plugins["daskscope"].session.sender
    while not sender._pending.rows_wait():
        time.sleep(0.01)
    print("the end of the script")
"""


def test_a_script_that_does_not_close_its_cluster_ends(recorder: Recorder, tmp_path: Path) -> None:
    recorder.misbehave = _away
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {
        "DASK_DASKSCOPE__TOKEN": TOKEN,
        "DASK_DASKSCOPE__SPOOL__DIRECTORY": str(tmp_path / "spool"),
    }
    done = forked.run(
        [str(script), recorder.url],
        environment | counted_preload.beside(tmp_path / "differs"),
        timeout=START_PATIENCE,
        program="python",
    )
    assert (done.stdout, done.returncode) == ("the end of the script\n", 0), done.stderr
    assert done.stderr.count(HANGS) == 1
    counted_preload.assert_equal(tmp_path / "differs")
