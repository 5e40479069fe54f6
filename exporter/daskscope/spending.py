"""What the computations of this process's own schedulers take, with no service: for tests.

An observer counts on each scheduler whose event loop runs in this process, as on a
``LocalCluster``; nothing is sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import dask
from dask.typing import Key
from dask.utils import format_bytes
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import Serialized, deserialize
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.config import Settings, settings
from daskscope.containment import Contained, contain
from daskscope.durations import say_seconds, seconds_together
from daskscope.errors import BudgetExceeded, ConfigurationError, NotMeasured
from daskscope.observe.cluster import environment
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.observer import Observer
from daskscope.worker_process import peak_memory

#: The plugin's name on a scheduler: it stands beside that of ``register()``.
NAME = "daskscope-spending"
#: Seconds that a scheduler has to say what it counted.
_PATIENCE = 30.0
#: Computations whose rows one scheduler keeps for a test.
_MOST_ROWS = 10_000
#: Why the memory of workers is not known.
_IN_PROCESS = (
    "workers share the process of the tests, so they have no memory of their own: start their "
    "cluster with processes=True"
)
_LEFT_EARLY = (
    "a worker left before it was asked for its memory: make the cluster in a fixture, which ends "
    "after the test"
)
#: What a scheduler that starts loads, as Dask's configuration names it.
_PRELOAD = "distributed.scheduler.preload"


@dataclass
class BlockUsage:
    """What the computations that began in a block took.

    ``seconds`` is the time in which at least one of them ran, ``tasks`` how many tasks they have;
    ``memory`` the most that the process of a worker had, in bytes: None where nobody asked for it.
    """

    seconds: float = 0.0
    tasks: int = 0
    computations: int = 0
    memory: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a block may take at most; None of what has no limit."""

    seconds: float | None = None
    memory: int | None = None
    tasks: int | None = None
    #: Whether a block without computations passes.
    optional: bool = False

    def check(self) -> None:
        """Raise ConfigurationError where there is no limit."""
        if self.seconds is self.memory is self.tasks is None:
            raise ConfigurationError("there is no limit: set seconds, memory or tasks")


@contextmanager
def held_to(limits: Limits) -> Iterator[BlockUsage]:
    """Raise where what runs in the block takes more than ``limits``, as :meth:`Holding.end`."""
    holding = Holding(limits)
    with ExitStack() as on_failure:
        on_failure.callback(holding.give_up)
        yield holding.spent
        on_failure.pop_all()
    holding.end()


class Holding:
    """Watches what runs from now to :meth:`end`, or :meth:`give_up`."""

    def __init__(self, limits: Limits) -> None:
        limits.check()
        self.spent = BlockUsage()
        self._limits = limits
        self._watch = _Watch(memory=limits.memory is not None)
        self._watch.begin()

    def give_up(self) -> None:
        """Watch no longer: something else went wrong."""
        self._watch.end()

    def end(self) -> None:
        """Raise where it took more.

        Raises
        ------
        BudgetExceeded
            It took more.
        NotMeasured
            No computation ran, one still runs, or something that has a limit was not measured.
        """
        self._watch.end()
        self._watch.add_up(self.spent)
        _hold(self._limits, self.spent, self._watch)


def _hold(limits: Limits, spent: BlockUsage, watch: _Watch) -> None:
    if limits.optional and not spent.computations and not watch.problems:
        return
    over = []
    if limits.seconds is not None and spent.seconds > limits.seconds:
        over.append(
            f"they took {say_seconds(spent.seconds)} (limit: {say_seconds(limits.seconds)})"
        )
    if limits.tasks is not None and spent.tasks > limits.tasks:
        over.append(f"they have {spent.tasks:,} tasks (limit: {limits.tasks:,})")
    problems = list(watch.problems)
    if limits.memory is not None and spent.memory is not None and spent.memory > limits.memory:
        if watch.grew_beyond(limits.memory):
            over.append(
                f"a worker used {format_bytes(spent.memory)} of memory (limit: "
                f"{format_bytes(limits.memory)})"
            )
        else:
            problems.append(
                f"a worker already used {format_bytes(spent.memory)} of memory before: give the "
                "test a cluster of its own"
            )
    many = (
        "1 computation is" if spent.computations == 1 else f"{spent.computations} computations are"
    )
    if over:
        raise BudgetExceeded(f"{many} over the budget: {'; '.join(over)}")
    if not spent.computations:
        problems.append(
            "no computation ran on a scheduler of this process, as a LocalCluster has one"
        )
    if problems:
        raise NotMeasured(f"it is not known whether the budget holds: {'; '.join(problems)}")


