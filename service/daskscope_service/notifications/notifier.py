"""One round of notifications: finds what is due, and sends it to each target.

Every process does rounds. What was sent to whom is in the database: a target's messages are
claimed for a while before they are sent, so that no two processes send the same. If the one that
claimed them is killed, another one sends them later; rather than never, perhaps a second time.

A target may take all the time that there is for a message. So messages are sent by other threads
than the one that does the rounds, each for one workspace at a time and for no longer than such a
target takes; and targets that failed have threads of their own. So a workspace waits neither for
another's targets nor, but once, for those of its own that fail.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Engine, Row, delete, func, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import notice, workspace
from daskscope_service.db.schema import notification_target as table
from daskscope_service.notifications.due_notices import find
from daskscope_service.notifications.sending import SECONDS, NotSent, Sender
from daskscope_service.notifications.wording import MOST_LINES, message
from daskscope_service.periodic import in_each

#: Seconds that what was found rests first: what comes together is sent together, and what another
#: process commits a moment later is not passed over.
REST = 3.0
#: Seconds between two messages to one target; what happens meanwhile is in the next one.
PAUSE = 300.0
#: Seconds until a message that was not taken is tried again: at least, and at most. Between these,
#: this part of how long it has waited already.
PAUSE_AFTER_FAILURE = 60.0
LONGEST_PAUSE = 3600.0
PAUSE_PART = 0.25
#: Seconds that a process has to send what it claimed: several times what the slowest service takes.
CLAIMED = 120.0
#: Seconds for which it is kept what was found: a budget is passed once in a month.
KEPT = 40 * 86400.0

#: Notices that are forgotten in one transaction.
_TOGETHER = 500

#: Workspaces that are sent something at the same time: by targets that failed, and by others.
_AT_ONCE = 4

logger = logging.getLogger(__name__)


class Notifier:
    """Does rounds for all workspaces that have targets.

    ``url``: the service's address, for links. ``up_since`` is when the service was started: after a
    pause of it, all clusters seem silent.
    """

    def __init__(
        self, engine: Engine, sender: Sender, *, url: str, silent_after: float, up_since: float
    ) -> None:
        self._engine = engine
        self._sender = sender
        self._url = url
        self._silent_after = silent_after
        self._up_since = up_since
        self._turns = _Turns("daskscope-notify"), _Turns("daskscope-notify-again")

    def close(self) -> None:
        """End the threads, and what they are sending."""
        self._sender.close()
        for turns in self._turns:
            turns.close()

    def round(self) -> list[Future[int]]:
        """Do a round; return what becomes of the messages: how many of a workspace were sent."""
        with self._engine.connect() as connection:
            names = connection.execute(select(table.c.workspace).distinct()).scalars().all()
        begun = list[Future[int]]()
        in_each(names, lambda name: self._begin(name, begun))
        return begun

    def _begin(self, name: str, begun: list[Future[int]]) -> int:
        listens = time.time() > self._up_since + 3 * self._silent_after
        with self._engine.connect() as connection:
            query = select_in(name, table, table.c.id, table.c.next_at, table.c.failure)
            targets = connection.execute(query).all()
        find(self._engine, name, self._silent_after, listens=listens)
        due = [one for one in targets if one.next_at <= time.time()]
        for failed, turns in enumerate(self._turns):
            ones = [one for one in due if (one.failure is not None) == bool(failed)]
            if ones:
                turn = turns.take(name, partial(self._tell_all, name, ones))
                begun.extend([turn] if turn is not None else [])
        return 0

    def _tell_all(self, name: str, targets: list[Row[Any]]) -> int:
        sent, until = 0, time.monotonic() + SECONDS
        for one in targets:
            try:
                sent += _notify(self._engine, self._sender, name, one.id, self._url)
            except Exception as error:  # the others get theirs all the same
                logger.error("target %s of %s: %s", one.id, name, getattr(error, "orig", error))
            if time.monotonic() > until:
                break  # what is left has its turn after those of others, at the next round
        return sent


class _Turns:
    """Threads for work of workspaces, of each one at a time."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._taken = set[str]()

    def take(self, name: str, work: Callable[[], int]) -> Future[int] | None:
        """Let a workspace's work wait for a thread; None if some of it waits or is done already."""
        with self._lock:
            if name in self._taken:
                return None
            self._taken.add(name)
        turn = self._pool.submit(work)
        turn.add_done_callback(lambda _: self._give_back(name))
        return turn

    def close(self) -> None:
        """End the threads after what they do; what waits is not done."""
        self._pool.shutdown(cancel_futures=True)

    def _give_back(self, name: str) -> None:
        with self._lock:
            self._taken.discard(name)


