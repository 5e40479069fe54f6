"""Tracks what the cluster did between any two moments: computations may end between heartbeats.

The event loop notes totals and maxima at Dask's ticks. It notes the threads' time only when the
number of threads, idle or paused ones has changed: between two notes the time grows evenly.
Transitions are counted later, some thousand at a time, so the notes reach back as far as any
transition that is not counted yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from distributed.metrics import monotonic, time

#: Notes that are stored of the threads' time and of bytes, and seconds whose maxima are stored.
MAX_NOTES = 4_000
MAX_SECONDS = 1_800
#: Dask's ticks between two looks at values that change only with workers' heartbeats.
TICKS = 25
#: Seconds for which a late heartbeat is remembered, and the longest wait for heartbeats if one was.
LATE_LATELY, MAX_LAG = 60.0, 5.0
#: Workers whose last heartbeat is remembered, also after they have left.
MAX_HEARD = 10_000
#: Seconds by which the longest interval must have grown for a row to be sent once more.
MUCH_LONGER = 0.1


class ThreadSeconds(NamedTuple):
    """Thread-seconds so far: of all threads, of those without a task, and of paused ones."""

    whole: float
    idle: float
    paused: float

    def by_state(self) -> dict[str, float]:
        """Return them by state, as in ``protocol.Status.worker_seconds``."""
        busy = max(self.whole - self.idle - self.paused, 0.0)
        return {"busy": busy, "idle": self.idle, "paused": self.paused}


class Moved(NamedTuple):
    """Bytes so far: written to disk, read back from there, and sent to workers and clients."""

    spilled: float = 0.0
    unspilled: float = 0.0
    sent: float = 0.0


class Most(NamedTuple):
    """The highest values that any worker reported; None if no worker did.

    ``loop_interval``: seconds between two turns of its event loop, averaged over a heartbeat
    interval. ``silence``: seconds since its last heartbeat. ``host_load``: its host's load per
    core.
    """

    loop_interval: float | None = None
    silence: float | None = None
    host_load: float | None = None


class During(NamedTuple):
    """What the cluster did between the start and the end of a computation."""

    spent: ThreadSeconds
    moved: Moved | None
    most: Most


class History:
    """The newest values by time. One thread adds them, any thread reads them."""

    def __init__(self) -> None:
        self._notes: list[tuple[float, tuple[float, ...]]] = []

    def add(self, at: float, values: tuple[float, ...]) -> None:
        """Note ``values`` at a time that is not before the last one."""
        notes = self._notes
        if len(notes) >= 2 * MAX_NOTES:
            # A new list, because other threads may still read the old one.
            notes = self._notes = notes[-MAX_NOTES:]
        notes.append((at, values))

    def around(
        self, at: float
    ) -> tuple[tuple[float, tuple[float, ...]], tuple[float, tuple[float, ...]] | None] | None:
        """Return the last note until ``at`` and the one after it; None if forgotten."""
        notes = self._notes
        place = bisect_right(notes, (at, (inf,)))
        if not place:
            return None
        return notes[place - 1], notes[place] if place < len(notes) else None


class Meanwhile:
    """Notes the cluster's totals over time.

    ``spent`` returns the thread-seconds until a moment, ``threads`` the current numbers of threads
    (all, without a task, paused), ``moved`` the bytes so far.
    """

    def __init__(
        self,
        *,
        spent: Callable[[float], tuple[float, float, float]],
        threads: Callable[[], tuple[int, int, int]],
        moved: Callable[[], tuple[float, float, float]],
    ) -> None:
        self._spent_until = spent
        self._threads_now = threads
        self._moved_now = moved
        self._threads = (-1, -1, -1)
        self._times, self._bytes = History(), History()
        #: The bytes at the last look.
        self.moved = Moved(*self._moved_now())
        self._bytes.add(monotonic(), self.moved)
        self._tick = 0
        #: Seconds until workers' heartbeats have reported what they did.
        self.lag = 1.0
        # One per second, the newest last: when it began, and the highest value of each kind.
        self._seconds: deque[list[float]] = deque(maxlen=MAX_SECONDS)
        self._knows_loads = False
        # When each worker, by its address, was last heard; the one that was heard first is first.
        self._heard: dict[str, float] = {}
        self.look()

    def look(self) -> None:
        """Note what has changed. Call it at each tick of the event loop."""
        threads = self._threads_now()
        if threads != self._threads:
            self._threads = threads
            now = monotonic()
            self._times.add(now, (*self._spent_until(now), *threads))
        self._tick -= 1
        if self._tick < 0:
            self._tick = TICKS
            self.look_at_bytes()

    def look_at_bytes(self) -> None:
        """Note the bytes that workers have reported. Call it before rows are made."""
        moved = Moved(*self._moved_now())
        if moved != self.moved:
            self._bytes.add(monotonic(), moved)
            self.moved = moved

    def heard_since(self, workers: Iterable[str], at: float) -> bool:
        """Return whether a heartbeat of any of ``workers`` has come since then."""
        # For each row on the event loop: most often the first worker answers it.
        return any(self._heard.get(one, -inf) >= at for one in workers)

    def note(
        self, worker: str, loop_interval: float, silence: float, host_load: float | None
    ) -> None:
        """Note the values that a worker, by its address, has reported."""
        now = monotonic()
        self._heard.pop(worker, None)
        self._heard[worker] = now - silence
        if len(self._heard) > MAX_HEARD:
            del self._heard[next(iter(self._heard))]
        seconds = self._seconds
        if not seconds or now - seconds[-1][0] >= 1.0:
            seconds.append([now, 0.0, 0.0, 0.0])
        most = seconds[-1]
        if loop_interval > most[1]:
            most[1] = loop_interval
        if silence > most[2]:
            most[2] = silence
        if host_load is not None:
            self._knows_loads = True
            if host_load > most[3]:
                most[3] = host_load

    def expect_heartbeats(self, interval: float) -> None:
        """Set ``lag`` for workers that send a heartbeat every ``interval`` seconds.

        Heartbeats may be late. If one was lately, as on a busy host, the next may be, too.
        """
        now = monotonic()
        silence = self.most_between(now - LATE_LATELY, now).silence or 0.0
        usual = 2 * interval
        self.lag = max(usual, min(silence + interval, MAX_LAG))

    def begin(self) -> Stretch:
        """Return a stretch that begins now. On the event loop."""
        now = monotonic()
        return Stretch(self, now, ThreadSeconds(*self._spent_until(now)), self.moved)

    def spent_now(self) -> ThreadSeconds:
        """Return the threads' time until now. On the event loop."""
        return ThreadSeconds(*self._spent_until(monotonic()))

    def spent_at(self, at: float) -> ThreadSeconds | None:
        """Return the threads' time until ``at``; None if it is forgotten."""
        around = self._times.around(at)
        if around is None:
            return None
        (before, values), after = around
        if after is None:
            # Nothing has changed since.
            had, threads = values[:3], values[3:]
            return ThreadSeconds(
                *(x + n * (at - before) for x, n in zip(had, threads, strict=True))
            )
        until, then = after
        share = (at - before) / (until - before) if until > before else 0.0
        return ThreadSeconds(
            *(x + share * (y - x) for x, y in zip(values[:3], then[:3], strict=True))
        )

    def moved_at(self, at: float) -> Moved | None:
        """Return the bytes until ``at``; None if they are forgotten."""
        around = self._bytes.around(at)
        return None if around is None else Moved(*around[0][1])

    def most_between(self, since: float, until: float) -> Most:
        """Return the highest values reported between two moments, as far as they are stored."""
        loop = silence = load = -1.0
        for began, *most in reversed(self._seconds):
            if began + 1.0 < since:
                break
            if began <= until:
                loop, silence, load = map(max, (loop, silence, load), most)
        if loop < 0:
            return Most()
        return Most(loop, silence, load if self._knows_loads else None)


