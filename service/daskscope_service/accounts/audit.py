"""The audit log: sign-ins, refusals, shutdowns, and changes of rights and settings.

Entries are written once and never changed. They contain people's names, addresses and the readable
ids of tokens, but no secret: no password, no token, and no sign-in name that does not exist,
because some people type their password into the name field.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, Engine, insert, select, tuple_

from daskscope_service.db.engine import writing
from daskscope_service.db.schema import audit_entry as table

Action = Literal[
    "signed in",
    "refused",
    "signed out",
    "link made",
    "token made",
    "token revoked",
    "login allowed",
    "login denied",
    "account connected",
    "invited",
    "invitation taken back",
    "user made",
    "user vouched for",
    "user removed",
    "user disabled",
    "user enabled",
    "password changed",
    "role changed",
    "key changed",
    "key forgotten",
    "shutdown asked for",
    "shutdown called off",
    "policy made",
    "policy changed",
    "policy removed",
    "target made",
    "target removed",
    "budget changed",
    "prices changed",
    "thresholds changed",
    "finding muted",
    "finding unmuted",
    "job corrected",
    "job correction undone",
    "retention changed",
    "data deleted",
    "report made",
]

_HOUR = 3600.0

#: The actor of commands: someone who has the command line and the database.
OPERATOR = "command line"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action at ``at``, in seconds since the epoch, UTC. Key: ``id``.

    ``workspace`` is None for actions that concern a user in all workspaces, ``address`` for actions
    on the command line.
    """

    id: str
    at: float
    action: str
    actor: str
    detail: str
    workspace: str | None
    address: str | None


def write(
    connection: Connection,
    action: Action,
    *,
    actor: str = OPERATOR,
    detail: str = "",
    workspace: str | None = None,
    address: str | None = None,
) -> None:
    """Add an entry in the caller's transaction, so that change and entry are stored together."""
    connection.execute(
        insert(table).values(
            id=secrets.token_hex(16),
            at=time.time(),
            action=action,
            actor=actor,
            detail=detail,
            workspace=workspace,
            address=address,
        )
    )


def write_hourly(
    connection: Connection,
    action: Action,
    *,
    actor: str,
    detail: str,
    workspace: str,
    address: str,
) -> None:
    """Do as :func:`write`, unless the last hour has such an entry.

    For what a program with a token may do any number of times without changing anything.
    """
    same = {"action": action, "actor": actor, "detail": detail, "address": address}
    statement = select(table.c.id).where(
        table.c.workspace == workspace,
        table.c.at > time.time() - _HOUR,
        *(table.c[name] == value for name, value in same.items()),
    )
    if connection.execute(statement.limit(1)).first() is None:
        write(connection, action, actor=actor, detail=detail, workspace=workspace, address=address)


def refused(engine: Engine, actor: str, detail: str, address: str) -> None:
    """Add an entry about a refused attempt to sign in."""
    with writing(engine) as connection:
        write(connection, "refused", actor=actor, detail=detail, address=address)


def newest(
    engine: Engine,
    limit: int,
    *,
    workspace: str | None = None,
    after: tuple[float, str] | None = None,
) -> list[AuditEntry]:
    """Return the newest ``limit`` entries, newest first: of one workspace, or of all.

    ``after``: only entries older than the one with this time and id.
    """
    columns = [table.c[name] for name in AuditEntry.__slots__]
    statement = select(*columns).order_by(table.c.at.desc(), table.c.id.desc()).limit(limit)
    if workspace is not None:
        statement = statement.where(table.c.workspace == workspace)
    if after is not None:
        statement = statement.where(tuple_(table.c.at, table.c.id) < tuple_(*after))
    with engine.connect() as connection:
        return [AuditEntry(*row) for row in connection.execute(statement)]
