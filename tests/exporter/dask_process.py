"""Dask's schedulers and workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.patience import START_PATIENCE
from tests.service_process import free_port


@dataclass(frozen=True)
class SchedulerProcess:
    """A ``dask scheduler`` that runs."""

    address: str
    process: subprocess.Popen[str]

    def stop(self) -> str:
        """End it as Ctrl-C would. Return what it wrote."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=START_PATIENCE)
        return output


@contextmanager
def dask_process(
    *arguments: str, python: str = sys.executable, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run ``dask scheduler`` or ``dask worker``: the first argument says which."""
    process = subprocess.Popen(
        [python, "-m", f"distributed.cli.dask_{arguments[0]}", *arguments[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
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
    *options: str, port: str = "", python: str = sys.executable, **environment: str
) -> Iterator[SchedulerProcess]:
    """Run ``dask scheduler`` on a ``port``, by default a free one, with further ``options``."""
    port = port or str(free_port())
    where = ["--host", "127.0.0.1", "--port", port, "--dashboard-address", "127.0.0.1:0"]
    with dask_process("scheduler", *where, *options, python=python, **environment) as process:
        yield SchedulerProcess(f"tcp://127.0.0.1:{port}", process)


@contextmanager
def worker_process(address: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a ``dask worker`` of one thread for the scheduler at ``address``."""
    small = ["--nworkers", "1", "--nthreads", "1", "--no-dashboard"]
    with dask_process("worker", address, *small, *options) as process:
        yield process
