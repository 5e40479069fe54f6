"""Carries out requested shutdowns, and requests them when the cluster is idle for too long."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dask.utils import format_time
from distributed.core import Status
from distributed.metrics import time
from distributed.scheduler import Scheduler

from daskscope import protocol
from daskscope.config import Settings
from daskscope.containment import Contained, contain
from daskscope.observe.cluster.idle import Idle
from daskscope.one_line import one_line
from daskscope.shutdown import closing
from daskscope.timer import Timer

logger = logging.getLogger("daskscope")

#: Seconds between two looks at whether the cluster is idle.
TICK = 0.5
#: Seconds after which closing is reported as failed. daskscope keeps waiting for it.
CLOSING_PATIENCE = 60.0
#: Seconds that a cluster has to be without short work, so that all signs of work can be checked.
SETTLING_PATIENCE = 120.0
#: Extra beats while a shutdown is announced, and the least seconds between two. Their answers may
#: call it off, and the usual interval may be longer than the grace.
BEATS_ANNOUNCED, BEAT_PAUSE = 10, 1.0
#: Shutdowns under way at once, and executed commands that are remembered.
MAX_UNDER_WAY = 10
MAX_KNOWN = 1_000

#: The name in ``requested_by`` when the settings ask for a shutdown.
SETTINGS = "idle.timeout"


@dataclass(slots=True)
class _Asked:
    """A shutdown under way.

    ``closes_at`` and ``calls``, the number of calls begun, are None until the shutdown is
    announced. ``closing`` describes how the cluster is being closed.
    """

    id: str
    requested_by: str
    reason: str
    grace: float
    even_if_busy: bool
    closes_at: float | None = None
    calls: int | None = None
    closing: str = ""


class Shutdowns:
    """Requests a shutdown when the cluster was idle for too long, and carries out all requests.

    Runs on the scheduler's event loop. ``report`` takes a beat at once. Every shutdown is announced
    first. Work that arrives before closing begins calls it off, unless ``even_if_busy`` is set.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        idle: Idle,
        drops: Counter[str],
        report: Callable[[], object],
    ) -> None:
        self._scheduler = scheduler
        self._settings = settings
        self._idle = idle
        self._contained = Contained(drops)
        self._report = report
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._under_way: dict[str, _Asked] = {}
        self._carriers: dict[str, asyncio.Task[None]] = {}
        # The task that closes the cluster. There is one at a time, also for several requests.
        self._closes: asyncio.Task[str | None] | None = None
        self._came_late = False
        self._rows: dict[str, protocol.Shutdown] = {}
        self._tasks_held = 0
        # When the last extra beat was taken for an announced shutdown.
        self._reported_at = 0.0
        self._ended = False
        self._timer = Timer(self._look, TICK, drops)

    def take(self) -> tuple[protocol.Shutdown, ...]:
        """Return the shutdowns whose state has changed since the last call."""
        rows = tuple(self._rows.values())
        self._rows.clear()
        return rows

    def command(self, commands: Iterable[protocol.Command]) -> None:
        """Execute commands of the service, each once, however often it arrives."""
        for command in commands:
            if self._ended or (command.action, command.id) in self._known:
                continue
            self._known[command.action, command.id] = None
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            with self._contained:
                if command.action == "call off":
                    self._called_off_by(command)
                else:
                    self._asked_by(command)

    def work_arrived(self) -> None:
        """Call off announced shutdowns, because a graph has arrived."""
        if not self._under_way:
            return
        for asked in list(self._under_way.values()):
            self._work_arrived(asked)
        if self._closes is not None and not self._came_late:
            self._came_late = True
            logger.warning(
                "daskscope: work arrived while this cluster was closing; the work may be lost."
            )

    def end(self) -> None:
        """Stop: the scheduler closes, or daskscope was removed from it."""
        self._ended = True
        self._timer.stop()
        closes = self._scheduler.status in (Status.closing, Status.closed)
        for asked in self._under_way.values():
            asked.closes_at = None
            if asked.closing:
                if closes:
                    late = (
                        " Work that arrived while it closed may be lost." if self._came_late else ""
                    )
                    self._note(asked, "closing", f"{asked.closing} It has closed.{late}")
                continue
            if closes:
                self._note(
                    asked, "closing", "Something else closed the cluster before the announced time."
                )
            else:
                self._note(asked, "called off", "daskscope was removed from the scheduler.")
            self._carriers[asked.id].cancel()

    def _work_arrived(self, asked: _Asked) -> None:
        if asked.closes_at is not None and not (asked.even_if_busy or asked.closing):
            self._call_off(asked, "Work has arrived.")

    # --- what asks for it -------------------------------------------------------------------------

    def _look(self) -> None:
        self._idle.look()
        held = len(self._scheduler.tasks)
        for asked in list(self._under_way.values()):
            if held > self._tasks_held or self._at_work(asked) is not None:
                self._work_arrived(asked)
        self._tasks_held = held
        idle, timeout = self._idle.seconds(), self._settings.idle_timeout
        if timeout is None or idle is None or idle < timeout or self._under_way:
            return
        self._begin(
            _Asked(
                id=f"idle-{int(time() * 1000):x}",
                requested_by=SETTINGS,
                reason=f"It was idle for {format_time(idle)}.",
                grace=self._settings.idle_grace,
                even_if_busy=False,
            )
        )

    def _asked_by(self, command: protocol.Command) -> None:
        asked = _Asked(
            id=command.id,
            requested_by=one_line(command.requested_by),
            reason=_sentence(command.reason),
            grace=self._settings.idle_grace if command.grace is None else command.grace,
            even_if_busy=command.even_if_busy,
        )
        if ("call off", command.id) in self._known:
            self._call_off(asked, "It was called off before it began.")
        elif len(self._under_way) >= MAX_UNDER_WAY:
            self._call_off(asked, "Too many shutdowns are under way.")
        else:
            self._begin(asked)

    def _called_off_by(self, command: protocol.Command) -> None:
        asked = self._under_way.get(command.id)
        who = one_line(command.requested_by)
        why = f"{who} called it off. {one_line(command.reason)}".strip()
        if asked is None:
            unknown = _Asked(command.id, who, "", 0.0, even_if_busy=False)
            self._call_off(unknown, f"{why} No such shutdown was under way.")
        elif asked.closing:
            self._note(asked, "closing", f"{why} The cluster was already closing.")
            self._report()
        else:
            self._call_off(asked, why)

    # --- what becomes of it -----------------------------------------------------------------------

    def _begin(self, asked: _Asked) -> None:
        self._under_way[asked.id] = asked
        self._carriers[asked.id] = asyncio.get_running_loop().create_task(self._carry_out(asked))

    async def _carry_out(self, asked: _Asked) -> None:
        try:
            # If the cluster is already closing, there is nothing to announce, and no work stops it.
            work = await self._wait_for_grace(asked) if self._closes is None else None
            if work is None:
                work = await self._close(asked)
            if work is not None and asked.id in self._under_way:
                self._call_off(asked, f"It is at work: {work}.")
        except Exception as error:
            contain(error)
            self._fail(asked, f"It could not be closed: {type(error).__name__}: {error}")
        finally:
            self._carriers.pop(asked.id, None)

    async def _wait_for_grace(self, asked: _Asked) -> str | None:
        """Announce a shutdown and wait for its grace. Return the work that stops it, or None."""
        work = await self._work(asked)
        if work is None:
            self._announce(asked)
            ends = self._idle.watched + asked.grace
            while self._idle.watched < ends:
                await asyncio.sleep(min(TICK, asked.grace))
                self._idle.look()
                self._ask_whether_called_off(asked, ends)
            work = await self._work(asked)
        return work

    def _ask_whether_called_off(self, asked: _Asked, ends: float) -> None:
        """Take extra beats regularly, and one shortly before the grace ``ends``."""
        now = self._idle.watched
        pause = max(asked.grace / BEATS_ANNOUNCED, BEAT_PAUSE)
        due = min(self._reported_at + pause, ends - BEAT_PAUSE)
        if now >= due and now - self._reported_at >= BEAT_PAUSE:
            self._reported_at = now
            self._report()

    async def _work(self, asked: _Asked) -> str | None:
        if asked.even_if_busy:
            return None
        # It takes some heartbeats to see whether the workers' processes are busy.
        ends = self._idle.watched + SETTLING_PATIENCE
        while (work := self._at_work(asked)) is None and not self._idle.settled():
            if self._idle.watched >= ends:
                return "short calls or tasks come and go"
            await asyncio.sleep(TICK)
            self._idle.look()
        if work is not None:
            return work
        if await closing.actors_at_work(self._scheduler):
            return "an actor is running"
        return self._at_work(asked)

    def _at_work(self, asked: _Asked) -> str | None:
        """Describe the work that stops the shutdown; return None if there is none."""
        if asked.even_if_busy:
            return None
        if asked.calls is not None and self._idle.calls_begun() != asked.calls:
            return "a client has called the scheduler"
        return self._idle.work()

    def _announce(self, asked: _Asked) -> None:
        asked.closes_at = time() + asked.grace
        self._reported_at = self._idle.watched
        asked.calls = self._idle.calls_begun()
        unless = "" if asked.even_if_busy else "Work that arrives calls it off."
        why = f"{asked.reason} {unless}".strip()
        self._note(asked, "announced", why)
        logger.warning(
            "daskscope: this cluster closes %s, requested by %s. %s",
            f"in {format_time(asked.grace)}" if asked.grace else "now",
            asked.requested_by,
            why,
        )
        self._report()

    def _call_off(self, asked: _Asked, why: str) -> None:
        self._under_way.pop(asked.id, None)
        carrier = self._carriers.get(asked.id)
        if carrier is not None and carrier is not asyncio.current_task():
            carrier.cancel()
        # A cluster whose shutdown was called off is wanted, so its idle time starts again.
        self._idle.restart()
        announced = asked.closes_at is not None or bool(asked.closing)
        if asked.requested_by == SETTINGS and not announced:
            return  # it was never announced
        if announced:
            logger.warning("daskscope: this cluster stays up. %s", why)
        asked.closes_at = None
        self._note(asked, "called off", why)
        self._report()

    async def _close(self, asked: _Asked) -> str | None:
        """Close the cluster. Return the work because of which it stays up, else None."""
        how = closing.how(self._scheduler) if self._closes is None else "It was already closing."
        asked.closing = f"{asked.reason} {how}".strip()
        asked.closes_at = None
        self._note(asked, "closing", asked.closing)
        logger.warning("daskscope: closing this cluster. %s", asked.reason)
        self._report()
        if self._closes is None:
            self._closes = asyncio.get_running_loop().create_task(self._close_once(asked))
        closes = self._closes
        await asyncio.wait({closes}, timeout=CLOSING_PATIENCE)
        if not (closes.done() or self._ended):
            # Closing goes on, and the shutdown stays under way: :meth:`end` reports it if it ends.
            waited = format_time(CLOSING_PATIENCE)
            self._tell_failure(
                asked, f"It has not closed within {waited}; daskscope keeps waiting."
            )
        return await closes

    async def _close_once(self, asked: _Asked) -> str | None:
        def at_work() -> str | None:
            others = self._under_way.values()
            if any(other.closing and other.even_if_busy for other in others):
                return None
            return self._at_work(asked)

        self._came_late = False
        why = f"requested by {asked.requested_by}. {asked.reason}".strip()
        try:
            return await closing.close(self._scheduler, why, at_work)
        finally:
            self._closes = None

    def _fail(self, asked: _Asked, why: str) -> None:
        self._under_way.pop(asked.id, None)
        self._idle.restart()
        asked.closes_at = None
        self._tell_failure(asked, why)

    def _tell_failure(self, asked: _Asked, why: str) -> None:
        logger.warning("daskscope: this cluster was asked to close, but is still up. %s", why)
        if not self._ended:
            self._note(asked, "failed", why)
            self._report()

    def _note(self, asked: _Asked, state: protocol.ShutdownState, detail: str) -> None:
        row = protocol.Shutdown(
            id=asked.id,
            requested_by=asked.requested_by,
            state=state,
            at=time(),
            closes_at=asked.closes_at,
            detail=detail.strip(),
        )
        self._rows[asked.id] = row
        with self._contained:
            self._scheduler.log_event(
                closing.TOPIC,
                {
                    "id": row.id,
                    "state": row.state,
                    "requested_by": row.requested_by,
                    "closes_at": row.closes_at,
                    "detail": row.detail,
                },
            )


def _sentence(words: str) -> str:
    """Return a user's text as a sentence, so that more can follow it."""
    words = one_line(words)
    return words if not words or words[-1] in ".!?" else f"{words}."
