"""What single tasks of workloads do."""

from __future__ import annotations

import hashlib
import random
import time
from typing import Any

import numpy as np


def inc(number: int) -> int:
    """Do next to nothing."""
    return number + 1


def spin(seconds: float) -> float:
    """Compute on a CPU, with the lock of Python, until that much CPU time is spent."""
    end = time.thread_time() + seconds
    total = 0.0
    while time.thread_time() < end:
        total += sum(n * 0.5 for n in range(1000))
    return total


def digest(size: int) -> str:
    """Compute on a CPU without the lock of Python."""
    found = hashlib.sha256()
    block = bytes(1 << 20)
    for _ in range(size):
        found.update(block)
    return found.hexdigest()


def pause(seconds: float) -> float:
    """Wait, as for an answer."""
    time.sleep(seconds)
    return seconds


def array(megabytes: int, seed: int = 0) -> Any:
    """Return so much data."""
    return np.full(megabytes * 131_072, float(seed))


def touch(*arrays: Any) -> float:
    """Look at data."""
    return float(sum(one[0] for one in arrays))


def add_up(*arrays: Any) -> float:
    """Compute on data for a while."""
    return float(sum(np.sqrt(one).sum() for one in arrays)) + spin(0.2)


def grow(megabytes: int) -> int:
    """Take more and more memory."""
    held = []
    for _ in range(megabytes // 8):
        held.append(np.ones(8 * 131_072))
        time.sleep(0.02)
    return len(held)


def flaky(chance: float, key: int) -> int:
    """Fail now and then, as a service does that is overloaded."""
    time.sleep(0.05)
    if random.random() < chance:
        raise ConnectionError("the service is overloaded")
    return key


def parse(number: int) -> float:
    """Fail at one of many inputs."""
    time.sleep(0.02)
    return 1 / (number - 71)


def use(value: float) -> float:
    """Need the result of another."""
    return value


_IMPORTED: list[int] = []


def first_import(number: int) -> int:
    """Be slow the first time on each worker, as an import is."""
    if not _IMPORTED:
        _IMPORTED.append(number)
        time.sleep(1.0)
    return number + int(spin(0.05) < 0)
