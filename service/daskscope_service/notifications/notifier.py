"""Sends notifications in rounds: each finds new notices, and sends them to the targets.

Every process of the service does rounds. The database stores what was sent to whom. Before a
process sends to a target, it claims the target for a while, so that no two processes send the same
message. If it is killed meanwhile, another one sends the message later, perhaps for a second time.

A target may use up the whole time limit of a message. Therefore the thread that does the rounds
sends nothing itself. Other threads send, each for one workspace at a time, and no longer than one
slow target takes. Targets whose last message failed have threads of their own. So a workspace never
waits for the targets of another one, and only once for a target of its own that fails.
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

from sqlalchemy import Engine, Row, delete, func, or_, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import notice, workspace
from daskscope_service.db.schema import notification_target as table
from daskscope_service.notifications.due_notices import store_new_notices
from daskscope_service.notifications.sending import SECONDS, NotSent, Sender
from daskscope_service.notifications.wording import MOST_LINES, message
from daskscope_service.periodic import in_each

#: Seconds before a notice is sent. So notices of the same moment go into one message, and none is
#: missed because another process commits it late.
REST = 3.0
#: Seconds between two messages to one target. The next message contains what happens meanwhile.
PAUSE = 300.0
#: Seconds until a failed message is tried again: the least and the most. Between these, the pause
#: is ``PAUSE_PART`` of the time that the message has already waited.
PAUSE_AFTER_FAILURE = 60.0
LONGEST_PAUSE = 3600.0
PAUSE_PART = 0.25
#: Seconds for which a claim lasts: several times what the slowest service takes for a message.
CLAIMED = 120.0
#: Seconds for which notices are kept: longer than a month, because a passed budget is reported once
#: a month. Those of findings are kept for so long after the finding last occurred.
KEPT = 40 * 86400.0

#: How many notices one transaction deletes.
_TOGETHER = 500

#: How many workspaces are served at the same time: by each of the two groups of threads.
_AT_ONCE = 4

logger = logging.getLogger(__name__)


class Notifier:
    """Does rounds for all workspaces that have targets.

    ``url``: the service's address, for links. ``up_since``: when the service started. Right after
    the service was down, all clusters seem silent.
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
        """Abort messages that are being sent, and end the threads."""
        self._sender.close()
        for turns in self._turns:
            turns.close()

    def round(self) -> list[Future[int]]:
        """Do a round; return futures: each gives how many targets of a workspace got a message."""
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
        store_new_notices(self._engine, name, self._silent_after, listens=listens)
        due = [one for one in targets if one.next_at <= time.time()]
        for failed, turns in enumerate(self._turns):
            ones = [one for one in due if (one.failure is not None) == bool(failed)]
            if ones:
                turn = turns.take(name, partial(self._send_to_all, name, ones))
                begun.extend([turn] if turn is not None else [])
        return 0

    def _send_to_all(self, name: str, targets: list[Row[Any]]) -> int:
        sent, until = 0, time.monotonic() + SECONDS
        for one in targets:
            try:
                sent += _notify(self._engine, self._sender, name, one.id, self._url)
            except Exception as error:  # go on with the other targets
                logger.error("target %s of %s: %s", one.id, name, getattr(error, "orig", error))
            if time.monotonic() > until:
                break  # the next round sends to the other targets, after those of other workspaces
        return sent


class _Turns:
    """A pool of threads that does at most one piece of work per workspace at a time."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._taken = set[str]()

    def take(self, name: str, work: Callable[[], int]) -> Future[int] | None:
        """Queue work for a workspace; return None if work for it already waits or runs."""
        with self._lock:
            if name in self._taken:
                return None
            self._taken.add(name)
        turn = self._pool.submit(work)
        turn.add_done_callback(lambda _: self._give_back(name))
        return turn

    def close(self) -> None:
        """Wait for work that runs, drop work that waits, and end the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _give_back(self, name: str) -> None:
        with self._lock:
            self._taken.discard(name)


def delete_old_notices(engine: Engine, ended: threading.Event | None = None) -> None:
    """Delete notices that are older than :data:`KEPT`; stop early if ``ended`` is set."""
    with engine.connect() as connection:
        names = connection.execute(select(workspace.c.id)).scalars().all()

    in_each(names, partial(_forget, engine, time.time() - KEPT, ended or threading.Event()))


def _forget(engine: Engine, before: float, ended: threading.Event, name: str) -> int:
    """Delete a workspace's notices from before the time ``before``; return how many.

    It does so in small transactions with pauses, so that others can write.
    """
    old = select_in(name, notice, notice.c.id).where(
        notice.c.found_at < before, or_(notice.c.seen_at.is_(None), notice.c.seen_at < before)
    )
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
    """What a process may send to a target until ``ends_at``.

    ``notices`` are the first notices, which the message shows. ``counts`` is how many there are of
    each kind. All were found at or before ``found_until``.
    """

    target: dict[str, Any]
    notices: list[dict[str, Any]]
    counts: dict[str, int]
    found_until: float
    ends_at: float


def _claim(engine: Engine, name: str, target_id: str) -> _Claim | None:
    """Claim the notices that are due to be sent to a target.

    Return None if there is nothing to send, or if another process has claimed the target.
    """
    now = time.time()
    until = now - REST
    # Count before the transaction that writes: there may be millions of notices, and SQLite takes
    # one writer at a time.
    with engine.connect() as connection:
        row = connection.execute(
            select_in(name, table).where(table.c.id == target_id)
        ).mappings().first()  # fmt: skip
        if row is None or row["next_at"] > now:
            return None  # the target was removed, or another process was quicker
        due = (
            notice.c.found_at > row["told_until"],
            notice.c.found_at <= until,
            notice.c.kind.in_(row["kinds"]),
        )
        # Read only the notices that the message shows: a heartbeat may cause ten thousand.
        first = select_in(name, notice).where(*due).order_by(notice.c.found_at, notice.c.id)
        notices = [{**one} for one in connection.execute(first.limit(MOST_LINES)).mappings()]
        if not notices:
            return None
        of_kinds = select_in(name, notice, notice.c.kind, func.count(), func.min(notice.c.found_at))
        of_kinds = of_kinds.where(*due).group_by(notice.c.kind)
        counted = sorted(connection.execute(of_kinds).all(), key=lambda one: (one[2], one[0]))
        counts = {kind: int(count) for kind, count, _ in counted}
    ends_at = time.time() + CLAIMED
    # Claim the target only if it is as it was read: it may have been changed meanwhile, or another
    # process may have been quicker.
    same = (table.c[key] == row[key] for key in ("next_at", "told_until", "changed_at"))
    mine = (table.c.workspace == name, table.c.id == target_id, *same)
    with writing(engine) as connection:
        if not connection.execute(update(table).where(*mine).values(next_at=ends_at)).rowcount:
            return None
    return _Claim({**row}, notices, counts, until, ends_at)
