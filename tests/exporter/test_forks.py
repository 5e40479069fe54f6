"""A process that was forked off the scheduler's, as multiprocessing does, tells nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client

import daskscope
from daskscope import names
from daskscope.worker_logs import tap
from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.contract,
]

#: Forks while it observes, closes its cluster, and ends when the copy has been told to.
SCRIPT = """\
import os
import sys

import daskscope
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(endpoint=sys.argv[1], token=sys.argv[2], interval="100ms")
        client.submit(len, ()).result()
        print("observes", flush=True)
        sys.stdin.readline()
        copy = os.fork()
        if copy == 0:
            os.read(0, 1)
            os._exit(3)  # as multiprocessing does
    print("closed", flush=True)
    _, status = os.waitpid(copy, 0)
    print("ended with", os.waitstatus_to_exitcode(status), flush=True)
"""


@contextmanager
def script(recorder: Recorder, folder: Path, **settings: str) -> Iterator[subprocess.Popen[str]]:
    path, differs = folder / "forks.py", folder / "differs"
    path.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(path), recorder.url, TOKEN],
        env=os.environ | settings | counted_preload.beside(differs),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
            process.wait(START_PATIENCE)
        finally:
            process.kill()
    counted_preload.assert_equal(differs)


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def expect(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{text}\n"


def test_a_copy_sends_nothing_and_ends(recorder: Recorder, tmp_path: Path) -> None:
    with script(recorder, tmp_path, DASK_DASKSCOPE__SPOOL__DIRECTORY="") as process:
        expect(process, "observes")
        recorder.wait_for(lambda: recorder.points(names.WORKER_COUNT), "metrics")
        say(process)
        expect(process, "closed")
        recorder.wait_for(lambda: recorder.beats[-1].phase == "stop", "the last beat")
        told = len(recorder.requests)
        # It would send ten times as often as this waits.
        with recorder.changed:
            assert not recorder.changed.wait_for(lambda: len(recorder.requests) > told, timeout=1)
        say(process)
        expect(process, "ended with 3")


#: The same, but the copy ends by itself, without Dask's own part of that, which takes long.
ENDING = """\
import atexit
import os
import sys
import threading
from distributed import Client, LocalCluster, client as dask_client
from distributed.deploy import spec

import daskscope

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    client = Client(cluster)
    daskscope.register(endpoint=sys.argv[1], token=sys.argv[2], interval="1h")
    client.submit(len, ()).result()
    session = cluster.scheduler.plugins["daskscope"].session
    # As another thread may at that moment.
    with session.sender._lock:
        copy = os.fork()
    if copy == 0:
        atexit.unregister(spec.close_clusters)
        atexit.unregister(dask_client._close_global_client)
        threading.Timer(30, os._exit, (9,)).start()
        atexit._run_exitfuncs()
        os._exit(3)
    _, status = os.waitpid(copy, 0)
    print("ended with", os.waitstatus_to_exitcode(status), flush=True)
    client.close()
    cluster.close()
"""


def test_a_copy_that_ends_waits_for_nothing_and_warns_of_nothing(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
    path = tmp_path / "ends.py"
    path.write_text(ENDING)
    ended = forked.run(
        [str(path), recorder.url, TOKEN],
        os.environ
        | {"DASK_DASKSCOPE__SPOOL__DIRECTORY": str(tmp_path / "spool")}
        | counted_preload.beside(tmp_path / "differs"),
        program="python",
    )
    assert ended.stdout == "ended with 3\n"
    assert "the spool" not in ended.stderr
    counted_preload.assert_equal(tmp_path / "differs")


def test_a_copy_that_logs_does_not_wait_for_those_who_look_at_records() -> None:
    looked: list[int] = []
    untap = tap(lambda record: looked.append(os.getpid()))
    logger = logging.getLogger("a_copys")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    try:
        copy = os.fork()
        if copy == 0:
            logger.warning("from the copy")
            os._exit(len(looked))
        logger.warning("from here")
    finally:
        untap()
        logger.handlers.clear()
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
    assert looked == [os.getpid()]


def test_a_copy_holds_no_spool(
    client: Client, register: Register, recorder: Recorder, tmp_path: Path
) -> None:
    recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
    spool = tmp_path / "spool"
    with script(recorder, tmp_path, DASK_DASKSCOPE__SPOOL__DIRECTORY=str(spool)) as process:
        expect(process, "observes")
        recorder.wait_for(lambda: spool.is_dir() and list(spool.glob("*.beats")), "the spool")
        say(process)
        expect(process, "closed")
        recorder.misbehave = lambda path: None
        assert daskscope.register(
            client,
            endpoint=recorder.url,
            token=TOKEN,
            interval="100ms",
            spool__directory=str(spool),
        ).cluster_id
        # The copy lives.
        recorder.wait_for(
            lambda: len({beat.cluster.id for beat in recorder.beats}) == 2, "what was left"
        )
        say(process)
        expect(process, "ended with 3")
