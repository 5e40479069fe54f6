"""Limits attempts to sign in with a password, in the database, for all processes.

An attempt is written down before the password is looked at, so that many at once do not all pass.
One that succeeds is taken back, with those before it for the same name. One that is refused here
does not count: who waits as long as the answer says, may try.
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

#: How many attempts may fail in that time, for one name, and from one address.
FOR_NAME = 10
FROM_ADDRESS = 30

#: What an attempt names: a user, the workspace of an invitation, who types a program's code, or a
#: token that lets nobody in.
Kind = Literal["name", "invitation", "code", "token"]


class TooMany(Exception):
    """Too many attempts have failed. ``until``: when to come again, in seconds since the epoch."""

    def __init__(self, until: float) -> None:
        super().__init__(f"too many attempts to sign in; try again at {until:.0f}")
        self.until = until

    @property
    def seconds(self) -> int:
        """How long to wait."""
        return max(1, round(self.until - time.time() + 0.5))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One that may go on: the rows that were written down for it."""

    ids: tuple[str, ...]
    name: bytes


def begin(engine: Engine, name: str, address: str, *, kind: Kind) -> Attempt:
    """Write down that someone at ``address`` tries to get in by ``name``, as it is compared.

    Each ``kind`` has names of its own: anyone can use up those of users, by sign-ins.

    Raises
    ------
    TooMany
        They must wait.
    """
    now = time.time()
    # Hashes, as some type the password where the name belongs, and a name may have any length.
    limits = {
        hash_of(f"{kind} {name}"): FOR_NAME,
        hash_of(f"address {network(address)}"): FROM_ADDRESS,
    }
    attempt = Attempt((new_secret(), new_secret()), next(iter(limits)))
    _check(engine, limits, now, besides=0)
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.at <= now - WINDOW))
        for id, key in zip(attempt.ids, limits, strict=True):
            connection.execute(insert(table).values(id=id, key_hash=key, at=now))
    try:
        # Once more, as others may have come at the same moment.
        _check(engine, limits, now, besides=1)
    except TooMany:
        _take_back(engine, attempt.ids)
        raise
    return attempt


def succeeded(engine: Engine, attempt: Attempt) -> None:
    """Take back an attempt, and all before it for the same name."""
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.key_hash == attempt.name))
    _take_back(engine, attempt.ids)


def withdraw(engine: Engine, attempt: Attempt) -> None:
    """Take back an attempt, and leave those before it."""
    _take_back(engine, attempt.ids)


def network(address: str) -> str:
    """Return ``address``, or with IPv6 its network, because one person has all of it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network(f"{found}/64", strict=False)) if found.version == 6 else address


def _check(engine: Engine, limits: dict[bytes, int], now: float, *, besides: int) -> None:
    """Raise TooMany if there are as many attempts as may be, ``besides`` this one's own."""
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
            # Once this one does not count any more, there is room for another.
            last: float | None = connection.execute(statement).scalar()
            if last is not None:
                until = max(until, last + WINDOW)
    if until > now:
        raise TooMany(until)


def _take_back(engine: Engine, ids: Sequence[str]) -> None:
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.id.in_(ids)))
