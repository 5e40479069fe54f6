"""The targets of a workspace: secret addresses, and the kinds of notification that each gets."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import IntegrityError

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import notification_target as table
from daskscope_service.db.unreadable import Unreadable
from daskscope_service.notifications.addresses import FitAddress, scheme_of, why_invalid
from daskscope_service.notifications.sending import unfit
from daskscope_service.notifications.wording import KINDS, Kind
from daskscope_service.web.fields import Missing, Name, NameTaken, check

#: The most targets of one workspace.
MOST_TARGETS = 20

#: The kinds of notification that a target gets.
Kinds = Annotated[list[Kind], Meta(min_length=1)]

_NEEDS = (
    "A target needs a name of 1 to 80 characters, none of them invisible, and at least one kind of "
    "notification."
)

_SHOWN = ("id", "name", "kinds", "changed_at", "changed_by", "sent_at", "failed_at", "failure")


class TooManyTargets(ValueError):
    """The workspace has :data:`MOST_TARGETS` targets already."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target without its address. Times are seconds since the epoch, UTC; None: never.

    ``failure`` is why nothing was sent the last time, None if the last message was sent.
    """

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
    """Return the targets of a workspace, sorted by name."""
    query = select_in(workspace, table, *(table.c[name] for name in _SHOWN), table.c.address)
    targets = []
    for row in connection.execute(query.order_by(table.c.name)).mappings():
        values = {name: row[name] for name in _SHOWN}
        values["kinds"] = tuple(kind for kind in KINDS if kind in row["kinds"])
        wrong = why_invalid(row["address"])
        if wrong is not None and not isinstance(row["address"], Unreadable):
            values["failure"] = unfit(wrong)  # an earlier version accepted the address
        targets.append(Target(**values, service=scheme_of(row["address"])))
    return targets


def address_of(connection: Connection, workspace: str, target_id: str) -> str:
    """Return a target's address, which must never be shown. Raises Missing."""
    query = select_in(workspace, table, table.c.address).where(table.c.id == target_id)
    address: str | None = connection.execute(query).scalar()
    if address is None:
        raise Missing("target", target_id)
    return address


def add(change: Change, *, name: str, address: FitAddress, kinds: Collection[Kind] = KINDS) -> str:
    """Store a target, which gets messages about events from now on; return its id.

    Raises
    ------
    Unfit
        The name is not valid, or there is no kind of notification.
    NameTaken
        Another target has this name.
    TooManyTargets
        The workspace has :data:`MOST_TARGETS` targets already.
    """
    check(Name, name, "name", _NEEDS)
    check(Kinds, kinds, "kinds", _NEEDS)
    connection = change.connection
    take_turns(connection, f"targets of {change.workspace}")
    if len(list_targets(connection, change.workspace)) >= MOST_TARGETS:
        raise TooManyTargets(f"A workspace can have at most {MOST_TARGETS} targets.")
    target_id, now = secrets.token_hex(8), time.time()
    try:
        with connection.begin_nested():
            connection.execute(
                insert(table).values(
                    workspace=change.workspace,
                    id=target_id,
                    name=name,
                    address=address,
                    kinds=list(kinds),
                    **change.stamp,
                    told_until=now,
                    next_at=now,
                )
            )
    except IntegrityError:
        raise NameTaken("target", name) from None
    change.log(
        "target made",
        f"{target_id} ({name}): {scheme_of(address)}, notified of {', '.join(kinds)}",
    )
    return target_id


def remove(change: Change, target_id: str) -> None:
    """Remove a target. Raises Missing."""
    ours = (table.c.workspace == change.workspace, table.c.id == target_id)
    name = change.connection.execute(
        select_in(change.workspace, table, table.c.name).where(*ours)
    ).scalar()
    if change.connection.execute(delete(table).where(*ours)).rowcount == 0:
        raise Missing("target", target_id)
    change.log("target removed", f"{target_id} ({name})")
