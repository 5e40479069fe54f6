"""Runs a plugin's observation: the observer on the event loop, and the threads behind it.

A beat is one snapshot. The observer takes it in steps, so that the event loop handles other work
between them. A thread filters the snapshot, and passes it to the threads that send it to the
service and over OTLP.

Over 400 lines: start, beats and end of the same parts are in one place, in that order.
"""

from __future__ import annotations

import asyncio
import atexit
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import Any

from distributed.metrics import time as wall_clock
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.background import Background
from daskscope.config import Settings
from daskscope.containment import Contained, guarded
from daskscope.delivery.sender import Sender
from daskscope.explanation.dry_run import OwnNumbers
from daskscope.explanation.latest_rows import LatestRows
from daskscope.explanation.report import Explanation, explain
from daskscope.jupyter_kernel import before_kernel_ends
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.messages.logs import watch_logs
from daskscope.observe.observer import Observer
from daskscope.observe.snapshot import Observed, weight
from daskscope.observe.tasks.of_clients import OfClients
from daskscope.observe.workers.cpu import watch_processes
from daskscope.observe.workers.profile import LEAVING_DEADLINE as PROFILE_DEADLINE
from daskscope.observe.workers.sample_weights import Window
from daskscope.observe.workers.shutdown_hook import ShutdownHook
from daskscope.otlp.emitter import Emitter
from daskscope.otlp.environment import OTLPEnvironment, disabled_by_environment
from daskscope.otlp.limits import warn_of_invalid_limits
from daskscope.otlp.traces import sampling
from daskscope.privacy import Cleared, Privacy
from daskscope.propagate import activate_in_tasks
from daskscope.shutdown.shutdowns import Shutdowns
from daskscope.size import size_of
from daskscope.timer import Timer, until

#: Snapshots that may wait to be filtered. With more, the next snapshot is postponed.
MAX_BEHIND = 20
#: Seconds that closing may take, even if the service or a disk hangs.
CLOSE_DEADLINE = 3.0
#: Seconds after which, during closing, unsent data for the service goes into the spool, and data
#: for the collector is given up.
SPOOL_AFTER = 2.0
#: Seconds to count data that was given up, and again to report the count.
LAST_PATIENCE = 0.25
#: Seconds for which a kernel that ends waits for the session to close; it has two and a half in
#: all.
GOODBYE_DEADLINE = 1.0
#: Seconds between two snapshots if one cannot contain all changes.
PAUSE = 0.04
#: Seconds between two checks for requests that take too long, and for data to send again.
TICK = 1.0
#: Seconds that ``explain()`` waits for its snapshot.
EXPLAIN_DEADLINE = 5.0


