"""register(install=True), on a scheduler whose environment lacks the package."""

from __future__ import annotations

import os
import sysconfig
import threading
import venv
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client

import daskscope
from daskscope import installation
from tests.exporter.conftest import TOKEN
from tests.exporter.dask_process import SchedulerProcess, scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE

pytest.importorskip("pip")


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
def held_configuration(folder: Path) -> Iterator[tuple[Path, threading.Event, threading.Event]]:
    """Yield a configuration file for pip, whether pip has begun to read it, and what lets it."""
    file, asked, opened = folder / "pip.conf", threading.Event(), threading.Event()
    ended = threading.Event()
    os.mkfifo(file)

    def hold() -> None:
        while not ended.is_set():
            with open(file, "w", encoding="utf-8"):  # which waits for a reader
                asked.set()
                opened.wait(PATIENCE)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    try:
        yield file, asked, opened
    finally:
        opened.set()
        ended.set()
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))  # the reader that it waits for
        holder.join(PATIENCE)


@contextmanager
def bare_scheduler(python: Path, **environment: str) -> Iterator[SchedulerProcess]:
    pip = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    with scheduler_process(python=str(python), **{"PYTHONPATH": "", **pip, **environment}) as it:
        yield it


def test_it_is_installed_there_while_the_scheduler_works_on(
    python: Path, recorder: Recorder, tmp_path: Path
) -> None:
    with (
        held_configuration(tmp_path) as (file, asked, opened),
        bare_scheduler(python, PIP_CONFIG_FILE=str(file)) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=PATIENCE) as client,
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

        registration = register.result(timeout=PATIENCE)
        assert recorder.url in repr(registration)
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
        assert beat.cluster.environment.packages["daskscope"] == daskscope.__version__
        # Where it is, nothing is installed anew.
        again = daskscope.register(client, install=True, endpoint=recorder.url, token=TOKEN)
        assert repr(again) == repr(registration)
        client.close()
        assert TOKEN not in scheduler.stop()


def test_no_package_of_that_name_in_an_index_is_installed(
    python: Path, recorder: Recorder, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger" / "daskscope-999-py3-none-any.whl"
    stranger.parent.mkdir()
    with zipfile.ZipFile(stranger, "w") as wheel:
        wheel.writestr("daskscope/__init__.py", "raise SystemExit('a stranger ran')")
        for name, text in {
            "METADATA": "Metadata-Version: 2.1\nName: daskscope\nVersion: 999\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"daskscope-999.dist-info/{name}", text)
    same = stranger.with_name(installation.NAME)
    same.write_bytes(stranger.read_bytes().replace(b"999", b"0.1.0"))

    with bare_scheduler(python, PIP_FIND_LINKS=str(stranger.parent)) as scheduler:
        with Client(scheduler.address, timeout=PATIENCE) as client:
            registration = daskscope.register(
                client, install=True, endpoint=recorder.url, token=TOKEN
            )
    assert recorder.url in repr(registration)


def test_if_pip_fails_its_last_lines_tell_why(python: Path, tmp_path: Path) -> None:
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for entry in packages.glob("opentelemetry_sdk*"):
        entry.unlink()  # it is needed, and there is no index
    with bare_scheduler(python) as scheduler:
        with Client(scheduler.address, timeout=PATIENCE) as client:
            with pytest.raises(daskscope.NotOnScheduler) as error:
                daskscope.register(client, install=True, token=TOKEN)
    message = str(error.value)
    assert scheduler.address in message
    assert "No matching distribution found for opentelemetry-sdk" in message
    assert TOKEN not in message


@pytest.mark.parametrize("python", [True], indirect=True)
def test_it_is_found_where_pip_installs_it_among_the_users_own_packages(
    python: Path, recorder: Recorder, tmp_path: Path
) -> None:
    # As pip does of its own accord where it may not write to the environment's. The folder is new.
    users = {"PIP_USER": "1", "PYTHONUSERBASE": str(tmp_path / "mine")}
    with bare_scheduler(python, **users) as scheduler:
        with Client(scheduler.address, timeout=PATIENCE) as client:
            registration = daskscope.register(
                client, install=True, endpoint=recorder.url, token=TOKEN
            )
    assert recorder.url in repr(registration)
    assert list((tmp_path / "mine").rglob("daskscope/plugin.py"))


def test_if_it_is_not_found_though_pip_has_installed_it_that_is_told(
    python: Path, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    with bare_scheduler(python, PIP_PREFIX=elsewhere) as scheduler:
        with Client(scheduler.address, timeout=PATIENCE) as client:
            with pytest.raises(daskscope.NotOnScheduler, match="restart the scheduler"):
                daskscope.register(client, install=True, token=TOKEN)
