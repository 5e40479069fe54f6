"""The scheduler plugin: forwards Dask's hooks to the observer, and its snapshots to the threads.

Whatever goes wrong in here is counted and stays here. Nothing waits on the event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler
from tornado.ioloop import PeriodicCallback

from daskscope import protocol
from daskscope.background import Background
from daskscope.config import Settings
from daskscope.emit.destination import Destination
from daskscope.emit.emitter import Emitter, disabled_by_environment
from daskscope.emit.traces import sampling
from daskscope.explanation import Explanation, Recent, explain
from daskscope.observe.environment import read_once
from daskscope.observe.logs import watch_logs
from daskscope.observe.profile import CLOSE_DEADLINE as PROFILE_DEADLINE
from daskscope.observe.profile import Window
from daskscope.observe.snapshot import Observed, Observer
from daskscope.observe.weight import weight
from daskscope.privacy import Cleared, Privacy
from daskscope.propagate import activate_in_tasks
from daskscope.report.sender import Sender
from daskscope.shutdown.shutdowns import Shutdowns
from daskscope.size import size_of

logger = logging.getLogger("daskscope")

#: The plugin's name on the scheduler: there is one at most.
NAME = "daskscope"

#: What to do on a scheduler that has no plugin.
NOT_REGISTERED = "Call daskscope.register(), or start the scheduler with --preload daskscope"

#: Snapshots that wait to be cleared before the next one is put off.
MAX_BEHIND = 20
#: Seconds that closing may take, whatever hangs.
CLOSE_DEADLINE = 3.0
#: Seconds of these after which what is still under way to the service goes into the spool.
SPOOL_AFTER = 2.0
#: Seconds between two snapshots where one cannot hold all that has changed.
PAUSE = 0.1
#: Seconds that a client which asks for an explanation waits for the beat that it is made of.
EXPLAIN_DEADLINE = 5.0
#: Seconds that a client which registers waits to hear whether the service takes its beats.
ANSWER_DEADLINE = 2.0


@dataclass(frozen=True, slots=True)
class Registrant:
    """Who registered: the user and host of the client, or of the scheduler with a preload."""

    user: str
    host: str
    client: str | None = None


@dataclass(frozen=True, slots=True)
class Installed:
    """What a client gets to know. ``differing`` names settings that are not the client's own."""

    cluster_id: str
    url: str
    problem: str | None
    registrant: Registrant
    differing: tuple[str, ...]


