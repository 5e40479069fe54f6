"""Dask's schedulers and workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.exporter import counted_preload
from tests.forked import ForkedProcess
from tests.patience import START_PATIENCE
from tests.ports import free_port

DaskProcess = subprocess.Popen[str] | ForkedProcess


@dataclass(frozen=True)
class SchedulerProcess:
    """A ``dask scheduler`` that runs."""

    address: str
    process: DaskProcess

    def stop(self) -> str:
        """End it as Ctrl-C would. Return what it wrote."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=START_PATIENCE)
        return output


@contextmanager
def dask_process(
    *arguments: str, python: str | None = None, **environment: str
) -> Iterator[DaskProcess]:
    """Run ``dask scheduler`` or ``dask worker``: the first argument says which.

    With ``python`` it is an interpreter of its own, which has imported nothing; so it is where
    PYTHONPATH is given.
    """
    process: DaskProcess
    if python or "PYTHONPATH" in environment:
        process = subprocess.Popen(
            [
                python or sys.executable,
                "-m",
                f"distributed.cli.dask_{arguments[0]}",
                *arguments[1:],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
    else:
        process = ForkedProcess(arguments, {**os.environ, **environment}, program="dask")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=START_PATIENCE)
        finally:
            process.kill()


@contextmanager
def scheduler_process(
    *options: str,
    port: str = "",
    python: str | None = None,
    no_plugin: str = "",
    **environment: str,
) -> Iterator[SchedulerProcess]:
    """Run ``dask scheduler`` on a ``port``, by default a free one, with further ``options``.

    What runs there is counted beside its plugins, unless it has a ``python`` of its own, in which
    there are no tests, or is killed. One that preloads daskscope must have been counted, if it has
    ended as it should, unless ``no_plugin`` says why none starts in it.
    """
    port = port or str(free_port())
    where = ["--host", "127.0.0.1", "--port", port, "--dashboard-address", "127.0.0.1:0"]
    with TemporaryDirectory() as folder:
        differs = Path(folder, "differs")
        counted = not python and not no_plugin
        has_plugin = "daskscope" in options
        if counted:
            if "PYTHONPATH" in environment:
                root = str(Path(__file__).parents[2])
                environment["PYTHONPATH"] += f"{os.pathsep}{root}"
            # The first, so that it is there before daskscope is.
            where += ["--preload", counted_preload.__name__]
            environment[counted_preload.FILE] = str(differs)
        with dask_process("scheduler", *where, *options, python=python, **environment) as process:
            yield SchedulerProcess(f"tcp://127.0.0.1:{port}", process)
        if differs.exists() or (counted and has_plugin and process.returncode == 0):
            counted_preload.assert_equal(differs)


@contextmanager
def worker_process(address: str, *options: str, nanny: bool = False) -> Iterator[DaskProcess]:
    """Run a ``dask worker`` of one thread for the scheduler at ``address``.

    With ``nanny`` the worker is a process of its own, with an interpreter that starts anew.
    """
    small = ["--nworkers", "1", "--nthreads", "1", "--no-dashboard"]
    if not nanny:
        small.append("--no-nanny")
    with dask_process("worker", address, *small, *options) as process:
        yield process