class Stretch:
    """The period from a computation's start to its end. A computation that resumes reopens it."""

    __slots__ = (
        "_began_at",
        "_ended_at",
        "_final",
        "_latest",
        "_meanwhile",
        "_measured",
        "_moved",
        "_spent",
        "_whole",
    )

    def __init__(
        self, meanwhile: Meanwhile, now: float, spent: ThreadSeconds, moved: Moved
    ) -> None:
        self._meanwhile = meanwhile
        self._began_at, self._spent, self._moved = now, spent, moved
        self._ended_at: float | None = None
        # The threads' time at the end.
        self._whole: ThreadSeconds | None = None
        self._latest: During | None = None
        self._final = False
        # Whether its bytes were known when they were last asked for. Once it has ended, they remain
        # known.
        self._measured: bool | None = None

    def end(self, at: float) -> None:
        """End the period ``at`` a time of the wall clock, a moment ago. In any thread."""
        ended = self._ended_at = at - (time() - monotonic())
        self._whole = self._meanwhile.spent_at(max(ended, self._began_at))
        self._final, self._measured = False, None

    def go_on(self) -> None:
        """Reopen the period."""
        self._ended_at, self._final = None, False

    def settled(self) -> bool:
        """Return whether it has ended, and heartbeats have reported everything until then."""
        return self._ended_at is not None and monotonic() > self._ended_at + self._meanwhile.lag

    def has_more(self) -> bool:
        """Return whether there is more to send than was sent. Call it once it has settled."""
        before, now = self._latest, self.during()
        if before is None or now is None:
            return now is not None
        longer = (now.most.loop_interval or 0.0) - (before.most.loop_interval or 0.0)
        return now.moved != before.moved or longer > MUCH_LONGER or self._measured is False

    def moved(self, workers: Iterable[str]) -> Moved | None:
        """Return the bytes of ``during``; None if ``workers``, which ran it, reported too little.

        Bytes come with heartbeats, and none comes once the cluster closes. One in the second half
        of the period, or after it, is enough: what is missing then is less than what was reported.
        """
        during = self.during()
        if during is None:
            return None
        if self._ended_at is None or not self._measured:
            ended = self._began_at if self._ended_at is None else self._ended_at
            middle = (self._began_at + ended) / 2
            self._measured = self._meanwhile.heard_since(workers, middle)
        return during.moved if self._measured else None

    def during(self) -> During | None:
        """Return what the cluster did in the period, or has done so far. On the event loop.

        Return None if it is so long ago that the notes are gone.
        """
        if self._final:
            return self._latest
        meanwhile, ended = self._meanwhile, self._ended_at
        moved: Moved | None
        if ended is None:
            spent, moved, most = meanwhile.spent_now(), meanwhile.moved, Most()
        else:
            if self._whole is None:
                return None
            spent, until = self._whole, ended + meanwhile.lag
            moved = meanwhile.moved_at(until) if self.settled() else meanwhile.moved
            most = meanwhile.most_between(self._began_at, until)
            self._final = self.settled()
        self._latest = During(
            ThreadSeconds(*(max(y - x, 0.0) for x, y in zip(self._spent, spent, strict=True))),
            None
            if moved is None
            else Moved(*(max(y - x, 0.0) for x, y in zip(self._moved, moved, strict=True))),
            most,
        )
        return self._latest