class _Watch:
    """Observes the schedulers of this process from :meth:`begin` to :meth:`end`."""

    def __init__(self, *, memory: bool) -> None:
        self._memory = memory
        self._plugins: list[_Counts] = []
        self._configured: Any = None
        #: What could not be measured.
        self.problems: list[str] = []

    def begin(self) -> None:
        """Begin, on schedulers that run and on those that start meanwhile."""
        environment.read_once()
        self._observed = settings(
            interval="1h",
            computation__code__transmit=False,
            profile__transmit=False,
            stream__transmit=False,
            logs__transmit=False,
            traces__transmit=False,
            instances__transmit=False,
        )
        _watching.append(self)
        for scheduler in list(Scheduler._instances):
            if scheduler.status == Status.running:
                self._on(scheduler, self._begin_on(scheduler))
        preloads = dask.config.get(_PRELOAD, default=None) or []
        preloads = [preloads] if isinstance(preloads, str) else list(preloads)
        self._configured = dask.config.set({_PRELOAD: [*preloads, __name__]})

    def end(self) -> None:
        """End everywhere; what was counted stays."""
        if self._configured is not None:
            self._configured.__exit__(None, None, None)
        for plugin in list(self._plugins):
            if plugin.scheduler.status == Status.running:
                self._on(plugin.scheduler, self._end_on(plugin))
            elif not plugin.stopped:
                self.problems.append(f"the scheduler at {plugin.scheduler.address} is closing")
        _watching.remove(self)

    def put_into(self, scheduler: Scheduler) -> _Counts:
        """Put the plugin into a scheduler; on its loop."""
        plugin = _Counts(scheduler, self._observed, f"{NAME}-{id(self)}", memory=self._memory)
        self._plugins.append(plugin)
        scheduler.add_plugin(plugin, name=plugin.name)
        return plugin

    def add_up(self, spent: BlockUsage) -> None:
        """Fill ``spent`` with what all plugins counted."""
        intervals = []
        for plugin in self._plugins:
            rows = plugin.rows.values()
            self.problems += plugin.problems if rows or plugin.broken else []
            spent.computations += len(rows)
            spent.tasks += sum(row.tasks for row in rows)
            for row in rows:
                end = row.ended_at if row.stopped_at is None else row.stopped_at
                if end is None:
                    end = plugin.read_at
                    self.problems.append("a computation still runs")
                intervals.append((row.started_at, max(end, row.started_at)))
            if rows and self._memory:
                spent.memory = max([spent.memory or 0, *plugin.peaks.values()])
        spent.seconds = seconds_together(intervals)
        self.problems = list(dict.fromkeys(self.problems))

    def grew_beyond(self, memory: int) -> bool:
        """Return whether a worker has more than ``memory`` that had less before."""
        return any(
            peak > memory and plugin.peaks_before.get(address, 0) < peak
            for plugin in self._plugins
            for address, peak in plugin.peaks.items()
        )

    async def _begin_on(self, scheduler: Scheduler) -> None:
        plugin = self.put_into(scheduler)
        if self._memory:
            plugin.peaks_before = await plugin.read_peaks()

    async def _end_on(self, plugin: _Counts) -> None:
        if self._memory:
            plugin.peaks |= await plugin.read_peaks()
        plugin.stop()
        plugin.scheduler.remove_plugin(plugin.name)

    def _on(self, scheduler: Scheduler, work: Coroutine[Any, Any, None]) -> None:
        loop: Any = scheduler.loop  # tornado's, around asyncio's
        try:
            doing: Future[None] = asyncio.run_coroutine_threadsafe(work, loop.asyncio_loop)
        except RuntimeError:  # it has closed
            work.close()
            return
        try:
            doing.result(_PATIENCE)
        except Overdue:
            doing.cancel()
            self.problems.append(f"the scheduler at {scheduler.address} does not answer")
        except Exception as error:
            contain(error)
            self.problems.append(f"the scheduler at {scheduler.address} says {error!r}")


