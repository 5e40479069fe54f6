"""What workloads do in which workers come, go, die, or run out of what they need."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from distributed import Client, get_worker, wait

from tests.insight.workloads.steps import array, digest, flaky, inc, pause, touch

#: Runs in each worker before it connects: another version of a package than the client has.
OTHER_VERSION = f"""
from {__name__} import install_lz4
install_lz4("3.1.0", "")
"""


def _hold(share: float, seconds: float) -> int:
    """Take memory until the worker's process has that share of what it may use; keep it a while."""
    most = share * (get_worker().memory_manager.memory_limit or 0)
    process, held = psutil.Process(), []
    while process.memory_info().rss < most - (8 << 20):
        held.append(bytearray(os.urandom(1 << 20)) * 8)
        time.sleep(0.01)
    time.sleep(seconds)
    return len(held)


def _die(number: int) -> None:
    """End the process, as a crash does."""
    time.sleep(0.3 + number / 1000)
    os.kill(os.getpid(), signal.SIGKILL)


def _die_full(flag: str, number: int) -> str | int:
    """Be ended at full memory, as by the kernel: the first, and not a second time."""
    if number or Path(flag).exists():
        return digest(60 + number)
    _hold(0.9, 2.0)
    Path(flag).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _slow_on_one(times: float, number: int) -> float:
    """Take longer on one of the workers."""
    slow = str(get_worker().name) == "0"
    return pause((times if slow else 1) * (0.15 + number / 10_000))


def _computes_on_one(number: int) -> str:
    """Compute half as much again on one of the workers."""
    return digest((240 if str(get_worker().name) == "0" else 160) + number)


_CONNECTED: list[int] = []


def _connect_first(seconds: float, number: int) -> float:
    """Take long the first time in each process."""
    if not _CONNECTED:
        _CONNECTED.append(number)
        time.sleep(seconds)
    return pause(0.1)


def _match(letters: int, number: int) -> bool:
    """Search with a pattern that holds Python's lock in one call."""
    # Python makes a set of alternatives that are single letters, and is done with it at once.
    return re.match(r"(?:a|aa)+c", "a" * letters + "b" * (number % 1)) is None


# --- sick -----------------------------------------------------------------------------------------


def pausing(client: Client) -> None:
    """Fill the memory of workers that have more to do."""
    full = client.map(_hold, [0.86, 0.861], [5.0, 5.0], pure=False)
    time.sleep(0.5)
    wait(full + client.map(digest, [60 + n for n in range(60)]))


def loses_a_worker(client: Client) -> None:
    """Lose a worker, and what it had computed."""
    parts = client.map(digest, [150 + n for n in range(60)])
    until = time.monotonic() + 60
    while sum(part.done() for part in parts) < 20 and time.monotonic() < until:
        time.sleep(0.05)
    pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    wait(parts)


def slow_host(client: Client) -> None:
    """Have one worker of four that takes ten times as long."""
    wait(client.map(_slow_on_one, [10.0] * 160, range(160)))


def connects_first(client: Client) -> None:
    """Connect for long before the first task on each worker."""
    wait(client.map(_connect_first, [4.0] * 60, range(60)))


def holds_the_lock(client: Client) -> None:
    """Search with patterns that keep workers from answering."""
    letters, took = 18, 0.0
    while took < 0.9:
        letters += 1
        began = time.thread_time()
        _match(letters, 0)
        took = time.thread_time() - began
    wait(client.map(_match, [letters + 1] * 8, range(8), pure=False))


def poisoned(client: Client) -> None:
    """Have one input that ends each worker that looks at it."""
    wait([*client.map(_die, [0], pure=False), *client.map(inc, range(20))])


def full_machine(client: Client) -> None:
    """Be ended by the machine for the memory."""
    with tempfile.TemporaryDirectory() as folder:
        wait(client.map(_die_full, [f"{folder}/flag"] * 20, range(20)))


def late_workers(client: Client) -> None:
    """Begin before there is a worker."""
    parts = client.map(digest, [100 + n for n in range(40)])
    time.sleep(11)
    client.cluster.scale(2)  # type: ignore[union-attr]
    wait(parts)


