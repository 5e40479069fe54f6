"""Rounds that remove old data, in the background or by a command.

Of the processes that share a database, only one does a round at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from sqlalchemy import Engine

from daskscope_service.db.clock import Jumps
from daskscope_service.db.space import give_back, unused_pages
from daskscope_service.periodic import Lease, PeriodicTask, SomeFailed, Stopped, in_each
from daskscope_service.retention.expiry import remove_old_data, workspaces
from daskscope_service.retention.throttle import Removed, Throttle
from daskscope_service.service_metrics import ServiceMetrics

#: The name of the lease.
WORK = "retention"

#: The share of its time that the service spends on removing data, while there is some to remove.
_SHARE = 0.2

#: Seconds from the start to the first round: users who install a newer version can set the
#: retention before anything is removed.
_FIRST_AFTER = 300.0

#: Seconds between two log lines about a round that takes long.
_SAY_EVERY = 60.0

#: The share of the file that may stay unused: new data will need it soon.
_UNUSED_PART = 0.05

#: Pages of SQLite that are given back in one step.
_PAGES = 256

logger = logging.getLogger(__name__)


def run_round(
    engine: Engine,
    lease: Lease,
    pace: Throttle,
    *,
    on_step: Callable[[str, Removed], None] = lambda workspace, step: None,
) -> Counter[str]:
    """Remove old data in all workspaces, and give back the space; return the rows by table.

    ``lease`` must be held. ``on_step`` gets each step and its workspace.

    Raises
    ------
    Stopped
        The pace was stopped, or another process has taken over the lease.
    SomeFailed
        Some workspaces failed; the others are done.
    """
    removed: Counter[str] = Counter()

    def remove(workspace: str) -> int:
        for step in pace.run(remove_old_data(engine, workspace, time.time(), pace)):
            removed[step.table] += step.rows
            on_step(workspace, step)
            if not lease.renew():
                raise Stopped
        return 0

    failed: SomeFailed | None = None
    try:
        in_each(workspaces(engine), remove, ends_all=Stopped)
    except SomeFailed as error:
        failed = error
    for _ in pace.run(give_back_room(engine, keep=_UNUSED_PART)):
        if not lease.renew():
            raise Stopped
    if failed is not None:
        raise failed
    return +removed


def give_back_room(engine: Engine, *, keep: float = 0.0) -> Iterator[Removed]:
    """Give back the unused pages of the database's file, except for the share ``keep``."""
    while True:
        with engine.connect() as connection:
            unused, all_pages = unused_pages(connection)
        more = unused - int(all_pages * keep)
        if more <= 0:
            return
        give_back(engine, min(more, _PAGES))
        yield Removed("", 0)


def next_round(engine: Engine, interval: float, now: float) -> float | None:
    """Return about when the next round begins, if they come every ``interval`` seconds.

    Return None if there are no rounds.
    """
    if interval <= 0:
        return None
    done_at = Lease(engine, WORK).done_at()
    return now + min(interval, _FIRST_AFTER) if done_at is None else max(now, done_at + interval)


def removal(engine: Engine, *, interval: float, instruments: ServiceMetrics) -> PeriodicTask:
    """Start and return the task that does a round every ``interval`` seconds; 0: no rounds."""
    lease, ended, jumps = Lease(engine, WORK), threading.Event(), Jumps()

    def work() -> None:
        if jumps.is_recent():
            raise Stopped
        try:
            _counted_round(engine, lease, Throttle(_SHARE, ended), instruments)
        except Stopped:
            instruments.rounds.labels("stopped").inc()
            raise
        instruments.rounds.labels("done").inc()

    def failed(error: Exception) -> None:
        logger.error("old data could not be removed; the service tries again", exc_info=error)
        instruments.rounds.labels("failed").inc()

    return PeriodicTask(
        WORK,
        work,
        interval,
        first_after=min(interval, _FIRST_AFTER),
        lease=lease,
        ended=ended,
        failed=failed,
    )


def _counted_round(
    engine: Engine, lease: Lease, pace: Throttle, instruments: ServiceMetrics
) -> None:
    began = said = time.monotonic()
    so_far = 0

    def report(workspace: str, step: Removed) -> None:
        nonlocal said, so_far
        so_far += step.rows
        instruments.removed.labels(step.table).inc(step.rows)
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            fields = {"rows": so_far, "workspace": workspace, "table": step.table}
            logger.info("removing old data", extra={"fields": fields})

    removed = run_round(engine, lease, pace, on_step=report)
    if removed:
        fields = {**removed, "seconds": round(time.monotonic() - began, 1)}
        logger.info("removed old data", extra={"fields": fields})
