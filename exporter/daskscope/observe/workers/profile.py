"""Reads the workers' statistical profiles, window by window, in a thread with a loop of its own.

Every worker looks at its busy threads some hundred times a second, and starts a new *cycle* each
second. A window takes whole cycles, and each cycle once, so that windows add up. Nothing is asked,
unpacked or merged on the scheduler's event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time as clock
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

import dask.config
from dask.utils import parse_timedelta
from distributed.core import rpc
from distributed.metrics import time
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.containment import contain
from daskscope.observe.naming import Naming
from daskscope.observe.workers.call_tree import CallTree
from daskscope.observe.workers.sample_weights import LAG, SampleWeights, Window

#: Workers that are asked for one window; where there are more, they take turns.
MAX_WORKERS = 64
#: Workers that are asked at once.
AT_ONCE = 4
#: Seconds that one worker may take, and all of a window: where they leave, all have the shorter.
WORKER_DEADLINE = 5.0
WINDOW_DEADLINE = 30.0
LEAVING_DEADLINE = 0.5
#: Seconds: workers remember a thousand cycles, so a longer window would lose some.
MAX_WINDOW = 600.0
#: Windows that wait to be sent; beyond it the oldest go, and are counted.
MAX_WAITING = 10
#: Calls in one answer that are neither too many to be unpacked at a go, nor too few to ask for.
FEW_CALLS, MANY_CALLS = 500, 2_000
#: Samples that one answer may hold: fewer and more of them are asked for as the answers turn out.
FEWEST_SAMPLES, MOST_SAMPLES = 50, 5_000
#: How often the samples of the last window are counted, and asked for, until both agree.
COUNTED_AGAIN = 3
#: Seconds without a sample that are worth a row in which there is none.
WORTH_A_ROW = 0.1
#: Seconds between two looks whether a window that is waited for has to be read at once.
HURRY = 0.05
#: Seconds by which a worker's clock may be off for a while.
MAX_SKEW = 10.0


class Cycle(NamedTuple):
    """When a cycle ended, and how many samples it has: in all, and of each of Dask's prefixes."""

    ended_at: float
    samples: int
    prefixes: Mapping[str, int]


class Computed(NamedTuple):
    """Thread-seconds that tasks computed so far: as finished runs ``reported`` it, by what the
    metrics call them, and all other, by Dask's own prefix.
    """

    reported: Mapping[str, float]
    unreported: Mapping[str, float]


class _Loop(asyncio.SelectorEventLoop):
    """A loop that is silent where it could not be made, because no more files can be opened.

    asyncio's own prints a traceback then, as it is deleted.
    """

    _is_made = False

    def __init__(self) -> None:
        super().__init__()
        self._is_made = True

    def __del__(self) -> None:
        if self._is_made:
            super().__del__()