def prune(engine: Engine, ended: threading.Event | None = None) -> None:
    """Forget what happened long ago, or what of it can be until ``ended`` is set."""
    with engine.connect() as connection:
        names = connection.execute(select(workspace.c.id)).scalars().all()

    in_each(names, partial(_forget, engine, time.time() - KEPT, ended or threading.Event()))


def _forget(engine: Engine, before: float, ended: threading.Event, name: str) -> int:
    """Forget what a workspace has of before then: some at a time, so that others can write."""
    old = select_in(name, notice, notice.c.id).where(notice.c.found_at < before)
    old = old.order_by(notice.c.found_at).limit(_TOGETHER)
    forgotten = 0
    while True:
        with engine.connect() as connection:
            ids = connection.execute(old).scalars().all()
        if not ids:
            return forgotten
        began = time.monotonic()
        with writing(engine) as connection:
            mine = (notice.c.workspace == name, notice.c.id.in_(ids))
            forgotten += connection.execute(delete(notice).where(*mine)).rowcount
        if ended.wait(time.monotonic() - began):
            return forgotten


def _notify(engine: Engine, sender: Sender, name: str, target_id: str, url: str) -> bool:
    claimed = _claim(engine, name, target_id)
    if claimed is None:
        return False
    target = claimed.target
    title, text = message(claimed.notices, claimed.counts, name, url)
    failure: str | None = None
    try:
        sender.send(target["address"], title, text)
    except NotSent as error:
        failure = str(error)
    now = time.time()
    if failure is None:
        values: dict[str, Any] = {
            "told_until": claimed.found_until,
            "next_at": now + PAUSE,
            "sent_at": now,
            "failed_at": None,
            "failure": None,
        }
    else:
        logger.warning("target %s (%s) of %s: %s", target_id, target["name"], name, failure)
        waits = PAUSE_PART * (now - claimed.notices[0]["found_at"])
        pause = min(max(PAUSE_AFTER_FAILURE, waits), LONGEST_PAUSE)
        values = {"failed_at": now, "failure": failure, "next_at": now + pause}
    with writing(engine) as connection:
        connection.execute(
            update(table)
            .where(
                table.c.workspace == name,
                table.c.id == target_id,
                table.c.next_at == claimed.ends_at,
            )
            .values(values)
        )
    return failure is None


@dataclass(frozen=True, slots=True)
class _Claim:
    """The first ``notices`` that a target is to be sent, and how many there are by kind.

    They were found up to ``found_until``; the claim ends at ``ends_at``.
    """

    target: dict[str, Any]
    notices: list[dict[str, Any]]
    counts: dict[str, int]
    found_until: float
    ends_at: float


def _claim(engine: Engine, name: str, target_id: str) -> _Claim | None:
    """Claim what a target is to be sent.

    None if there is nothing to send, or another process has claimed it.
    """
    now = time.time()
    until = now - REST
    # Read first: who writes keeps all others from it, and there may be millions to count.
    with engine.connect() as connection:
        row = connection.execute(
            select_in(name, table).where(table.c.id == target_id)
        ).mappings().first()  # fmt: skip
        if row is None or row["next_at"] > now:
            return None  # it was removed, or another process was quicker
        due = (
            notice.c.found_at > row["told_until"],
            notice.c.found_at <= until,
            notice.c.kind.in_(row["kinds"]),
        )
        # Only what is shown of them: a heartbeat may bring ten thousand.
        first = select_in(name, notice).where(*due).order_by(notice.c.found_at, notice.c.id)
        notices = [{**one} for one in connection.execute(first.limit(MOST_LINES)).mappings()]
        if not notices:
            return None
        of_kinds = select_in(name, notice, notice.c.kind, func.count(), func.min(notice.c.found_at))
        of_kinds = of_kinds.where(*due).group_by(notice.c.kind)
        counted = sorted(connection.execute(of_kinds).all(), key=lambda one: (one[2], one[0]))
        counts = {kind: int(count) for kind, count, _ in counted}
    ends_at = time.time() + CLAIMED
    # As it was read: else it was changed meanwhile, or another process was quicker.
    same = (table.c[key] == row[key] for key in ("next_at", "told_until", "changed_at"))
    mine = (table.c.workspace == name, table.c.id == target_id, *same)
    with writing(engine) as connection:
        if not connection.execute(update(table).where(*mine).values(next_at=ends_at)).rowcount:
            return None
    return _Claim({**row}, notices, counts, until, ends_at)
