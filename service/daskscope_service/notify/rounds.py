"""Finds what no beat tells, and tells each target what it has not been told: a round of it.

Every process does rounds. What has been told to whom is in the database: a target's messages are
claimed for a while before they are sent, so that no two processes send the same. If the one that
claimed them is killed, another one sends them later; rather than never, perhaps a second time.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from sqlalchemy import Engine, delete, select, update

from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import notice, workspace
from daskscope_service.db.schema import notification_target as table
from daskscope_service.insight.notice import message
from daskscope_service.notify.finding import find
from daskscope_service.notify.sending import NotSent, send

#: Seconds that what was found rests first: what comes together is told together, and what another
#: process commits a moment later is not passed over.
REST = 3.0
#: Seconds between two messages to one target; what happens meanwhile is told in the next one.
PAUSE = 300.0
#: Seconds until a message that was not taken is tried again.
PAUSE_AFTER_FAILURE = 60.0
#: Seconds that a process has to send what it claimed: several times what the slowest service takes.
CLAIMED = 120.0
#: Seconds for which it is kept what was found: a budget is passed once in a month.
KEPT = 40 * 86400.0

logger = logging.getLogger(__name__)


def notify(engine: Engine, url: str, silent_after: float, up_since: float) -> int:
    """Do one round for all workspaces that have targets; return how many messages were sent.

    ``up_since`` is when the service was started: after a pause of it, all clusters seem silent.
    """
    with engine.connect() as connection:
        names = connection.execute(select(table.c.workspace).distinct()).scalars().all()
    sent = 0
    for name in names:
        with engine.connect() as connection:
            targets = connection.execute(select_in(name, table, table.c.id, table.c.next_at)).all()
        find(engine, name, silent_after, listens=time.time() > up_since + 3 * silent_after)
        for target_id, next_at in targets:
            if next_at <= time.time():
                sent += _tell(engine, name, target_id, url)
    return sent


def prune(engine: Engine) -> None:
    """Forget what happened long ago."""
    with engine.connect() as connection:
        names = connection.execute(select(workspace.c.id)).scalars().all()
    for name in names:
        with writing(engine) as connection:
            connection.execute(
                delete(notice).where(
                    notice.c.workspace == name, notice.c.found_at < time.time() - KEPT
                )
            )


def _tell(engine: Engine, name: str, target_id: str, url: str) -> bool:
    claimed = _claim(engine, name, target_id)
    if claimed is None:
        return False
    target, notices, until, claimed_until = claimed
    title, text = message(notices, name, url)
    failure: str | None = None
    try:
        send(target["address"], title, text)
    except NotSent as error:
        failure = str(error)
    except Exception as error:  # of a library, on whatever the other side says
        failure = type(error).__name__
    now = time.time()
    if failure is None:
        values: dict[str, Any] = {
            "told_until": until,
            "next_at": now + PAUSE,
            "sent_at": now,
            "failed_at": None,
            "failure": None,
        }
    else:
        logger.warning("target %s (%s) of %s: %s", target_id, target["name"], name, failure)
        values = {"failed_at": now, "failure": failure, "next_at": now + PAUSE_AFTER_FAILURE}
    with writing(engine) as connection:
        connection.execute(
            update(table)
            .where(
                table.c.workspace == name,
                table.c.id == target_id,
                table.c.next_at == claimed_until,
            )
            .values(values)
        )
    return failure is None


def _claim(
    engine: Engine, name: str, target_id: str
) -> tuple[dict[str, Any], list[dict[str, Any]], float, float] | None:
    """Return a target, what it is to be told, until when that was found, and the end of the claim.

    None if there is nothing to tell, or another process has claimed it.
    """
    ours = (table.c.workspace == name, table.c.id == target_id)
    now = time.time()
    until = now - REST
    with writing(engine) as connection:
        row = connection.execute(
            select_in(name, table).where(table.c.id == target_id).with_for_update()
        ).mappings().first()  # fmt: skip
        if row is None or row["next_at"] > now:
            return None  # it was removed, or another process was quicker
        found = connection.execute(
            select_in(name, notice)
            .where(
                notice.c.found_at > row["told_until"],
                notice.c.found_at <= until,
                notice.c.kind.in_(row["kinds"]),
            )
            .order_by(notice.c.found_at, notice.c.id)
        )
        notices = [{**one} for one in found.mappings()]
        if not notices:
            return None
        connection.execute(update(table).where(*ours).values(next_at=now + CLAIMED))
    return {**row}, notices, until, now + CLAIMED
