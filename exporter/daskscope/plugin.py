"""The scheduler plugin: forwards Dask's hooks to the session.

Errors are counted and not passed on. No hook waits on the event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler

from daskscope.config import Settings
from daskscope.containment import Contained, contain
from daskscope.observe.cluster.users import Registrant
from daskscope.otlp.environment import OTLPEnvironment
from daskscope.session import ObservationSession

logger = logging.getLogger("daskscope")

#: The plugin's name on the scheduler, which has at most one.
NAME = "daskscope"

#: The plugin that observes each scheduler, or was the last to do so.
_latest: WeakKeyDictionary[Scheduler, ref[Plugin]] = WeakKeyDictionary()


class Plugin(SchedulerPlugin):
    """Observes one scheduler, with the ``settings`` of the client that registered first.

    ``registered`` contains the clients that have registered, with their settings: see
    :mod:`daskscope.admission`. ``failed`` is why it could not start, or None.
    """

    name = NAME
    idempotent = True

    def __init__(self, settings: Settings, registrant: Registrant) -> None:
        self.settings = settings
        self.registrant = registrant
        self.registered: dict[str, tuple[Registrant, Settings]] = {}
        self.drops: Counter[str] = Counter()
        self.failed: str | None = None
        #: The session that observes, from the plugin's start to its end.
        self.session: ObservationSession | None = None
        # Dask would log an exception of a hook, with its traceback, at every call.
        self._contained = Contained(self.drops)
        self._started = False

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to observe. Without await, so that two concurrent registrations do not collide."""
        if self._started:
            return
        self._started = True
        problem = OTLPEnvironment(self.settings).problem()
        if problem is not None:
            logger.warning("daskscope: %s, so this cluster is not recorded.", problem)
            self.failed = problem
            return
        before = _latest[scheduler]() if scheduler in _latest else None
        if before is not None and scheduler.plugins.get(NAME) is not before:
            # It was removed, and has not noticed yet. Hooks are removed in reverse order.
            with self._contained:
                before.leave()
        _latest[scheduler] = ref(self)
        try:
            self.session = ObservationSession(
                scheduler,
                self.settings,
                self.drops,
                registrant=self.registrant,
                is_installed=lambda: scheduler.plugins.get(NAME) is self,
                close=self.close,
            )
            # Directly, without a method in between: it is called some six times per task.
            self.transition = self.session.observer.transitions.note  # type: ignore[method-assign]
        except Exception as error:
            contain(error)
            logger.warning("daskscope cannot start (%r); the cluster runs without it", error)
            self.failed = f"it cannot start on the scheduler ({error!r})"

    async def close(self) -> None:
        """Report to the service that the scheduler has closed, and end within the deadline."""
        session = self._end()
        if session is not None:
            with self._contained:
                await session.close()

    def leave(self) -> None:
        """Stop in favour of another plugin, without reporting that the scheduler has closed."""
        session = self._end()
        if session is not None:
            session.leave()

    def _end(self) -> ObservationSession | None:
        session, self.session = self.session, None
        if session is not None:
            del self.transition
        return session

    # --- hooks: on the scheduler's event loop -----------------------------------------------------

    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: Sequence[Key],
        **kwargs: Any,
    ) -> None:
        """Forward a graph that has arrived."""
        session = self.session
        if session is None:
            return
        # try instead of _contained, because loops send thousands of graphs.
        try:
            # First, because it may send a snapshot at once, which must not contain a graph whose
            # tasks have not made a transition.
            session.shutdowns.work_arrived()
        except Exception as error:
            contain(error, self.drops)
        try:
            if session.observer.update_graph(client, tasks):
                session.tell_more_soon()
        except Exception as error:
            contain(error, self.drops)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Forward a worker that has joined."""
        if self.session is not None:
            with self._contained:
                self.session.observer.add_worker(worker)

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """Forward a worker that has left."""
        if self.session is not None:
            with self._contained:
                self.session.observer.remove_worker(worker)

    def restart(self, scheduler: Scheduler) -> None:
        """Forward that the scheduler has dropped all tasks."""
        if self.session is not None:
            with self._contained:
                self.session.observer.tasks_dropped()

    def log_event(self, topic: str, msg: Any) -> None:
        """Forward an entry of Dask's event log."""
        if self.session is None:
            return
        try:  # not _contained: Dask logs each graph twice
            self.session.observer.log_event(topic, msg)
        except Exception as error:
            contain(error, self.drops)
