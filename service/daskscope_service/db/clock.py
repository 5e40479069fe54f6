"""Notices a clock that jumps far ahead, and repairs what was stored while it was wrong.

A machine may start with a clock that is a year ahead, until the network sets it right. Work that
was planned meanwhile, or noted as done, would then wait for a year: nothing old would be removed,
nobody would be notified, and someone who mistyped a password could not sign in.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from sqlalchemy import Delete, Engine, Update, and_, delete, select, update

from daskscope_service.db import schema
from daskscope_service.db.engine import writing

#: Seconds: nothing is planned further ahead, and two machines' clocks differ by less.
_AHEAD = 2 * 86_400.0

_DAY = 86_400

#: Times that hold something back until they have passed; the first ones are of the whole service.
_COLUMNS = (
    *(schema.lease.c.done_at, schema.lease.c.expires_at),
    *(schema.sign_in_attempt.c.at, schema.openid_attempt.c.expires_at),
    schema.device_login.c.expires_at,
)
_OF_WORKSPACE = (
    *(schema.notification_target.c.next_at, schema.notification_target.c.told_until),
    *(schema.computation.c.judge_at, schema.computation.c.job_due_at, schema.job.c.due_at),
)

#: A clock that runs from the machine's start and never jumps. It goes on while the machine sleeps,
#: where the system has such a clock.
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

logger = logging.getLogger(__name__)


class Jumps:
    """Notices jumps of the clock by more than a day, from when it was made."""

    def __init__(self) -> None:
        self._started_at = self._start()
        self._until = 0.0

    def is_recent(self) -> bool:
        """Return whether the clock has jumped ahead within a day, and not back again."""
        start, before = self._start(), self._started_at
        if abs(start - before) > _DAY:
            self._started_at = start
            self._until = 0.0
            if start > before:
                self._until = time.clock_gettime(_UPTIME) + _DAY
                logger.warning(
                    "the clock has jumped ahead by %d days: nothing is removed because of its age "
                    "for a day, unless the clock is set back",
                    (start - before) // _DAY,
                )
        return time.clock_gettime(_UPTIME) < self._until

    def _start(self) -> float:
        """Return when the machine started, by what its clock says now."""
        return time.time() - time.clock_gettime(_UPTIME)


def repair(engine: Engine) -> int:
    """Set times that are more than two days ahead to now, and remove sums of days to come.

    Return how many there were.
    """
    now = time.time()
    with engine.connect() as connection:
        names = connection.execute(select(schema.workspace.c.id)).scalars().all()
        # With the workspace, which the indexes begin with.
        wrong: list[tuple[Any, Any]] = [(one, one > now + _AHEAD) for one in _COLUMNS]
        for column in _OF_WORKSPACE:
            of = column.table.c.workspace
            wrong += [(column, and_(of == name, column > now + _AHEAD)) for name in names]
        early = schema.usage_sum.c.first_day > (now + _AHEAD) // _DAY
        statements: list[Update | Delete] = [
            update(column.table).where(where).values({column: now})
            for column, where in wrong
            if connection.execute(select(column).where(where).limit(1)).first() is not None
        ]
        if connection.execute(select(schema.usage_sum).where(early).limit(1)).first() is not None:
            statements.append(delete(schema.usage_sum).where(early))
    repaired = 0
    for statement in statements:
        with writing(engine) as connection:
            repaired += connection.execute(statement).rowcount
    if repaired:
        logger.warning(
            "%d times in the database were far ahead of the clock, which must have been wrong; "
            "they were set to now",
            repaired,
        )
    return repaired