class Profiles:
    """Begins windows and hands out rows on the event loop; reads windows in a thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        naming: Naming,
        *,
        first: float,
        interval: float,
        drops: Counter[str],
    ) -> None:
        self._workers = scheduler.workers
        self._connection_args = scheduler.connection_args
        self._naming = naming
        self._drops = drops
        # A short job shall be seen too: windows begin short, and grow.
        self._interval = min(interval, MAX_WINDOW)
        self._length = min(first, self._interval)
        self._started_at = time()
        self._started = clock.monotonic()
        self._computed = Computed({}, {})
        # By the name for tasks that are alike: below zero, what was counted of tasks that ran, and
        # that they turned out not to have computed.
        self._too_much: dict[str, float] = {}
        self._next_worker = 0
        # In seconds, as far as the scheduler knows the workers' settings.
        self._weights = SampleWeights(
            parse_timedelta(dask.config.get("distributed.worker.profile.interval"), default="ms")
        )
        cycle = parse_timedelta(dask.config.get("distributed.worker.profile.cycle"), default="ms")
        # Until a cycle has ended that began before a window did, and so has the next one.
        self._cycle = min(cycle, LAG / 2)
        # Whether what waits is to be read at once.
        self._hurry = False
        self._was_read = threading.Event()
        self._was_read.set()
        self._ends = math.inf
        # Until when those that were asked for the last window have been read, and of whom the cycle
        # after that has been read in part: they were to leave, and may have stayed.
        self._read_until: dict[str, float] = {}
        self._read_in_part: set[str] = set()
        self._samples_per_answer = FEWEST_SAMPLES
        self._windows_made = 0
        self._rows: deque[protocol.Profile] = deque()
        self._stopped = False
        self._reading: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    # --- on the event loop ------------------------------------------------------------------------

    def window(
        self, computed: Computed, *, leaving: Collection[str] | None = None
    ) -> Window | None:
        """Return the window that ends now; None while it is too short, or the last is being read.

        ``computed`` is what the workers' tasks took so far. Workers that are ``leaving``, by their
        addresses, get a window of their own at any time.
        """
        now, elapsed = time(), clock.monotonic() - self._started
        if leaving is None and (not self._was_read.is_set() or elapsed < self._length):
            return None
        asked = list(self._workers if leaving is None else leaving)
        all_threads = sum(worker.nthreads for worker in self._workers.values())
        # The clock may have been set back meanwhile.
        started_at = self._started_at if self._started_at <= now else now - elapsed
        self._ends = math.inf
        self._hurry = leaving is not None
        busy = None
        if len(asked) == len(self._workers):
            busy = self._busy_since(self._computed, computed)
            self._computed = computed
            self._started_at, self._started = now, clock.monotonic()
            self._length = min(2 * self._length, self._interval)
            if leaving is not None:
                # Do not wait long for windows that are being read.
                self._ends = clock.monotonic() + LEAVING_DEADLINE
        window = Window(
            started_at,
            now,
            {address: self._workers[address].nthreads for address in self._choose(asked)},
            all_threads,
            busy,
            leaving is not None,
        )
        self._was_read = window.was_read
        return window

    def _busy_since(self, before: Computed, computed: Computed) -> dict[str, float]:
        # A task that was running may end up having computed less.
        busy: defaultdict[str, float] = defaultdict(float, self._too_much)
        for name, took in computed.reported.items():
            busy[self._naming.alike(name)] += took - before.reported.get(name, 0.0)
        for prefix in computed.unreported.keys() | before.unreported.keys():
            took = computed.unreported.get(prefix, 0.0) - before.unreported.get(prefix, 0.0)
            busy[self._naming.alike_of(prefix)] += took
        self._too_much = {name: took for name, took in busy.items() if took < 0.0}
        return {name: took for name, took in busy.items() if took > 0.0}

    def take(self) -> tuple[protocol.Profile, ...]:
        """Return the rows since the last call."""
        return tuple(self._rows.popleft() for _ in range(len(self._rows)))

    def stop(self) -> None:
        """Give up what is being read. Workers that are gone would be looked for some seconds."""
        self._stopped = True
        reading = self._reading
        if reading is not None:
            loop, task = reading
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)

    def _choose(self, workers: list[str]) -> list[str]:
        if len(workers) <= MAX_WORKERS:
            return workers
        begin = self._next_worker % len(workers)
        self._next_worker = begin + MAX_WORKERS
        return [*workers, *workers[:MAX_WORKERS]][begin : begin + MAX_WORKERS]

    # --- in a thread ------------------------------------------------------------------------------

    def read(self, window: Window) -> None:
        """Ask the workers, and keep a row if any was at work."""
        try:
            with (
                asyncio.Runner(loop_factory=_Loop) as runner,
                suppress(asyncio.CancelledError),
            ):
                runner.get_loop()  # or there is a coroutine that nobody awaits
                runner.run(self._read_unless_stopped(window))
        finally:
            window.was_read.set()

    async def _read_unless_stopped(self, window: Window) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._reading = asyncio.get_running_loop(), task
        try:
            if not self._stopped:
                await self._read(window)
        finally:
            self._reading = None

    async def _read(self, window: Window) -> None:
        # The samples of its last moments are in cycles that have not ended yet.
        hurried = not window.leaving and not await self._wait(window)
        tree = CallTree()
        seen = Counter[str]()
        ends = clock.monotonic() + (LEAVING_DEADLINE if window.leaving else WINDOW_DEADLINE)
        waiting = deque(window.threads)
        answered: dict[str, float] = {}
        silent = []

        async def ask_one_by_one() -> None:
            while waiting and (now := clock.monotonic()) < (until := min(ends, self._ends)):
                address = waiting.popleft()
                try:
                    async with asyncio.timeout(min(until - now, WORKER_DEADLINE)):
                        answered[address] = await self._ask(address, window, tree, seen)
                except Exception as error:
                    contain(error)
                    # It has left, it hangs, it cannot answer: the others can.
                    silent.append(address)

        await asyncio.gather(*(ask_one_by_one() for _ in range(AT_ONCE)))
        # One that left takes its last profiles with it, whether it was being asked or not.
        if there := [address for address in silent if address in self._workers]:
            self._drops["worker profile"] += len(there)
        if window.leaving:
            self._read_until.update(answered)
            self._read_in_part.update(answered)
        else:
            self._read_until = answered
            self._read_in_part = {there for there in self._read_in_part if there in self._workers}
        seconds, unsampled = self._weights.estimate(seen, window, answered, hurried=hurried)
        if not tree.samples and (unsampled or 0.0) < WORTH_A_ROW:
            return
        if len(self._rows) >= MAX_WAITING:
            self._rows.popleft()
            self._drops["profile"] += 1
        self._windows_made += 1
        self._rows.append(
            tree.row(
                f"{int(window.started_at * 1000):x}-{self._windows_made:x}",
                window.started_at,
                window.stopped_at,
                workers=len(answered),
                seconds=seconds,
                unsampled=unsampled,
            )
        )

    async def _wait(self, window: Window) -> bool:
        """Wait until the samples of all of ``window`` can be read. Return False if there is no time
        for that.
        """
        ready = self._started + 2 * self._cycle
        while not self._hurry:
            if clock.monotonic() >= ready:
                return True
            await asyncio.sleep(HURRY)
        return False

    async def _ask(self, address: str, window: Window, tree: CallTree, seen: Counter[str]) -> float:
        """Read one worker, and count in ``seen`` the samples of each name. Return until when it has
        been read.
        """
        read_until = self._read_until.get(address, window.started_at)
        if read_until > window.stopped_at + MAX_SKEW:
            read_until = window.started_at  # the scheduler's clock was set back, and theirs with it
        async with rpc(address, connection_args=self._connection_args) as worker:
            cycles = await _ended_after(read_until, worker, window)
            if cycles and address in self._read_in_part:
                self._read_in_part.discard(address)
                read_until = cycles.pop(0).ended_at
            # With the last that ended Dask would add the one that runs: it waits for its successor.
            until = math.inf if window.leaving else window.stopped_at + self._cycle
            ended = list(takewhile(lambda cycle: cycle.ended_at <= until, cycles[:-1]))
            for portion in self._portions(ended):
                start, stop = portion[0].ended_at, portion[-1].ended_at
                answer = await worker.profile(start=start, stop=stop)
                samples = sum(cycle.samples for cycle in portion)
                if answer["count"] == samples:
                    self._add(tree, answer, seen, portion)
                else:
                    # Times that went back: these are other cycles.
                    self._drops["profile sample"] += samples
            read_until = ended[-1].ended_at if ended else read_until
            # The cycle that was read in part may run on.
            if window.leaving and address not in self._read_in_part:
                read_until = await self._ask_for_rest(read_until, worker, window, tree, seen)
        return read_until

    async def _ask_for_rest(
        self, read_until: float, worker: Any, window: Window, tree: CallTree, seen: Counter[str]
    ) -> float:
        """Read all after ``read_until``, the cycle that runs with it. Return when the one before
        that ended.

        Dask gives that one only together with the last that ended, and may mean others where times
        went back. So the samples are counted first; a worker at work may have taken one more since.
        """
        for _ in range(COUNTED_AGAIN):
            ended = await _ended_after(read_until, worker, window)
            # From no time on: of the cycle that runs alone.
            running = _cycles(await worker.profile_metadata(start=math.inf))[-1]
            samples = running.samples + sum(cycle.samples for cycle in ended)
            if not ended:
                break
            answer = await worker.profile(start=ended[0].ended_at)
            if answer["count"] == samples:
                self._add(tree, answer, seen, [*ended, running])
                return ended[-1].ended_at
        self._drops["profile sample"] += samples
        return ended[-1].ended_at if ended else read_until

    def _portions(self, cycles: list[Cycle]) -> Iterator[list[Cycle]]:
        """Yield the cycles to ask for at once.

        Dask takes from the first cycle that ended at ``start`` or later to the first that ended at
        ``stop`` or later: with the very times of two cycles, just those and what is between.
        """
        busy = [cycle for cycle in cycles if cycle.samples]
        portion: list[Cycle] = []
        samples = 0
        after = [*(cycle.samples for cycle in busy[1:]), math.inf]
        for cycle, following in zip(busy, after, strict=False):
            portion.append(cycle)
            samples += cycle.samples
            if samples + following > self._samples_per_answer:
                yield portion
                portion, samples = [], 0

    def _add(
        self, tree: CallTree, answer: dict[str, Any], seen: Counter[str], cycles: list[Cycle]
    ) -> None:
        for cycle in cycles:
            for prefix, samples in cycle.prefixes.items():
                seen[self._naming.alike_of(prefix)] += samples
        calls = tree.add(answer)
        if calls > MANY_CALLS:
            self._samples_per_answer = max(self._samples_per_answer // 2, FEWEST_SAMPLES)
        elif calls < FEW_CALLS:
            self._samples_per_answer = min(self._samples_per_answer * 2, MOST_SAMPLES)


async def _ended_after(read_until: float, worker: Any, window: Window) -> list[Cycle]:
    """Return the cycles that ended and have not been read.

    By their place rather than their time: each heartbeat sets a worker's clock by the scheduler's
    anew, so that it may go back.
    """
    answer = await worker.profile_metadata(
        start=read_until - MAX_SKEW, stop=window.stopped_at + MAX_SKEW
    )
    cycles = _cycles(answer)
    times = [cycle.ended_at for cycle in cycles]
    if read_until in times:
        return cycles[times.index(read_until) + 1 :]
    return cycles[bisect_right(times, read_until) :]


def _cycles(answer: Mapping[str, Any]) -> list[Cycle]:
    each = zip(answer["counts"], answer["keys"], strict=True)
    return [Cycle(at, samples, prefixes) for (at, samples), (_, prefixes) in each]
