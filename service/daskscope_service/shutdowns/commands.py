"""Requests a cluster's shutdown, and calls it off.

A request waits in the table ``command`` for the answer to the cluster's next heartbeat, from
whichever process: see :mod:`.command_queue`.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, insert, update

from daskscope_service.accounts.change import Change
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, shutdown
from daskscope_service.db.schema import command as table
from daskscope_service.shutdowns.verdict import is_over
from daskscope_service.web.fields import Missing

#: Seconds for which a shutdown waits for a silent cluster. Later no one expects it.
PATIENCE = 3600.0
#: Seconds for which a call-off is delivered: a shutdown may be announced long before its time.
CALL_OFF_PATIENCE = 7 * 86400.0


class NotPossible(ValueError):
    """The shutdown cannot be requested or called off. The message says why."""


@dataclass(frozen=True, slots=True)
class NewShutdown:
    """How a cluster is to be closed: see ``daskscope.protocol.Command``. ``grace`` in seconds."""

    reason: str = ""
    grace: float | None = None
    even_if_busy: bool = False


def ask(change: Change, cluster_id: str, requested: NewShutdown) -> tuple[str, bool]:
    """Request a shutdown; return its id, and whether it is a new one.

    Repeating the request, for example because the answer was lost, has no further effect.

    Raises
    ------
    Missing
        The workspace has no such cluster.
    NotPossible
        The cluster has stopped, or another shutdown of it is under way.
    """
    connection, workspace = change.connection, change.workspace
    row = connection.execute(
        select_in(workspace, cluster, cluster.c.stopped_at, cluster.c.name)
        .where(cluster.c.id == cluster_id)
        # If two requests come at the same moment, the second sees the first.
        .with_for_update()
    ).first()
    if row is None:
        raise Missing("cluster", cluster_id)
    if row.stopped_at is not None:
        raise NotPossible("The cluster has already stopped.")
    now = time.time()
    for before in under_way(connection, workspace, cluster_id, now):
        asked = NewShutdown(before["reason"], before["grace"], before["even_if_busy"])
        if (asked, before["requested_by"]) == (requested, change.actor) and before[
            "called_off_at"
        ] is None:
            return before["id"], False
        raise NotPossible(
            f"A shutdown requested by {before['requested_by']} is under way. Wait until it "
            "has finished, or call it off first."
        )
    command_id = secrets.token_hex(8)
    connection.execute(
        insert(table).values(
            workspace=workspace,
            id=command_id,
            cluster=cluster_id,
            requested_by=change.actor,
            requested_at=now,
            reason=requested.reason,
            grace=requested.grace,
            even_if_busy=requested.even_if_busy,
            expires_at=now + PATIENCE,
        )
    )
    change.log(
        "shutdown asked for",
        f"{cluster_id} ({row.name}): {command_id}"
        + (", even if it is at work" if requested.even_if_busy else ""),
    )
    return command_id, True


def call_off(change: Change, command_id: str, reason: str = "") -> None:
    """Call off a shutdown. Calling it off again has no effect.

    Raises
    ------
    Missing
        The workspace has no such shutdown.
    NotPossible
        The shutdown is over, or the cluster is closing.
    """
    connection, workspace = change.connection, change.workspace
    rows = connection.execute(_with_answers(workspace).where(table.c.id == command_id))
    row = rows.mappings().first()
    if row is None:
        raise Missing("command", command_id)
    command_row = {**row}
    if command_row["called_off_at"] is not None:
        return
    now = time.time()
    if is_over(command_row, now) or command_row["stopped_at"] is not None:
        raise NotPossible("This shutdown has already ended, so it cannot be called off.")
    done = connection.execute(
        update(table)
        .where(
            table.c.workspace == workspace,
            table.c.id == command_id,
            table.c.called_off_at.is_(None),
        )
        .values(
            called_off_at=now,
            called_off_by=change.actor,
            called_off_reason=reason,
            expires_at=now + CALL_OFF_PATIENCE,
        )
    )
    if done.rowcount > 0:
        change.log("shutdown called off", f"{command_row['cluster']}: {command_id}")


def under_way(
    connection: Connection, workspace: str, cluster_id: str, now: float
) -> list[dict[str, Any]]:
    """Return the shutdowns of a cluster that are not over, the first one first.

    Each has the columns of ``command``, and ``state``: the cluster's answer, or None.
    """
    query = (
        _with_answers(workspace)
        .where(table.c.cluster == cluster_id, table.c.requested_at > now - CALL_OFF_PATIENCE)
        .order_by(table.c.requested_at)
    )
    rows = [{**row} for row in connection.execute(query).mappings()]
    return [one for one in rows if not is_over(one, now)]


def _with_answers(workspace: str) -> Select[Any]:
    return (
        select_in(workspace, table, *table.c, shutdown.c.state, cluster.c.stopped_at)
        .outerjoin(
            shutdown,
            and_(
                shutdown.c.workspace == table.c.workspace,
                shutdown.c.cluster == table.c.cluster,
                shutdown.c.id == table.c.id,
            ),
        )
        .outerjoin(
            cluster,
            and_(cluster.c.workspace == table.c.workspace, cluster.c.id == table.c.cluster),
        )
    )
