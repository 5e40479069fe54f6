"""The scheduler plugin: forwards Dask's hooks to the observer.

Whatever goes wrong in here is counted and stays here. Nothing waits on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypedDict

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler

from daskscope.config import Settings, by_name, of_client
from daskscope.containment import Contained, contain
from daskscope.errors import ConfigurationError
from daskscope.explanation.report import Explanation
from daskscope.observe.cluster.environment import read_once
from daskscope.observe.cluster.opt_outs import refused_by
from daskscope.session import ObservationSession, until
from daskscope.version import __version__

logger = logging.getLogger("daskscope")

#: The plugin's name on the scheduler: there is one at most.
NAME = "daskscope"

#: What to do on a scheduler that has no plugin.
NOT_REGISTERED = "Call daskscope.register(), or start the scheduler with --preload daskscope"

#: Settings that say to whom beats go: with wrong ones nobody takes any.
_ADDRESSEE = ("endpoint", "token", "workspace")

#: Clients that may have registered where a plugin is replaced; with more it stays.
MAX_CARRIED_OVER = 100

#: Seconds that a client which registers waits to hear whether the service takes its beats.
ANSWER_DEADLINE = 2.0


@dataclass(frozen=True, slots=True)
class Registrant:
    """Who registered: the user and host of the client, or of the scheduler with a preload."""

    user: str
    host: str
    client: str | None = None


class Asked(TypedDict):
    """What a client asks a scheduler for: plain values by name, as each may have another version
    of daskscope. ``settings`` are as of :func:`daskscope.config.by_name`.
    """

    version: str
    settings: dict[str, Any]
    registrant: dict[str, Any]


class Installed(TypedDict, total=False):
    """What a client gets to know, plain values by name. ``refused`` says what is wrong with what it
    asked for, and ``problem`` why nothing is delivered; where neither plugin nor ``url`` is there,
    one of them is all.

    ``registrant`` is whose settings are in force; ``differing`` names those that the client has
    otherwise. What it refuses is not among them, for that is heeded.
    """

    refused: str
    cluster_id: str
    url: str
    problem: str | None
    registrant: dict[str, Any]
    differing: list[str]


def asked(settings: Settings, registrant: Registrant) -> Asked:
    """Return what a client sends to :func:`install`."""
    return Asked(version=__version__, settings=by_name(settings), registrant=asdict(registrant))


class Plugin(SchedulerPlugin):
    """Observes one scheduler for whoever registered first."""

    name = NAME
    idempotent = True

    def __init__(self, settings: Settings, registrant: Registrant) -> None:
        self.settings = settings
        self.registrant = registrant
        self.drops: Counter[str] = Counter()
        # Dask would log what a hook raises, with its traceback, at every call.
        self._contained = Contained(self.drops)
        #: Why it could not start, or None.
        self.failed: str | None = None
        self._started = False
        self._running: ObservationSession | None = None
        # Who has registered, by client, and with which settings.
        self._registered: dict[str, tuple[Registrant, Settings]] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to observe. Never waits, so that of two that register at once one is first."""
        if self._started:
            return
        self._started = True
        try:
            self._running = ObservationSession(
                scheduler,
                self.settings,
                self.drops,
                user=self.registrant.user,
                preloaded=self.registrant.client is None,
                is_installed=lambda: scheduler.plugins.get(NAME) is self,
                close=self.close,
            )
            # In place of the base class's, which does nothing: some six calls per task.
            self.transition = self._running.observer.transitions.note  # type: ignore[method-assign]
        except Exception as error:
            contain(error)
            logger.warning("daskscope cannot start (%r); the cluster runs without it", error)
            self.failed = f"it cannot start on the scheduler ({error!r})"

    async def close(self) -> None:
        """Tell the service that the scheduler has closed, and end within the deadline."""
        if self._running is not None:
            running, self._running = self._running, None
            del self.transition
            with self._contained:
                await running.close()

    def is_replaced_by(self, registrant: Registrant, settings: Settings) -> bool:
        """Return whether the ``settings`` of that client had better take the place of these.

        So it is where nothing of the cluster was taken by a service, and who registered names
        another: the first may have been a slip. Otherwise a new plugin would lose what this one has
        counted so far.
        """
        first = self.registrant
        return (
            self._running is not None
            and self._running.sender.url is None
            and not self._running.sender.is_well()
            and first.client is not None
            and settings.token is not None
            and (first.user, first.host) == (registrant.user, registrant.host)
            and any(getattr(self.settings, name) != getattr(settings, name) for name in _ADDRESSEE)
            and len(self._registered) <= MAX_CARRIED_OVER
        )

    def replaced_by(self, other: Plugin) -> None:
        """End, without a word that the scheduler has closed. ``other`` heeds what is refused."""
        for registrant, settings in self._registered.values():
            other.client_is(registrant, settings)
        if self._running is not None:
            running, self._running = self._running, None
            del self.transition
            running.leave()

    async def first_answer(self) -> None:
        """Wait until the service has answered, or for as long as it is worth."""
        if self._running is not None:
            await until(self._running.sender.first_answer.is_set, ANSWER_DEADLINE)

    def client_is(self, registrant: Registrant, settings: Settings) -> None:
        """Remember whose client that is, and what its own ``settings`` refuse."""
        if self._running is not None and registrant.client is not None:
            self._running.observer.client_is(
                registrant.client, registrant.user, refused_by(settings)
            )
            if len(self._registered) <= MAX_CARRIED_OVER:
                self._registered[registrant.client] = registrant, settings

    def installed(self, settings: Settings, scheduler: Scheduler) -> Installed:
        """Return what a client with ``settings`` gets to know."""
        sender = None if self._running is None else self._running.sender
        in_force = self.settings
        problem: str | None = "it has ended there"
        if self._running is not None:
            in_force = self._running.observer.refusals.in_force(in_force)
            problem = self._running.sender.problem
            if not self._running.sender.first_answer.is_set():
                problem = f"no answer yet from {self.settings.endpoint}; the scheduler keeps trying"
        heeded = refused_by(settings)
        if settings.token is None:
            # It joins who has one, wherever the service is.
            heeded |= {"token", "endpoint"}
        return Installed(
            cluster_id=scheduler.id,
            url=(sender and sender.url) or f"{self.settings.endpoint}/clusters/{scheduler.id}",
            problem=problem,
            registrant=asdict(self.registrant),
            differing=[
                field.name
                for field in fields(Settings)
                if field.name not in heeded
                and getattr(settings, field.name) != getattr(in_force, field.name)
            ],
        )

    async def explain(self) -> Explanation:
        """Return what is sent from this cluster now."""
        if self._running is None:
            return Explanation(problem=self.failed or "it has ended there")
        return await self._running.explain()

    # --- hooks: on the scheduler's event loop -----------------------------------------------------

    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: Sequence[Key],
        **kwargs: Any,
    ) -> None:
        """A graph has arrived."""
        running = self._running
        if running is None:
            return
        # By hand, as loops send thousands of graphs.
        try:
            # It may report at once: not of a graph before its tasks have made a transition.
            running.shutdowns.work_arrived()
        except Exception as error:
            contain(error, self.drops)
        try:
            if running.observer.update_graph(client, tasks):
                running.tell_more_soon()
        except Exception as error:
            contain(error, self.drops)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker has come."""
        if self._running is not None:
            with self._contained:
                self._running.observer.add_worker(worker)

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """A worker has left."""
        if self._running is not None:
            with self._contained:
                self._running.observer.remove_worker(worker)

    def restart(self, scheduler: Scheduler) -> None:
        """All tasks were dropped."""
        if self._running is not None:
            with self._contained:
                self._running.observer.tasks_dropped()

    def log_event(self, topic: str, msg: Any) -> None:
        """Something was written to Dask's event log."""
        if self._running is None:
            return
        try:  # by hand, as Dask writes twice of each graph
            self._running.observer.log_event(topic, msg)
        except Exception as error:
            contain(error, self.drops)