class ObservationSession:
    """Observes ``scheduler`` until :meth:`close`, or until ``is_installed`` returns False.

    Create it on the event loop; this never waits. ``close`` closes the plugin, which closes the
    session.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        drops: Counter[str],
        *,
        registrant: Registrant,
        is_installed: Callable[[], bool],
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        with ExitStack() as undo:  # ends the parts that have started, if a later one cannot
            destination = OTLPEnvironment(settings)
            settings = destination.in_force(settings)
            self._scheduler = scheduler
            self._settings = settings
            self._contained = Contained(drops)
            self._is_installed = is_installed
            began_at = wall_clock()
            self.observer = Observer(
                scheduler,
                settings,
                drops,
                registrant=registrant,
                sampled=guarded(drops, None, sampling),
                many_wait=lambda: self._count.put(None),
                on_tick=self._end_if_removed,
            )
            self._unwatch: list[Callable[[], None]] = [self.observer.stop]
            undo.callback(self._stop_watching)
            self._count: Background[None] = Background(
                "daskscope-count",
                lambda _: self.observer.transitions.count_waiting(),
                lambda: None,
                drops,
            )
            undo.callback(self._count.close)
            self._loop = asyncio.get_running_loop()
            self.sender = Sender(settings, drops, self._obey)
            undo.callback(self.sender.spool_worker.close)
            self._privacy = Privacy(settings, self.observer.refusals, drops)
            self._recent = LatestRows()
            self._of_clients = OfClients(self.observer.refusals.client_of)
            # Separate threads, because the service and the collector may each hang.
            self._report: Background[None] = Background(
                "daskscope-report", self.sender.send, self.sender.close, drops
            )
            undo.callback(self._report.close)
            self._emit: Background[Cleared] | None = None
            self._emitter: Emitter | None = None
            if settings.otlp_enabled and not disabled_by_environment():
                warn_of_invalid_limits()
                self._emitter = Emitter(
                    settings,
                    destination,
                    lambda: self.sender.failures,
                    self._waiting,
                    self.sender.is_well,
                    drops,
                    began_at,
                )
                self._emit = Background(
                    "daskscope-emit", self._emitter.emit, self._emitter.shutdown, drops
                )
                undo.callback(self._emit.close)
            self._clear = Background("daskscope-clear", self._hand_on, self._close_others, drops)
            undo.callback(self._clear.close)
            self._unwatch.append(watch_processes(scheduler, drops))
            if settings.logs_transmit:
                self._unwatch.append(watch_logs(scheduler, self.observer.logs, settings, drops))
            if settings.traces_transmit:
                hand_on = self.observer.hand_on_contexts
                self._unwatch.append(activate_in_tasks(scheduler, hand_on, drops))
            self._profile: Background[Window] | None = None
            if self.observer.profiles is not None:
                self._profile = Background(
                    "daskscope-profile", self.observer.profiles.read, lambda: None, drops
                )
                undo.callback(self._profile.close)
                self._unwatch.append(ShutdownHook(scheduler, self._read_leaving, drops).stop)
                self._unwatch.append(self.observer.profiles.stop)
            self._ended = False
            self._timer = Timer(self._beat, settings.interval, drops)
            undo.callback(self._timer.stop)
            # Another timer: beats may be an hour apart, and a hanging request blocks its thread.
            self._ticks = Timer(self._tick, TICK, drops)
            undo.callback(self._ticks.stop)
            # A script may end without closing its cluster, so spool the data at exit.
            atexit.register(self._keep_before_exit)
            undo.callback(atexit.unregister, self._keep_before_exit)
            self._unwatch.append(before_kernel_ends(lambda: self._say_goodbye(close), drops))
            self._more: asyncio.TimerHandle | None = None
            # The current beat, and the last snapshot that was passed on.
            self._steps: Generator[None, None, Observed] | None = None
            self._observed: Observed | None = None
            self.shutdowns = Shutdowns(
                scheduler, settings, self.observer.idle, drops, lambda: self._send_snapshot("beat")
            )
            # If a client registers, its call is in progress, and must not count as work.
            with nullcontext() if registrant.client is None else self.observer.idle.our_call():
                self._send_snapshot("start")
            undo.pop_all()

    async def close(self) -> None:
        """Send the last changes and that the scheduler has closed; end within the deadline."""
        ends = time.monotonic() + CLOSE_DEADLINE
        self._timer.stop()
        with self._contained:
            self.observer.tasks_dropped()
            while self.observer.snapshots.rows_wait() and self._send_rest("beat"):
                await asyncio.sleep(0)
        if self._profile is not None:
            # Include the last part of the workers' profiles if they answer quickly.
            self._read_profile(leaving=list(self._scheduler.workers))
            self._profile.close()
            await until(self._profile.done, PROFILE_DEADLINE)
        self._end("stop")
        await until(self._done, ends - time.monotonic())

    def _say_goodbye(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Usually in another thread than the loop's. A kernel that runs the scheduler in its own
        # thread cannot wait.
        closing = asyncio.run_coroutine_threadsafe(close(), self._loop)
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not self._loop:
            with suppress(TimeoutError):
                closing.result(GOODBYE_DEADLINE)

    def leave(self) -> None:
        """Send the last changes, and end in the background: another session observes now."""
        self._end("beat")

    async def explain(self) -> Explanation:
        """Return the data that this cluster sends now."""
        with self.observer.idle.our_call():
            return await self._explain()

    async def _explain(self) -> Explanation:
        # Take an extra beat, which is also sent like any other, so that no row is lost. In steps.
        while self._steps is not None:
            await asyncio.sleep(0)
        steps = self._steps = self.observer.snapshots.steps("beat")
        self._go_on()
        while self._steps is steps:
            await asyncio.sleep(0)
        if self.observer.snapshots.rows_wait():
            self._put(self.observer.snapshots.rest("beat"))
        observed = self._observed
        if observed is None:
            return Explanation(problem="no snapshot of this cluster could be taken")
        await until(lambda: self._recent.has(observed), EXPLAIN_DEADLINE)
        failures = {} if self._emitter is None else self._emitter.send_failures()
        return await asyncio.to_thread(
            explain,
            self._settings,
            self._recent.snapshot() or observed,
            OwnNumbers(failures, self._waiting()),
            self.observer.refusals,
        )

    def latest_computations(self, client: str) -> list[protocol.Computation]:
        """Return the computations of a ``client`` that changed since the last call for it.

        The first call returns some of those before it.
        """
        return self._of_clients.take(client, self.observer.latest_computations())

    def tell_more_soon(self) -> None:
        """Send a part of the changes before the next beat, without blocking the loop."""
        if self._more is None:
            send = self._contained.around(self._send_more, otherwise=None)
            self._more = self._loop.call_later(PAUSE, send)

    def _send_more(self) -> None:
        self._more = None
        if self._send_rest("beat"):
            self.tell_more_soon()

    def _end_if_removed(self) -> None:
        # Dask does not inform a plugin that it was removed or replaced. While it closes, the timer
        # is stopped.
        if self._timer.is_running() and not self._is_installed():
            self._end("beat")

    def _beat(self) -> None:
        self._end_if_removed()
        if self._ended:
            return
        self._timer.interval = max(self._settings.interval, self.sender.interval_wanted)
        if self._is_behind():
            self.tell_more_soon()
            return
        self._finish_beat()
        self._steps = self.observer.snapshots.steps("beat")
        self._go_on()

    def _go_on(self) -> None:
        """Take the next step of the beat, and schedule the one after it on the event loop."""
        self._step()
        if self._steps is not None:
            self._loop.call_soon(self._go_on)

    def _finish_beat(self) -> None:
        """Take the remaining steps of a beat at once: only one snapshot is taken at a time."""
        while self._steps is not None:
            self._step()

    def _step(self) -> None:
        steps = self._steps
        with self._contained:
            self._take_step()
            return
        # Do not continue a snapshot that has failed.
        if self._steps is steps:
            self._steps = None

    def _take_step(self) -> None:
        if self._steps is None:
            return  # another snapshot has finished the beat
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = None
            self._put(end.value)
            if self.observer.snapshots.rows_wait():
                self.tell_more_soon()
            self._read_profile()

    def _read_profile(self, *, leaving: Collection[str] | None = None) -> Window | None:
        with self._contained:
            window = self.observer.profile_window(leaving=leaving)
            if window is not None and self._profile is not None:
                self._profile.put(window)
            return window
        return None

    async def _read_leaving(self, workers: Collection[str]) -> None:
        """Read the last part of the profile of ``workers``, which is lost when they leave."""
        window = self._read_profile(leaving=workers)
        if window is not None:
            await until(window.was_read.is_set, PROFILE_DEADLINE)

    def _send_snapshot(self, phase: protocol.Phase) -> bool:
        """Take a snapshot and pass it on. Return whether there is more to send."""
        self._finish_beat()
        return self._hand_over(self.observer.snapshots.whole, phase)

    def _send_rest(self, phase: protocol.Phase) -> bool:
        """Pass on rows that the last snapshot left out. Return whether there is more to send."""
        return self._hand_over(self.observer.snapshots.rest, phase)

    def _hand_over(self, take: Callable[[protocol.Phase], Observed], phase: protocol.Phase) -> bool:
        with self._contained:
            if self._is_behind():
                return True
            self._put(take(phase))
            return self.observer.snapshots.rows_wait()
        return False

    def _keep_before_exit(self) -> None:
        self.sender.spool_worker.keep_before_exit(SPOOL_AFTER)

    def _is_behind(self) -> bool:
        # Rows that are not taken wait in the observer, which is bounded, too.
        return self._timer.is_running() and self._clear.waiting() >= MAX_BEHIND

    def _put(self, observed: Observed) -> None:
        self._observed = replace(observed, shutdowns=self.shutdowns.take())
        self._of_clients.sent(observed.computations)
        self._clear.put(self._observed, weight(self._observed))

    def _end(self, phase: protocol.Phase) -> None:
        if self._ended:
            return  # a beat has already found that the plugin was removed
        self._ended = True
        self._timer.stop()
        self._ticks.stop()
        atexit.unregister(self._keep_before_exit)
        self._stop_watching()
        if self._profile is not None:
            self._profile.close()
        with self._contained:
            self.shutdowns.end()
        more = self._send_snapshot(phase)
        while more:
            more = self._send_rest(phase)
        if self._more is not None:
            self._more.cancel()
        self._clear.close()
        self._count.close()

    def _stop_watching(self) -> None:
        for unwatch in self._unwatch:
            with self._contained:
                unwatch()

    def _obey(self, commands: tuple[protocol.Command, ...]) -> None:
        # This runs in the sender's thread, but only the loop's thread may use the scheduler.
        with suppress(RuntimeError):  # its loop has ended
            obey = self._contained.around(self.shutdowns.command, otherwise=None)
            self._loop.call_soon_threadsafe(obey, commands)

    def _hand_on(self, observed: Observed) -> None:
        with self._contained:
            self._recent.add(observed)
        cleared = self._privacy.clear(observed)
        with self._contained:
            self.sender.add(cleared)
            self._report.put(None)
        if self._emit is not None:
            self._emit.put(cleared, size_of(cleared))

    def _tick(self) -> None:
        with self._contained:
            self.sender.end_overdue()
            if self.sender.is_due():
                self._report.put(None)
        if self._emitter is not None:
            self._emitter.end_overdue()

    def _waiting(self) -> dict[str, int]:
        """Return the length of each queue, in snapshots, except for ``rows``."""
        return {
            "clear": self._clear.waiting(),
            "report": self._report.waiting(),
            "emit": 0 if self._emit is None else self._emit.waiting(),
            "rows": self.sender.waiting(),
        }

    def _close_others(self) -> None:
        # The last heartbeat is sent meanwhile, without waiting for the collector.
        spool_at = time.monotonic() + SPOOL_AFTER
        if self._emit is not None and self._emitter is not None:
            self._emitter.close()
            self._emit.close()
            self._emit.join(SPOOL_AFTER)
            if not self._emit.done():
                if self.sender.waiting():
                    self.sender.spool_worker.keep()
                self._emitter.give_up()
                self._emit.join(LAST_PATIENCE)
            if self.sender.tell_drops():
                self._report.put(None)
                spool_at = max(spool_at, time.monotonic() + LAST_PATIENCE)
        self._report.close()
        self._report.join(max(spool_at - time.monotonic(), 0.0))
        if not self._report.done():
            # The current request hangs.
            self.sender.spool_worker.keep()
            self.sender.give_up()
        self.sender.spool_worker.close()

    def _done(self) -> bool:
        return (
            self._clear.done()
            and self._report.done()
            and self.sender.spool_worker.done()
            and (self._emit is None or self._emit.done())
        )
