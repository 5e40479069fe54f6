"""Idle policies of a workspace: kept, changed, removed. They are read in :mod:`.queries`."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time

from sqlalchemy import Connection, delete, insert, update
from sqlalchemy.exc import IntegrityError

from daskscope_service.accounts import audit
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import policy as table
from daskscope_service.insight.idle_policy import Policy, UnknownTimeZone, local_time

#: The longest and the shortest idleness that a policy may wait for.
MOST_SECONDS = 30 * 86400.0
LEAST_SECONDS = 60.0

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


class Unfit(ValueError):
    """A policy that cannot be kept. The message says why; ``field`` names what is wrong."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class NameTaken(ValueError):
    """The workspace has another policy of this name."""


def new_id() -> str:
    """Return an id for a policy that is to be kept."""
    return secrets.token_hex(8)


def keep(
    connection: Connection, workspace: str, policy: Policy, *, actor: str, address: str | None
) -> None:
    """Keep ``policy``, in place of the one of its id if there is one.

    Raises
    ------
    NameTaken
        Another one has its name.
    Unfit
        It makes no sense.
    """
    _check(policy)
    values = dataclasses.asdict(policy) | {
        "users": list(policy.users),
        "tags": dict(policy.tags),
        "changed_at": time.time(),
        "changed_by": actor,
    }
    ours = (table.c.workspace == workspace, table.c.id == policy.id)
    try:
        with connection.begin_nested():
            changed = connection.execute(update(table).where(*ours).values(values)).rowcount > 0
            if not changed:
                connection.execute(insert(table).values(workspace=workspace, **values))
    except IntegrityError:
        raise NameTaken(policy.name) from None
    audit.write(
        connection,
        "policy changed" if changed else "policy made",
        actor=actor,
        detail=f"{policy.id} ({policy.name}): {policy.action} after {policy.after:g} s, "
        + ("on" if policy.enabled else "off"),
        workspace=workspace,
        address=address,
    )


def remove(
    connection: Connection, workspace: str, policy_id: str, *, actor: str, address: str | None
) -> bool:
    """Remove a policy; False if the workspace has none of this id. What it decided is kept."""
    ours = (table.c.workspace == workspace, table.c.id == policy_id)
    name = connection.execute(select_in(workspace, table, table.c.name).where(*ours)).scalar()
    if connection.execute(delete(table).where(*ours)).rowcount == 0:
        return False
    audit.write(
        connection,
        "policy removed",
        actor=actor,
        detail=f"{policy_id} ({name})",
        workspace=workspace,
        address=address,
    )
    return True


def _check(policy: Policy) -> None:
    if not policy.name.strip():
        raise Unfit("name", "A policy needs a name.")
    if not LEAST_SECONDS <= policy.after <= MOST_SECONDS:
        raise Unfit(
            "after", "A policy must wait for at least 1 minute and at most 30 days of idleness."
        )
    if (policy.begins is None) != (policy.ends is None):
        raise Unfit("ends", "Set both the begin and the end of the hours, or neither.")
    for field, clock in (("begins", policy.begins), ("ends", policy.ends)):
        if clock is not None and not _CLOCK.fullmatch(clock):
            raise Unfit(field, f"{clock!r} is not a time of day, such as 20:00.")
    try:
        local_time(0.0, policy.time_zone)
    except UnknownTimeZone:
        raise Unfit(
            "time_zone", f"There is no time zone {policy.time_zone!r}; an example is Europe/Berlin."
        ) from None
