"""register(install=True), on a scheduler whose environment lacks the package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import daskscope
from tests.exporter.conftest import TOKEN
from tests.exporter.dask_process import SchedulerProcess, scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE

pytest.importorskip("pip")
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Python of an environment that has all that this one has, but daskscope.

    ``param`` says whether a user's own packages are seen in it, too.
    """
    seen = getattr(request, "param", False)
    venv.create(tmp_path / "venv", symlinks=True, system_site_packages=seen)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "daskscope" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return tmp_path / "venv" / "bin" / "python"


@contextmanager
def index(folder: Path, opened: threading.Event) -> Iterator[tuple[str, threading.Event]]:
    """Serve a folder to pip, once ``opened``. Yield its address and whether pip has asked."""
    asked = threading.Event()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            asked.set()
            opened.wait(PATIENCE)
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        opened.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def bare_scheduler(python: Path, find_links: str, **environment: str) -> Iterator[SchedulerProcess]:
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": find_links, "PIP_CONFIG_FILE": os.devnull}
    with scheduler_process(python=str(python), PYTHONPATH="", **pip, **environment) as scheduler:
        yield scheduler


def test_it_is_installed_there_while_the_scheduler_works_on(
    python: Path, wheels: Path, recorder: Recorder
) -> None:
    opened = threading.Event()
    with (
        index(wheels, opened) as (address, asked),
        bare_scheduler(python, address) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=30) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        register = threads.submit(
            daskscope.register, client, install=True, endpoint=recorder.url, token=TOKEN
        )
        assert asked.wait(PATIENCE), register.exception(0)
        # pip waits; the scheduler does not.
        assert client.submit(sum, [1, 2]).result(timeout=PATIENCE) == 3
        assert not register.done()
        opened.set()

        registration = register.result(timeout=60)
        assert recorder.url in repr(registration)
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
        assert beat.cluster.environment.packages["daskscope"] == daskscope.__version__
        # Where it is, nothing is installed anew.
        again = daskscope.register(client, install=True, endpoint=recorder.url, token=TOKEN)
        assert repr(again) == repr(registration)
        client.close()
        assert TOKEN not in scheduler.stop()


def test_if_pip_fails_its_last_lines_tell_why(python: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with bare_scheduler(python, str(tmp_path / "empty")) as scheduler:
        with Client(scheduler.address, timeout=30) as client:
            with pytest.raises(daskscope.NotOnScheduler) as error:
                daskscope.register(client, install=True, token=TOKEN)
    message = str(error.value)
    assert scheduler.address in message
    assert f"No matching distribution found for daskscope=={daskscope.__version__}" in message
    assert TOKEN not in message


@pytest.mark.parametrize("python", [True], indirect=True)
def test_it_is_found_where_pip_installs_it_among_the_users_own_packages(
    python: Path, wheels: Path, recorder: Recorder, tmp_path: Path
) -> None:
    # As pip does of its own accord where it may not write to the environment's. The folder is new.
    users = {"PIP_USER": "1", "PYTHONUSERBASE": str(tmp_path / "mine")}
    with bare_scheduler(python, str(wheels), **users) as scheduler:
        with Client(scheduler.address, timeout=30) as client:
            registration = daskscope.register(
                client, install=True, endpoint=recorder.url, token=TOKEN
            )
    assert recorder.url in repr(registration)
    assert list((tmp_path / "mine").rglob("daskscope/plugin.py"))


def test_if_it_is_not_found_though_pip_has_installed_it_that_is_told(
    python: Path, wheels: Path, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    with bare_scheduler(python, str(wheels), PIP_PREFIX=elsewhere) as scheduler:
        with Client(scheduler.address, timeout=30) as client:
            with pytest.raises(daskscope.NotOnScheduler, match="start the scheduler again"):
                daskscope.register(client, install=True, token=TOKEN)