#: Those that watch now, the innermost last.
_watching: list[_Watch] = []


async def dask_setup(scheduler: Scheduler) -> None:
    """Count on a scheduler that starts, for whoever watches. Dask calls it: a preload."""
    for watch in _watching:
        watch.put_into(scheduler)


class _Counts(SchedulerPlugin):
    """Has an observer count, and keeps the rows of computations."""

    def __init__(
        self, scheduler: Scheduler, observed: Settings, name: str, *, memory: bool
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.rows: dict[str, protocol.Computation] = {}
        self.peaks: dict[str, int] = {}
        self.peaks_before: dict[str, int] = {}
        self.problems: list[str] = []
        self.broken = False
        self.read_at = 0.0
        self._memory = memory
        self._drops: Counter[str] = Counter()
        self._contained = Contained(self._drops)
        self.stopped = False
        registrant = Registrant(environment.user(), environment.host(), None)
        self._observer = Observer(
            scheduler, observed, self._drops, registrant=registrant, sampled=None
        )
        self.transition = self._observer.transitions.note  # type: ignore[method-assign]

    def take(self) -> None:
        """Take the rows of all that has changed."""
        with self._contained:
            snapshot = self._observer.snapshots.whole("beat")
            self.read_at = snapshot.status.at
            self._keep(snapshot.computations)
            while self._observer.snapshots.rows_wait():
                self._keep(self._observer.snapshots.rest("beat").computations)
            return
        self.broken = True
        self.problems.append("what ran could not be counted")

    def _keep(self, rows: Sequence[protocol.Computation]) -> None:
        self.rows.update((row.id, row) for row in rows)
        if len(self.rows) > _MOST_ROWS:
            self.broken = True
            self.problems.append(f"more than {_MOST_ROWS:,} computations ran")
            self.rows.clear()

    async def read_peaks(self) -> dict[str, int]:
        """Ask each worker how much memory its process ever had."""
        scheduler = self.scheduler
        if any(address.startswith("inproc://") for address in scheduler.workers):
            self.problems.append(_IN_PROCESS)
            return {}
        said = await scheduler.broadcast(
            msg={"op": "run", "function": dumps(peak_memory)}, on_error="return"
        )
        peaks = {}
        for address, answer in said.items():
            peak = answer.get("result") if isinstance(answer, dict) else None
            if isinstance(peak, Serialized):  # a scheduler passes on what it does not read
                peak = deserialize(peak.header, peak.frames)
            if isinstance(peak, int):
                peaks[address] = peak
            else:
                self.problems.append(f"the worker at {address} does not say what memory it had")
        return peaks

    def stop(self) -> None:
        """Take what is left, and end."""
        if self.stopped:
            return
        self.stopped = True
        self.take()
        self._observer.stop()
        del self.transition

    # --- hooks: on the scheduler's event loop -----------------------------------------------------

    async def close(self) -> None:
        """The scheduler closes."""
        with self._contained:
            self.stop()

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Sequence[Key], **kwargs: Any
    ) -> None:
        """A graph has arrived."""
        if not self.stopped:
            with self._contained:
                if self._observer.update_graph(client, tasks):
                    self.take()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker has come."""
        if not self.stopped:
            with self._contained:
                self._observer.add_worker(worker)

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """A worker has left."""
        if not self.stopped:
            with self._contained:
                self._observer.remove_worker(worker)
            if self._memory and worker not in self.peaks:
                self.problems.append(_IN_PROCESS if worker.startswith("inproc://") else _LEFT_EARLY)

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks were dropped."""
        if not self.stopped:
            with self._contained:
                self._observer.tasks_dropped()

    def log_event(self, topic: str, msg: Any) -> None:
        """Something was written to Dask's event log."""
        if not self.stopped:
            with self._contained:
                self._observer.log_event(topic, msg)