async def install(asked: Asked, dask_scheduler: Scheduler) -> Installed:
    """Put the plugin into the scheduler unless it is there; runs on the scheduler.

    Raises nothing: Dask would log what was asked, and the token with it.
    """
    try:
        settings = of_client(asked["settings"], asked["version"])
        return await _install(settings, Registrant(**asked["registrant"]), dask_scheduler)
    except ConfigurationError as error:
        return Installed(refused=str(error))
    except Exception as error:
        contain(error)
        return Installed(problem=f"daskscope {__version__} failed on the scheduler ({error!r})")


async def _install(settings: Settings, registrant: Registrant, scheduler: Scheduler) -> Installed:
    # They read files and remember what they found: off the loop.
    await asyncio.to_thread(read_once)
    # Nothing waits between the look and the act, so that of two clients one is first.
    plugin = scheduler.plugins.get(NAME)
    assert plugin is None or isinstance(plugin, Plugin)
    if plugin is not None:
        # Of a preload Dask has it started after all preloads, and takes clients before.
        await plugin.start(scheduler)
        if plugin.failed is not None:
            # It must not keep others out.
            scheduler.remove_plugin(NAME)
            plugin = None
    if plugin is None and settings.token is None:
        return Installed(problem="no token")
    if plugin is None or plugin.is_replaced_by(registrant, settings):
        before, plugin = plugin, Plugin(settings, registrant)
        await plugin.start(scheduler)
        if plugin.failed is not None:
            return Installed(problem=plugin.failed)
        # Only now: what the new one has put into the scheduler, the other must not take out.
        if before is not None:
            before.replaced_by(plugin)
            scheduler.remove_plugin(NAME)
        scheduler.add_plugin(plugin, name=NAME)
    plugin.client_is(registrant, settings)
    await plugin.first_answer()
    return plugin.installed(settings, scheduler)


async def explain_here(dask_scheduler: Scheduler) -> Explanation:
    """Return what is sent from this cluster now; runs on the scheduler."""
    plugin = dask_scheduler.plugins.get(NAME)
    if plugin is None:
        return Explanation(problem=f"nobody has registered it. {NOT_REGISTERED}")
    assert isinstance(plugin, Plugin)
    return await plugin.explain()
