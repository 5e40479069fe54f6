"""How much time the samples of a window stand for, and how much of the tasks' time has no sample.

A worker cannot look while a call holds the interpreter's lock (GIL), and looks less often while
threads compete for it. What its tasks took is known to the scheduler all the same, by their prefix:
so a sample may stand for more time than lies between two looks, but for no more than the tasks of
its own prefix took.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

#: How many times less often than it should a worker may look, for want of time, before it is not
#: believed.
MAX_SLOWDOWN = 4.0
#: Seconds by which the samples of a thread may come later, or sooner, than the scheduler counts its
#: time. No time is carried over to samples that are further away.
LAG = 2.0
#: Which part of all time may be given to samples of prefixes whose tasks did not take so much: what
#: the scheduler counts and what is sampled are never quite of the same moments.
GIVEN_TO_OTHERS = 0.05


@dataclass(frozen=True, slots=True)
class Window:
    """A part of the workers' profile to read: the ``threads`` of the workers to ask, by address.

    ``busy`` are the thread-seconds that the tasks of ``all_threads`` computed, by a name for those
    that are alike (:meth:`.Naming.alike`), as the scheduler counts them; None where only some
    workers leave, as it does not count theirs apart. Workers that are ``leaving`` are read
    completely. ``was_read`` is set when everything was read or given up.
    """

    started_at: float
    stopped_at: float
    threads: dict[str, int]
    all_threads: int
    busy: Mapping[str, float] | None
    leaving: bool
    was_read: threading.Event = field(default_factory=threading.Event)


class SampleWeights:
    """Weighs the samples of one window after the other, each taken every ``sampled_every`` seconds.

    The scheduler counts a task's time at its end, and samples of it may come sooner or later: time
    that is left over is carried to the next window, for :data:`LAG` seconds.
    """

    def __init__(self, sampled_every: float) -> None:
        self._sampled_every = sampled_every
        # By the name for tasks that are alike: their thread-seconds of the last windows whose
        # samples were still to come or, below zero, that samples were of before the scheduler had
        # counted them; and when that was.
        self._carried: dict[str, tuple[float, float]] = {}

    def estimate(
        self, seen: Counter[str], window: Window, answered: Collection[str], *, hurried: bool
    ) -> tuple[float, float | None]:
        """Estimate the thread-seconds of all samples, and those of tasks that no sample was of.

        The latter are None where workers take turns: what the tasks of each took is not known.
        ``hurried`` says that samples of the last moments are still to come.
        """
        nominal = {name: samples * self._sampled_every for name, samples in seen.items()}
        whole = sum(nominal.values())
        if window.busy is None:
            # All tasks' time, theirs with it, is counted later.
            for name, seconds in nominal.items():
                before, _ = self._carried.get(name, (0.0, 0.0))
                self._carried[name] = before - seconds, window.stopped_at
            return whole, 0.0
        all_threads = max(window.all_threads, 1)
        asked = sum(window.threads.values()) / all_threads
        read = sum(window.threads[address] for address in answered) / all_threads
        expired = 0.0
        carried: dict[str, tuple[float, float]] = {}
        for name, (seconds, at) in self._carried.items():
            if window.started_at - at <= LAG:
                carried[name] = seconds, at
            else:
                expired += max(seconds, 0.0)
        due = {
            name: read * window.busy.get(name, 0.0) + carried.get(name, (0.0, 0.0))[0]
            for name in nominal
        }
        seconds_each = _stretch(nominal, due)
        unsampled = expired
        self._carried = {}
        for name in window.busy.keys() | nominal.keys() | carried.keys():
            before, at = carried.get(name, (0.0, 0.0))
            left = asked * window.busy.get(name, 0.0) + before
            left -= seconds_each * nominal.get(name, 0.0)
            most = LAG * window.all_threads
            later = max(min(left, most if hurried else 0.0), -most)
            unsampled += max(left - later, 0.0)
            if later:
                self._carried[name] = later, (at if name not in nominal else window.stopped_at)
        all_asked = sum(window.threads.values()) == window.all_threads
        return seconds_each * whole, unsampled if all_asked else None


def _stretch(nominal: Mapping[str, float], due: Mapping[str, float]) -> float:
    """Return how much longer than ``nominal`` the samples of all names may be of.

    As much as their tasks' time, ``due``, is longer; but hardly more than any of them took. One
    worker may have been kept from looking, while the others were not.
    """
    whole = sum(nominal.values())
    most = {name: max(due[name], seconds) for name, seconds in nominal.items()}
    least, stretch = 1.0, MAX_SLOWDOWN
    if whole:
        stretch = min(stretch, sum(most.values()) / whole)

    def given_to_others(times: float) -> float:
        return sum(max(times * nominal[name] - most[name], 0.0) for name in nominal)

    if given_to_others(stretch) <= GIVEN_TO_OTHERS * stretch * whole:
        return stretch
    for _ in range(20):
        middle = (least + stretch) / 2
        if given_to_others(middle) <= GIVEN_TO_OTHERS * middle * whole:
            least = middle
        else:
            stretch = middle
    return least
