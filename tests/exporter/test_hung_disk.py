"""A disk that does not answer, as one across the network may, holds up what needs it alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from daskscope.report import sender, spool
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import PATIENCE, Recorder


class Disk:
    """Of the spool: ``reached`` once something is to be written, which waits until ``answers``."""

    def __init__(self) -> None:
        self.reached, self.answers = threading.Event(), threading.Event()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk, append = Disk(), spool._File.append

    def hang(self: Any, record: bytes) -> None:
        disk.reached.set()
        disk.answers.wait()
        append(self, record)

    monkeypatch.setattr(spool._File, "append", hang)
    yield disk
    disk.answers.set()


def after_it_hung(value: int) -> int:
    return value


def test_otlp_goes_on_with_what_is_new_and_nothing_is_lost(
    client: Client,
    register: Register,
    recorder: Recorder,
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sender, "OVERDUE_WRITE", 0.1)
    recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
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
    recorder.wait_for(lambda: "its disk does not answer" in caplog.text, "the warning")
    recorder.misbehave = lambda path: None
    disk.answers.set()
    computation = recorder.wait_for(
        lambda: next(iter(recorder.computations().values()), None), "the computation"
    )
    assert computation.tasks == 1
    assert not recorder.beats[-1].drops
    assert caplog.text.count("its disk does not answer") == 1


@pytest.mark.own_cluster
def test_a_cluster_closes(
    cluster: LocalCluster, register: Register, recorder: Recorder, disk: Disk, tmp_path: Path
) -> None:
    recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
    register(spool__directory=str(tmp_path))
    assert disk.reached.wait(PATIENCE)
    cluster.close()
    assert not disk.answers.is_set()


SCRIPT = """\
import sys
import threading
import time

import daskscope
from daskscope.report import spool
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
    sender = cluster.scheduler.plugins["daskscope"]._running.sender
    while not sender._pending.rows_wait():
        time.sleep(0.01)
    print("the end of the script")
"""


def test_a_script_that_does_not_close_its_cluster_ends(recorder: Recorder, tmp_path: Path) -> None:
    recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {
        "DASK_DASKSCOPE__TOKEN": TOKEN,
        "DASK_DASKSCOPE__SPOOL__DIRECTORY": str(tmp_path / "spool"),
    }
    done = subprocess.run(
        [sys.executable, str(script), recorder.url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("the end of the script\n", 0), done.stderr