def _contained(hook: Callable[..., None]) -> Callable[..., None]:
    """Count what a hook raises; Dask would log it, with its traceback, at every call."""

    @wraps(hook)
    def contained(self: Plugin, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception:
            self.drops["internal error"] += 1

    return contained


class Plugin(SchedulerPlugin):
    """Observes one scheduler for whoever registered first."""

    name = NAME
    idempotent = True

    def __init__(self, settings: Settings, registrant: Registrant) -> None:
        self.settings = settings
        self.registrant = registrant
        self.drops: Counter[str] = Counter()
        self._running: _Running | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to observe. Never waits, so that of two that register at once one is first."""
        if self._running is not None:
            return
        try:
            self._running = _Running(scheduler, self)
        except Exception as error:
            logger.warning("daskscope cannot start (%r); the cluster runs without it", error)

    async def close(self) -> None:
        """Tell the service that the scheduler has closed, and end within the deadline."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.close()

    async def first_answer(self) -> None:
        """Wait until the service has answered, or for as long as it is worth."""
        if self._running is not None:
            await _until(self._running.sender.first_answer.is_set, ANSWER_DEADLINE)

    def client_is(self, registrant: Registrant) -> None:
        """Remember whose client that is; Dask does not tell."""
        if self._running is not None and registrant.client is not None:
            self._running.observer.client_is(registrant.client, registrant.user)

    def installed(self, settings: Settings, scheduler: Scheduler) -> Installed:
        """Return what a client with ``settings`` gets to know."""
        sender = None if self._running is None else self._running.sender
        return Installed(
            cluster_id=scheduler.id,
            url=(sender and sender.url) or f"{self.settings.endpoint}/clusters/{scheduler.id}",
            problem="it could not start; see the scheduler's log"
            if sender is None
            else sender.problem,
            registrant=self.registrant,
            differing=tuple(
                field.name
                for field in fields(Settings)
                if getattr(settings, field.name) != getattr(self.settings, field.name)
            ),
        )

    async def explain(self) -> Explanation:
        """Return what is sent from this cluster now."""
        if self._running is None:
            return Explanation(problem="it could not start; see the scheduler's log")
        return await self._running.explain()

    # --- hooks: on the scheduler's event loop -----------------------------------------------------

    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task went from one state to another: some six times per task, the hottest of all."""
        running = self._running
        # Dask tells of transitions that are none, too.
        if running is not None and start != finish:
            try:
                running.observer.transition(key, start, finish, kwargs)
            except Exception:
                self.drops["internal error"] += 1

    @_contained
    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: Collection[Key],
        **kwargs: Any,
    ) -> None:
        """A graph has arrived."""
        if self._running is not None:
            # It may tell at once: not of a graph before its tasks have made a transition.
            self._running.shutdowns.work_arrived()
            self._running.observer.update_graph(client, tasks)
            if self._running.observer.is_full():
                self._running.tell_more_soon()

    @_contained
    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker has come."""
        if self._running is not None:
            self._running.observer.add_worker(worker)

    @_contained
    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """A worker has left."""
        if self._running is not None:
            self._running.observer.remove_worker(worker)

    @_contained
    def restart(self, scheduler: Scheduler) -> None:
        """All tasks were dropped."""
        if self._running is not None:
            self._running.observer.tasks_dropped()

    @_contained
    def log_event(self, topic: str, msg: Any) -> None:
        """Something was written to Dask's event log."""
        if self._running is not None:
            self._running.observer.log_event(topic, msg)


class _Running:
    """What a plugin has while it observes: the observer on the loop, three threads off it."""

    def __init__(self, scheduler: Scheduler, plugin: Plugin) -> None:
        settings, drops = plugin.settings, plugin.drops
        self._scheduler = scheduler
        self._plugin = plugin
        self.observer = Observer(
            scheduler,
            settings,
            drops,
            user=plugin.registrant.user,
            preloaded=plugin.registrant.client is None,
            sampled=sampling(),
        )
        self._loop = asyncio.get_running_loop()
        self.sender = Sender(settings, drops, self._obey)
        self._privacy = Privacy(settings)
        self._recent = Recent()
        # The service and the collector may each hang: neither must hold up the other.
        self._report: Background[None] = Background(
            "daskscope-report", self.sender.send, self.sender.close, drops
        )
        self._emit: Background[Cleared] | None = None
        self._emitter: Emitter | None = None
        if settings.otlp_enabled and not disabled_by_environment():
            self._emitter = Emitter(
                settings,
                Destination(settings),
                lambda: self.sender.failures,
                self._waiting,
                self.sender.is_well,
                drops,
            )
            self._emit = Background(
                "daskscope-emit", self._emitter.emit, self._emitter.shutdown, drops
            )
        self._clear = Background("daskscope-clear", self._hand_on, self._close_others, drops)
        self._unwatch: list[Callable[[], None]] = [self.observer.stop]
        if settings.logs_transmit:
            self._unwatch.append(watch_logs(scheduler, self.observer.logs, settings))
        if settings.traces_transmit:
            self._unwatch.append(activate_in_tasks(scheduler))
        self._profile: Background[Window] | None = None
        if self.observer.profiles is not None:
            self._profile = Background(
                "daskscope-profile", self.observer.profiles.read, lambda: None, drops
            )
        self._ended = False
        self._timer = PeriodicCallback(self._beat, settings.interval * 1000)
        self._timer.start()
        # A script may end without closing its cluster.
        atexit.register(self.sender.keep)
        self._more: asyncio.TimerHandle | None = None
        self.shutdowns = Shutdowns(
            scheduler, settings, self.observer.idle, drops, lambda: self._tell("beat")
        )
        self._tell("start")

    async def close(self) -> None:
        ends = time.monotonic() + CLOSE_DEADLINE
        self._timer.stop()
        self.observer.tasks_dropped()
        while self.observer.rows_wait() and self._tell_rest("beat"):
            await asyncio.sleep(0)
        if self._profile is not None:
            # What the workers were last seen at is told if they can be asked quickly.
            self._read_profile(last=True)
            self._profile.close()
            await _until(self._profile.done, PROFILE_DEADLINE)
        self._end("stop")
        await _until(self._done, ends - time.monotonic())

    async def explain(self) -> Explanation:
        # A beat of its own, which is sent as every other: no row is taken from another.
        observed = self.observer.snapshot("beat", self.shutdowns.take())
        self._clear.put(observed, weight(observed))
        if self.observer.rows_wait():
            observed = self.observer.rest("beat")
            self._clear.put(observed, weight(observed))
        await _until(lambda: self._recent.has(observed), EXPLAIN_DEADLINE)
        return await asyncio.to_thread(
            explain, self._plugin.settings, self._recent.snapshot() or observed
        )

    def _beat(self) -> None:
        if self._scheduler.plugins.get(NAME) is not self._plugin:
            # Dask does not tell a plugin that it was removed or replaced.
            self._end("beat")
            return
        self._timer.callback_time = 1000 * max(
            self._plugin.settings.interval, self.sender.interval_wanted
        )
        with suppress(Exception):  # the snapshot looks for itself, and counts what goes wrong
            self.observer.look()
        # With many workers that took a while: let others have their turn.
        self._loop.call_soon(self._tell_beat)

    def _tell_beat(self) -> None:
        if self._ended:
            return
        if self._tell("beat"):
            self.tell_more_soon()
        self._read_profile()

    def _read_profile(self, *, last: bool = False) -> None:
        try:
            window = self.observer.profile_window(last=last)
            if window is not None and self._profile is not None:
                self._profile.put(window)
        except Exception:
            self._plugin.drops["internal error"] += 1

    def tell_more_soon(self) -> None:
        """Tell what has changed before the next beat: a part of it, so that the loop breathes."""
        if self._more is None:
            self._more = asyncio.get_running_loop().call_later(PAUSE, self._tell_more)

    def _tell_more(self) -> None:
        self._more = None
        if self._tell_rest("beat"):
            self.tell_more_soon()

    def _tell(self, phase: protocol.Phase) -> bool:
        """Hand a snapshot on. Return whether there is more to tell."""
        return self._hand_over(self.observer.snapshot, phase)

    def _tell_rest(self, phase: protocol.Phase) -> bool:
        """Hand a part of what the last snapshot left on. Return whether there is more to tell."""
        return self._hand_over(self.observer.rest, phase)

    def _hand_over(self, take: Callable[..., Observed], phase: protocol.Phase) -> bool:
        try:
            if self._timer.is_running() and self._clear.waiting() >= MAX_BEHIND:
                return True  # it waits where it is: the observer is bounded too
            observed = take(phase, self.shutdowns.take())
            self._clear.put(observed, weight(observed))
            return self.observer.rows_wait()
        except Exception:
            self._plugin.drops["internal error"] += 1
            return False

    def _end(self, phase: protocol.Phase) -> None:
        if self._ended:
            return  # a beat has found before that the plugin is gone
        self._ended = True
        self._timer.stop()
        atexit.unregister(self.sender.keep)
        for unwatch in self._unwatch:
            unwatch()
        if self._profile is not None:
            self._profile.close()
        self.shutdowns.end()
        more = self._tell(phase)
        while more:
            more = self._tell_rest(phase)
        if self._more is not None:
            self._more.cancel()
        self._clear.close()

    def _obey(self, commands: tuple[protocol.Command, ...]) -> None:
        # In the sender's thread; the scheduler is touched by its own alone.
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self.shutdowns.command, commands)

    def _hand_on(self, observed: Observed) -> None:
        self._recent.add(observed)
        cleared = self._privacy.clear(observed)
        self.sender.add(cleared)
        self._report.put(None)
        self.sender.end_overdue()
        if self._emit is not None and self._emitter is not None:
            self._emit.put(cleared, size_of(cleared))
            self._emitter.end_overdue()

    def _waiting(self) -> dict[str, int]:
        """Return what waits in each queue: snapshots in all but ``rows``."""
        return {
            "clear": self._clear.waiting(),
            "report": self._report.waiting(),
            "emit": 0 if self._emit is None else self._emit.waiting(),
            "rows": self.sender.waiting(),
        }

    def _close_others(self) -> None:
        self._report.close()
        if self._emit is not None:
            self._emit.close()
        self._report.join(SPOOL_AFTER)
        if not self._report.done():
            self.sender.abandon()

    def _done(self) -> bool:
        return (
            self._clear.done() and self._report.done() and (self._emit is None or self._emit.done())
        )


async def install(
    settings: Settings, registrant: Registrant, dask_scheduler: Scheduler
) -> Installed:
    """Put the plugin into the scheduler unless it is there; runs on the scheduler.

    Nothing waits between the look and the act, so that of two clients one is first.
    """
    # They read files and remember what they found: off the loop.
    await asyncio.to_thread(read_once)
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        plugin = Plugin(settings, registrant)
        dask_scheduler.add_plugin(plugin, name=NAME)
        await plugin.start(dask_scheduler)
    assert isinstance(plugin, Plugin)
    plugin.client_is(registrant)
    await plugin.first_answer()
    return plugin.installed(settings, dask_scheduler)


async def explain_here(dask_scheduler: Scheduler) -> Explanation:
    """Return what is sent from this cluster now; runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return Explanation(problem=f"nobody has registered with it. {NOT_REGISTERED}")
    assert isinstance(plugin, Plugin)
    return await plugin.explain()


async def _until(condition: Callable[[], bool], deadline: float) -> None:
    # Threads cannot be awaited, and at interpreter exit nothing that uses an executor works.
    ends = time.monotonic() + deadline
    while not condition() and time.monotonic() < ends:
        await asyncio.sleep(0.02)