def come_and_go(client: Client) -> None:
    """Have workers that are sent away as soon as they have nothing to do."""
    client.cluster.adapt(  # type: ignore[union-attr]
        minimum=0, maximum=3, interval="100ms", wait_count=1, target_duration="50ms"
    )
    for turn in range(8):
        wait(client.map(digest, [30 + turn + n for n in range(8)], pure=False))
        time.sleep(1.2)


def other_version(client: Client) -> None:
    """Use a function that the workers' version of a package lacks."""
    wait(client.map(_use_fresh, range(4)))


def _use_fresh(number: int) -> int:
    return int(importlib.import_module("lz4").fresh(number))


_INSTALLED: list[tempfile.TemporaryDirectory[str]] = []  # until the process ends


def install_lz4(version: str, code: str) -> None:
    """Have this process find that version of a package, with that code, as pip would install it."""
    _INSTALLED.append(folder := tempfile.TemporaryDirectory())
    information = Path(folder.name, f"lz4-{version}.dist-info")
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lz4\nVersion: {version}\n")
    Path(folder.name, "lz4.py").write_text(f'__version__ = "{version}"\n{code}')
    sys.path.insert(0, folder.name)
    sys.modules.pop("lz4", None)


def with_other_version() -> None:
    """Be a client that has a newer version of a package."""
    install_lz4("4.0.0", "def fresh(number):\n    return number\n")


def same_key(client: Client) -> None:
    """Give one key to two different tasks."""
    first = client.get({"total": (_later, "one", 4.0), "one": (inc, 1)}, "total", sync=False)
    other = Client(client.scheduler_info()["address"], set_as_default=False)
    time.sleep(1.5)
    second = other.get({"total": (_later, "two", 4.0), "two": (inc, 2)}, "total", sync=False)
    time.sleep(6)
    other.close()
    del first, second


def _later(number: int, seconds: float) -> float:
    return pause(seconds) + number


def nearly_full(client: Client) -> None:
    """Come close to the end of a worker's memory."""
    wait(client.map(digest, [60 + n for n in range(12)]))
    client.submit(_hold, 0.925, 1.0).result()


def busy_scheduler(client: Client) -> None:
    """Have more threads than a scheduler can give tasks to."""
    wait(client.map(pause, [0.03 + n / 1e7 for n in range(9000)]))


# --- healthy --------------------------------------------------------------------------------------


def second_worker_late(client: Client) -> None:
    """Begin with one worker, and have another a little later."""
    parts = client.map(digest, [200 + n for n in range(60)])
    time.sleep(2)
    client.cluster.scale(2)  # type: ignore[union-attr]
    wait(parts)


def a_bit_slower(client: Client) -> None:
    """Have one worker that takes half as long again."""
    wait(client.map(_computes_on_one, range(80)))


def restarted(client: Client) -> None:
    """Restart the workers between two computations, as one does after a change of code."""
    wait(client.map(inc, range(8)))
    client.restart()
    wait(client.map(digest, [200 + n for n in range(32)]))


def scales_once(client: Client) -> None:
    """Have workers for the work, and then fewer."""
    client.cluster.adapt(  # type: ignore[union-attr]
        minimum=1, maximum=3, interval="200ms", wait_count=5, target_duration="1s"
    )
    for turn in range(2):
        wait(client.map(digest, [150 + turn + n for n in range(24)], pure=False))
        time.sleep(3)


def well_filled(client: Client) -> None:
    """Use most of the memory, and not too much of it."""
    wait(client.map(digest, [100 + n for n in range(12)]))
    client.submit(_hold, 0.74, 1.5).result()


def retires_one(client: Client) -> None:
    """Send a worker away in the middle of work, as Dask does it."""
    parts = client.map(digest, [150 + n for n in range(48)])
    time.sleep(3)
    client.retire_workers([next(iter(client.scheduler_info()["workers"]))])
    wait(parts)


def large_results(client: Client) -> None:
    """Have results that are large, and memory for them."""
    parts = [client.submit(array, 60, n, pure=False) for n in range(6)]
    wait(parts)
    wait(client.map(digest, [200 + n for n in range(16)]))
    wait(client.map(touch, parts))


def seldom_flaky(client: Client) -> None:
    """Fail once in a hundred times in a few of many calls."""
    wait(client.map(flaky, [0.01] * 150, range(150), retries=5, pure=False))
    wait(client.map(digest, [250 + n for n in range(24)]))
