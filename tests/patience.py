"""How long tests wait for what must come: as long as this machine needs while they wait.

A deadline in seconds is right for one machine that does nothing else. The deadlines here are
stretched by how much slower a fixed amount of work is at that moment, on a slower machine or
beside other programs. Nothing waits longer than it must: what is awaited ends the wait.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

#: Seconds that :func:`_work` takes on the machines that the deadlines were chosen for.
_USUAL = 0.03


def slowness() -> float:
    """Return how many times longer a fixed amount of work takes here and now than usual: 1 to 8."""
    began = time.perf_counter()
    _work()
    return min(8.0, max(1.0, (time.perf_counter() - began) / _USUAL))


def _work() -> int:
    # Longer than an operating system lets one program run at a stretch, so that others count.
    return sum(number * number for number in range(400_000))


def stretched(seconds: float) -> float:
    """Return a deadline of ``seconds`` as it has to be on this machine at this moment."""
    return seconds * slowness()


Found = TypeVar("Found")


def wait_until(
    look: Callable[[], Found | Literal[False] | None],
    *,
    what: str | Callable[[], object] = "it",
    seconds: float = 60.0,
) -> Found:
    """Return what ``look`` finds as soon as it finds something.

    Raises AssertionError, which names ``what``, once ``seconds`` have passed, stretched by how slow
    the machine is when they have.
    """
    began = time.monotonic()
    while not (found := look()):
        passed = time.monotonic() - began
        if passed > seconds and passed > stretched(seconds):
            raise AssertionError(f"never came: {what() if callable(what) else what}")
        time.sleep(_pause(passed))
    return found


def _pause(passed: float) -> float:
    # Who looks all the time takes the cores from those that are to make it come.
    return min(0.25, 0.02 + passed / 20)


async def wait_on_loop(
    look: Callable[[], Found | Literal[False] | None],
    *,
    what: str | Callable[[], object] = "it",
    seconds: float = 60.0,
) -> Found:
    """Do as :func:`wait_until`, and let the event loop go on."""
    began = time.monotonic()
    while not (found := look()):
        passed = time.monotonic() - began
        if passed > seconds and passed > stretched(seconds):
            raise AssertionError(f"never came: {what() if callable(what) else what}")
        await asyncio.sleep(_pause(passed))
    return found


def wait_for_file(path: str) -> None:
    """Return once there is a file at ``path``, also as a task."""
    wait_until(lambda: os.path.exists(path), what=path)


#: Seconds for one event to come, for waits that take a number.
PATIENCE = stretched(30.0)

#: Seconds for a process to start that imports Dask, as others beside it do.
START_PATIENCE = stretched(120.0)
