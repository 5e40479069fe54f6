"""The lag of the scheduler's event loop, by a clock of the test's own."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from distributed.scheduler import Scheduler
from tornado.ioloop import PeriodicCallback

from daskscope.observe.cluster import load
from daskscope.observe.cluster.load import Load
from daskscope.observe.cluster.loop_tick_hook import LoopTickHook

TICK = 0.02
HOUR = 3600.0


class Clocks:
    """A monotonic clock and one that may be set, in place of the module ``time``."""

    process_time = staticmethod(time.process_time)

    def __init__(self) -> None:
        self.now = 100.0
        self.ahead = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.ahead


class Monitor:
    def recent(self) -> dict[str, float]:
        return {"memory": 1.0}


class Ticking:
    """As much of a scheduler as is asked: Dask's own look at its loop, called by hand."""

    monitor = Monitor()

    def __init__(self) -> None:
        self.looks = 0
        self.tick = PeriodicCallback(self.look, TICK * 1_000)
        self.periodic_callbacks = {"tick": self.tick}

    def look(self) -> None:
        self.looks += 1


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(load, "time", clocks)
    return clocks


@pytest.fixture
def scheduler() -> Any:
    return Ticking()


def looked_at(scheduler: Any) -> Load:
    load = Load(scheduler)
    LoopTickHook(scheduler, Counter(), load.look)
    return load


def test_the_latest_of_dasks_looks_tells_the_lag_once(clocks: Clocks, scheduler: Any) -> None:
    watched = looked_at(scheduler)
    for late in (0.0, 1.5, 0.3, 0.0):
        clocks.now += TICK + late
        scheduler.tick.callback()

    assert watched.take().lag == pytest.approx(1.5)
    clocks.now += TICK
    scheduler.tick.callback()
    assert watched.take().lag == pytest.approx(0.0)
    assert scheduler.looks == 5


@pytest.mark.parametrize(
    ("silent", "ahead"),
    [
        # Set back, Dask looks again when its time has come; and so where it is set on meanwhile.
        (HOUR, -HOUR),
        (TICK, HOUR),
        (5.0, HOUR),
    ],
)
def test_a_clock_that_is_set_keeps_nobody_waiting(
    clocks: Clocks, scheduler: Any, silent: float, ahead: float
) -> None:
    watched = looked_at(scheduler)
    clocks.now += silent
    clocks.ahead += ahead
    scheduler.tick.callback()

    assert watched.take().lag == 0.0
    clocks.now += TICK + 0.7
    scheduler.tick.callback()
    assert watched.take().lag == pytest.approx(0.7)


def test_dasks_look_is_its_own_again_afterwards(scheduler: Scheduler) -> None:
    tick = scheduler.periodic_callbacks["tick"]
    original = tick.callback
    ticks = LoopTickHook(scheduler, Counter())
    assert tick.callback != original
    ticks.stop()
    assert tick.callback == original


def test_who_joined_it_later_stays(scheduler: Any) -> None:
    ours: list[int] = []
    ticks = LoopTickHook(scheduler, Counter(), lambda: ours.append(1))
    before = scheduler.tick.callback
    called = []

    def theirs() -> None:
        called.append(1)
        before()

    scheduler.tick.callback = theirs
    scheduler.tick.callback()
    ticks.stop()
    scheduler.tick.callback()
    assert scheduler.tick.callback is theirs
    assert (len(called), scheduler.looks, len(ours)) == (2, 2, 1)


def test_what_we_raise_is_counted_and_dask_looks_all_the_same(scheduler: Any) -> None:
    drops: Counter[str] = Counter()
    called = []

    def fails() -> None:
        raise ValueError

    LoopTickHook(scheduler, drops, fails, lambda: called.append(1))
    scheduler.tick.callback()

    assert (drops, scheduler.looks, len(called)) == ({"internal error": 1}, 1, 1)
