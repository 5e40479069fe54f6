"""Stores, changes and removes idle policies; :mod:`.queries` reads them."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Annotated, Any

from msgspec import Meta
from sqlalchemy import delete, func, insert, update
from sqlalchemy.exc import IntegrityError

from daskscope_service.accounts.audit import Action
from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import policy as table
from daskscope_service.policies.decision import Policy, UnknownTimeZone, local_time
from daskscope_service.web.fields import Missing, Name, NameTaken, Unfit, check

_Pattern = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]

#: The fields of a policy. A policy waits for at least a minute of idleness, at most for 30 days.
After = Annotated[float, Meta(ge=60, le=30 * 86400)]
Users = Annotated[list[_Pattern], Meta(max_length=50)]
Tags = Annotated[dict[_Pattern, _Pattern], Meta(max_length=20)]
Clock = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
TimeZone = Annotated[str, Meta(max_length=80)]

#: How many policies a workspace may have: each is checked for each idle cluster.
MOST_POLICIES = 100


class TooManyPolicies(ValueError):
    """The workspace has the largest allowed number of policies."""


def new_id() -> str:
    """Return an id for a new policy."""
    return secrets.token_hex(8)


class PolicyChanged(Exception):
    """Someone has changed the policy since it was read."""


def add(change: Change, policy: Policy) -> None:
    """Store a new policy.

    Raises
    ------
    NameTaken
        Another policy has its name.
    Unfit
        One of its fields is not valid.
    TooManyPolicies
        There are :data:`MOST_POLICIES` already.
    """
    _check(policy)
    take_turns(change.connection, f"policies of {change.workspace}")
    there = select_in(change.workspace, table, func.count())
    if change.connection.execute(there).scalar_one() >= MOST_POLICIES:
        raise TooManyPolicies(f"A workspace can have at most {MOST_POLICIES} policies.")
    try:
        with change.connection.begin_nested():
            change.connection.execute(
                insert(table).values(workspace=change.workspace, **_values(change, policy))
            )
    except IntegrityError:
        raise NameTaken("policy", policy.name) from None
    _log(change, "policy made", policy)


def replace(change: Change, policy: Policy, *, read_at: float | None = None) -> None:
    """Store ``policy`` in place of the one with its id.

    ``read_at``: when the version that the user edited was last changed; None replaces any version.

    Raises
    ------
    Missing
        The policy was removed.
    PolicyChanged
        It was changed after ``read_at``.
    NameTaken, Unfit
        As :func:`add`.
    """
    _check(policy)
    ours = (table.c.workspace == change.workspace, table.c.id == policy.id)
    query = select_in(change.workspace, table, table.c.changed_at).where(*ours)
    changed_at = change.connection.execute(query.with_for_update()).scalar()
    if changed_at is None:
        raise Missing("policy", policy.id)
    if read_at is not None and changed_at != read_at:
        raise PolicyChanged
    try:
        with change.connection.begin_nested():
            change.connection.execute(update(table).where(*ours).values(_values(change, policy)))
    except IntegrityError:
        raise NameTaken("policy", policy.name) from None
    _log(change, "policy changed", policy)


def _values(change: Change, policy: Policy) -> dict[str, Any]:
    return dataclasses.asdict(policy) | {
        "users": list(policy.users),
        "tags": dict(policy.tags),
        **change.stamp,
    }


def _log(change: Change, action: Action, policy: Policy) -> None:
    change.log(
        action,
        f"{policy.id} ({policy.name}): {policy.action} after {policy.after:g} s, "
        + ("on" if policy.enabled else "off"),
    )


def remove(change: Change, policy_id: str) -> None:
    """Remove a policy; its decisions stay. Raises Missing."""
    ours = (table.c.workspace == change.workspace, table.c.id == policy_id)
    query = select_in(change.workspace, table, table.c.name).where(*ours)
    name = change.connection.execute(query).scalar()
    if change.connection.execute(delete(table).where(*ours)).rowcount == 0:
        raise Missing("policy", policy_id)
    change.log("policy removed", f"{policy_id} ({name})")


def _check(policy: Policy) -> None:
    check(
        Name,
        policy.name.strip(),
        "name",
        "A policy needs a name of 1 to 80 characters, none of them invisible.",
    )
    check(
        After,
        policy.after,
        "after",
        "A policy must wait for at least 1 minute and at most 30 days of idleness.",
    )
    for kind, value, field in ((Users, policy.users, "users"), (Tags, policy.tags, "tags")):
        check(
            kind,
            value,
            field,
            "A policy can name at most 50 users and 20 tags, each in 1 to 300 characters.",
        )
    if (policy.begins is None) != (policy.ends is None):
        raise Unfit("ends", "Set both the begin and the end of the hours, or neither.")
    for field, clock in (("begins", policy.begins), ("ends", policy.ends)):
        if clock is not None:
            check(Clock, clock, field, f"{clock!r} is not a time of day, such as 20:00.")
    try:
        local_time(0.0, policy.time_zone)
    except UnknownTimeZone:
        raise Unfit(
            "time_zone", f"There is no time zone {policy.time_zone!r}; an example is Europe/Berlin."
        ) from None
