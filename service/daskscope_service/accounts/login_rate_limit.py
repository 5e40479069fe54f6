"""Limits failed attempts to sign in, in the database, for all processes.

An attempt is stored before its password is checked, so that many simultaneous attempts do not all
pass. When an attempt succeeds, it is deleted, with earlier ones for the same name. An attempt that
is refused here does not count: after the time that the answer names, the next one is allowed.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Engine, delete, insert, select

from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import sign_in_attempt as table

#: Seconds for which an attempt counts.
WINDOW = 15 * 60.0

#: How many attempts may fail in that time, per name and per address.
FOR_NAME = 10
FROM_ADDRESS = 30

#: What an attempt names: a user, the workspace of an invitation, the user who types a program's
#: code, or a token that cannot be used to sign in.
Kind = Literal["name", "invitation", "code", "token"]


class TooManyAttempts(Exception):
    """Too many attempts have failed. ``until``: when the next is allowed (seconds since epoch)."""

    def __init__(self, until: float) -> None:
        super().__init__(f"too many attempts to sign in; try again at {until:.0f}")
        self.until = until

    @property
    def seconds(self) -> int:
        """The seconds to wait."""
        return max(1, round(self.until - time.time() + 0.5))


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """An attempt that may go on: the ids of its rows, and the hash of its name."""

    ids: tuple[str, ...]
    name: bytes


def begin(engine: Engine, name: str, address: str, *, kind: Kind) -> LoginAttempt:
    """Store an attempt from ``address`` for the normalized ``name``, if it is allowed.

    Names are counted separately for each ``kind``: anyone can use up the attempts of a user's name
    by failed sign-ins.

    Raises
    ------
    TooManyAttempts
        The next attempt is allowed only later.
    """
    now = time.time()
    # Hashes, because some people type their password into the name field, and because a name may
    # have any length.
    limits = {
        hash_of(f"{kind} {name}"): FOR_NAME,
        hash_of(f"address {network(address)}"): FROM_ADDRESS,
    }
    attempt = LoginAttempt((new_secret(), new_secret()), next(iter(limits)))
    _check(engine, limits, now, besides=0)
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.at <= now - WINDOW))
        for id, key in zip(attempt.ids, limits, strict=True):
            connection.execute(insert(table).values(id=id, key_hash=key, at=now))
    try:
        # Check again: other attempts may have been stored at the same moment.
        _check(engine, limits, now, besides=1)
    except TooManyAttempts:
        _take_back(engine, attempt.ids)
        raise
    return attempt


def succeeded(engine: Engine, attempt: LoginAttempt) -> None:
    """Delete an attempt that succeeded, and all earlier ones for the same name."""
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.key_hash == attempt.name))
    _take_back(engine, attempt.ids)


def withdraw(engine: Engine, attempt: LoginAttempt) -> None:
    """Delete an attempt, but keep earlier ones."""
    _take_back(engine, attempt.ids)


def network(address: str) -> str:
    """Return ``address``, or for IPv6 its /64 network, because one person has all of that."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return (
        str(ipaddress.ip_network(f"{parsed}/64", strict=False)) if parsed.version == 6 else address
    )


def _check(engine: Engine, limits: dict[bytes, int], now: float, *, besides: int) -> None:
    """Raise TooManyAttempts at the limit, not counting ``besides`` attempts of the caller."""
    until = now
    with engine.connect() as connection:
        for key, limit in limits.items():
            statement = (
                select(table.c.at)
                .where(table.c.key_hash == key, table.c.at > now - WINDOW)
                .order_by(table.c.at.desc())
                .offset(limit - 1 + besides)
                .limit(1)
            )
            # When this attempt is older than the window, there is room for another.
            last: float | None = connection.execute(statement).scalar()
            if last is not None:
                until = max(until, last + WINDOW)
    if until > now:
        raise TooManyAttempts(until)


def _take_back(engine: Engine, ids: Sequence[str]) -> None:
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.id.in_(ids)))
