"""Whom a workspace notifies: addresses, which are secrets, and what each is sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from daskscope_service.accounts import audit
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import notification_target as table
from daskscope_service.db.sealing import Unreadable
from daskscope_service.insight.notice import KINDS, Kind
from daskscope_service.notifications.addresses import FitAddress, scheme_of, wrong_with
from daskscope_service.notifications.sending import unfit

#: Targets of one workspace.
MOST_TARGETS = 20

_SHOWN = ("id", "name", "kinds", "changed_at", "changed_by", "sent_at", "failed_at", "failure")


class NameTaken(ValueError):
    """The workspace has another target of this name."""


class TooMany(ValueError):
    """The workspace has as many targets as it may."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target with all but its address. Times are seconds since the epoch, UTC; None: never."""

    id: str
    name: str
    kinds: tuple[Kind, ...]
    changed_at: float
    changed_by: str
    sent_at: float | None
    failed_at: float | None
    failure: str | None
    service: str


def list_targets(connection: Connection, workspace: str) -> list[Target]:
    """Return the targets of a workspace, by name."""
    query = select_in(workspace, table, *(table.c[name] for name in _SHOWN), table.c.address)
    found = []
    for row in connection.execute(query.order_by(table.c.name)).mappings():
        values = {name: row[name] for name in _SHOWN}
        values["kinds"] = tuple(kind for kind in KINDS if kind in row["kinds"])
        wrong = wrong_with(row["address"])
        if wrong is not None and not isinstance(row["address"], Unreadable):
            values["failure"] = unfit(wrong)  # it was kept before that was refused
        found.append(Target(**values, service=scheme_of(row["address"])))
    return found


def address_of(connection: Connection, workspace: str, target_id: str) -> str | None:
    """Return a target's address, which no one is to be shown; None where there is no such."""
    query = select_in(workspace, table, table.c.address).where(table.c.id == target_id)
    found: str | None = connection.execute(query).scalar()
    return found


def add(
    connection: Connection,
    workspace: str,
    *,
    name: str,
    address: FitAddress,
    kinds: Sequence[Kind] = KINDS,
    actor: str,
    client: str | None,
) -> str:
    """Store a target, which is sent what happens from now on; return its id.

    Raises
    ------
    NameTaken, TooMany
        There are others already.
    """
    if len(list_targets(connection, workspace)) >= MOST_TARGETS:
        raise TooMany(f"A workspace can have at most {MOST_TARGETS} targets.")
    target_id, now = secrets.token_hex(8), time.time()
    try:
        with connection.begin_nested():
            connection.execute(
                insert(table).values(
                    workspace=workspace,
                    id=target_id,
                    name=name,
                    address=address,
                    kinds=list(kinds),
                    changed_at=now,
                    changed_by=actor,
                    told_until=now,
                    next_at=now,
                )
            )
    except IntegrityError:
        raise NameTaken(name) from None
    audit.write(
        connection,
        "target made",
        actor=actor,
        detail=f"{target_id} ({name}): {scheme_of(address)}, notified of {', '.join(kinds)}",
        workspace=workspace,
        address=client,
    )
    return target_id


def remove(
    connection: Connection, workspace: str, target_id: str, *, actor: str, client: str | None
) -> bool:
    """Remove a target; False if the workspace has none of this id."""
    ours = (table.c.workspace == workspace, table.c.id == target_id)
    name = connection.execute(select_in(workspace, table, table.c.name).where(*ours)).scalar()
    if connection.execute(delete(table).where(*ours)).rowcount == 0:
        return False
    audit.write(
        connection,
        "target removed",
        actor=actor,
        detail=f"{target_id} ({name})",
        workspace=workspace,
        address=client,
    )
    return True
