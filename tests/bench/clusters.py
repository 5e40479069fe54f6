"""Real clusters to measure: a scheduler and a worker, each a process of its own, and a client.

The independent count of tests does not stand beside them: it would be measured, too.
"""

from __future__ import annotations

import asyncio
import operator
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import dask.bag
from distributed import Client, wait
from distributed.scheduler import Scheduler

from tests.patience import wait_on_loop

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
#: Seconds in which a plugin does what it leaves for when the event loop is quiet.
_QUIET_SECONDS = 0.06


class Cpu(NamedTuple):
    """Seconds of CPU time of a scheduler."""

    loop: float
    process: float

    def since(self, earlier: Cpu) -> Cpu:
        """Return what was used since then."""
        return Cpu(self.loop - earlier.loop, self.process - earlier.process)


@contextmanager
def cluster(folder: Path) -> Iterator[Client]:
    """Start ``dask scheduler`` and a ``dask worker`` of four threads; end both at the end."""
    folder.mkdir(parents=True)
    address = folder / "scheduler.json"
    where = ["--scheduler-file", str(address)]
    with ExitStack() as parts:
        # It has a port for HTTP without a dashboard, too.
        ports = ("--port", "0", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")
        parts.enter_context(_process(folder, "scheduler", *where, *ports))
        _wait_for(address)
        parts.enter_context(
            _process(folder, "worker", *where, "--nthreads", "4", "--no-nanny", "--no-dashboard")
        )
        client = parts.enter_context(Client(scheduler_file=str(address), set_as_default=False))
        client.wait_for_workers(1, timeout=_START_SECONDS)
        yield client


def run_tasks(client: Client, count: int, first: int) -> None:
    """Run ``count`` trivial tasks: half as futures, half as one collection.

    Dask keeps tasks of the two kinds in different ways, and so does daskscope.
    """
    of_collection = count // 4 * 2
    run_futures(client, count - of_collection, first)
    run_collection(client, of_collection, first)


def run_futures(client: Client, count: int, first: int) -> None:
    """Run ``count`` trivial tasks as futures; then let them go."""
    with client.as_current():
        wait(client.map(operator.neg, range(first, first + count), pure=False))


def run_collection(client: Client, count: int, first: int) -> None:
    """Run ``count`` trivial tasks, half of which wait for the other half; then let them go."""
    elements = count // 2
    numbers = range(first, first + elements)
    with client.as_current():
        wait(
            client.persist(dask.bag.from_sequence(numbers, npartitions=elements).map(operator.neg))
        )


def submit_tasks(client: Client, count: int, first: int) -> None:
    """Run ``count`` trivial tasks, each a graph of its own: a loop that submits them one by one."""
    futures = [
        client.submit(operator.neg, number, pure=False) for number in range(first, first + count)
    ]
    with client.as_current():
        wait(futures)


def cpu(client: Client) -> Cpu:
    """Return the CPU time of the client's scheduler once it holds no task any more, and has been
    quiet for a moment.
    """
    used: Cpu = client.run_on_scheduler(_cpu)
    return used


async def _cpu(dask_scheduler: Scheduler) -> Cpu:
    await wait_on_loop(lambda: not dask_scheduler.tasks, what="the end of all tasks")
    await asyncio.sleep(_QUIET_SECONDS)
    return Cpu(time.thread_time(), time.process_time())


@contextmanager
def _process(folder: Path, kind: str, *options: str) -> Iterator[None]:
    # The same for all but for what is measured: no chance in hashing, no settings of the shell's.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DASK_", "OTEL_", "DASKSCOPE_"))
    }
    # From the repository's root: schedulers import what this package sends them.
    root = Path(__file__).parents[2]
    path = os.pathsep.join(map(str, (root, root / "exporter", root / "service")))
    with (folder / f"{kind}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", kind, *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment | {"PYTHONHASHSEED": "0", "PYTHONPATH": path},
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not (file.exists() and file.stat().st_size):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the scheduler did not start; see {file.parent}")
        time.sleep(0.05)
