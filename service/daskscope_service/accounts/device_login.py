"""``daskscope login``: a program gets a token in the name of a user who allows it (RFC 8628).

The program gets two codes: a long one with which it polls, and a short one for the user to compare.
The signed-in user sees which host asks, and allows or denies it. The token is created only when the
program polls next, so that no secret is stored in the meantime.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from daskscope.one_line import one_line
from daskscope_service.accounts import audit, tokens
from daskscope_service.accounts.caller import Caller, granted
from daskscope_service.accounts.login_rate_limit import TooManyAttempts, network
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.accounts.tokens import GRANTS, USUAL, Scope
from daskscope_service.db.engine import take_turns, writing
from daskscope_service.db.schema import device_login as table

#: Seconds: how long the codes are valid, how long to wait between two polls, and how much longer
#: after a poll that came too early.
SECONDS = 15 * 60.0
INTERVAL = 5.0
SLOWER = 5.0

#: How many logins from one address may wait at the same time.
FROM_ADDRESS = 30

LONGEST_HOST = 100

#: Without vowels, so that no words come out, and without digits.
_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
_LENGTH = 8


class NoToken(Exception):
    """The program gets no token, or not yet. ``error`` is the reason, as RFC 8628 names it.

    ``interval`` is the number of seconds to wait between two polls.
    """

    def __init__(
        self,
        error: Literal["authorization_pending", "slow_down", "access_denied", "expired_token"],
        interval: float = INTERVAL,
    ) -> None:
        super().__init__(error)
        self.error = error
        self.interval = interval


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """The answer to a program that wants to log in. ``code`` is secret, ``user_code`` is not."""

    code: str
    user_code: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What is shown to the user: a program on ``host`` asks for a token of ``scopes``."""

    user_code: str
    host: str
    address: str
    scopes: tuple[Scope, ...]
    created_at: float


def begin(
    engine: Engine, *, host: str, scopes: Iterable[Scope] = USUAL, address: str
) -> BegunLogin:
    """Start a login for a program on ``host``, from ``address``.

    Raises
    ------
    TooManyAttempts
        Too many logins from this address wait for an answer.
    """
    code = new_secret()
    user_code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    now = time.time()
    host = one_line(host[:LONGEST_HOST]) or "unknown"
    with writing(engine) as connection:
        take_turns(connection, f"logins from {network(address)}")
        connection.execute(delete(table).where(table.c.expires_at <= now))
        mine = table.c.address == network(address)
        waiting, first = connection.execute(
            select(func.count(), func.min(table.c.expires_at)).where(mine)
        ).one()
        if waiting >= FROM_ADDRESS:
            raise TooManyAttempts(first)
        connection.execute(
            insert(table).values(
                code_hash=hash_of(code),
                user_code=user_code,
                host=host,
                address=network(address),
                scopes=" ".join(sorted(set(scopes))),
                created_at=now,
                expires_at=now + SECONDS,
                interval=INTERVAL,
            )
        )
    return BegunLogin(code, shown(user_code))


def shown(user_code: str) -> str:
    """Return a user code as it is displayed: ``BCDF-GHJK``."""
    return f"{user_code[:4]}-{user_code[4:]}"


def find(engine: Engine, user_code: str) -> Asked | None:
    """Return the waiting login with this code, compared without case; None if there is none."""
    with engine.connect() as connection:
        return _waiting(connection, user_code)


def answer(
    engine: Engine, user_code: str, caller: Caller, *, workspace: str, allow: bool
) -> Asked | None:
    """Allow a program its token, in ``workspace``, or deny it; return the login.

    Return None if no login waits with this code, or if the caller may allow none of its scopes.
    """
    with writing(engine) as connection:
        asked = _waiting(connection, user_code)
        if asked is None:
            return None
        if caller.user is None or not allow:
            workspace = caller.workspace
        if allow and not _granted(connection, asked.scopes, caller.user, workspace, caller.grants):
            return None
        done = connection.execute(
            update(table)
            .where(table.c.user_code == _as_compared(user_code), table.c.answer.is_(None))
            .values(
                answer="allowed" if allow else "denied",
                answered_by=caller.name,
                workspace=workspace,
                user=caller.user,
            )
        )
        if done.rowcount == 0:  # another answer came at the same moment
            return None
        audit.write(
            connection,
            "login allowed" if allow else "login denied",
            actor=caller.name,
            detail=f"{asked.host}, from {asked.address}",
            workspace=workspace,
            address=caller.address,
        )
    return asked


def collect(engine: Engine, code: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the token of the login with this code, its workspace and its scopes.

    Raises
    ------
    NoToken
        The login is not allowed yet, or was denied, or the code has expired or was used.
    """
    now = time.time()
    waiting = select(table).where(table.c.code_hash == hash_of(code), table.c.expires_at > now)
    with engine.connect() as connection:  # an invented code must not take the write lock
        if connection.execute(waiting).first() is None:
            raise NoToken("expired_token")
    with writing(engine) as connection:
        row = connection.execute(waiting.with_for_update()).first()
        if row is None:
            raise NoToken("expired_token")
        if row.answer == "denied":
            raise NoToken("access_denied")
        if row.answer == "allowed":
            return _hand_over(connection, row)
        hasty = row.polled_at is not None and now - row.polled_at < row.interval
        interval = row.interval + SLOWER if hasty else row.interval
        connection.execute(
            update(table)
            .where(table.c.code_hash == row.code_hash)
            .values(polled_at=now, interval=interval)
        )
    raise NoToken("slow_down" if hasty else "authorization_pending", math.ceil(interval))


def _hand_over(connection: Connection, row: Any) -> tuple[str, str, tuple[str, ...]]:
    # What the user may do can have changed since they allowed it.
    asked = cast("list[Scope]", row.scopes.split())
    scopes = _granted(connection, asked, row.user, row.workspace, GRANTS["owner"])
    if not scopes:
        raise NoToken("access_denied")
    connection.execute(delete(table).where(table.c.code_hash == row.code_hash))
    token = tokens.add(
        connection,
        workspace=row.workspace,
        label=f"daskscope login on {row.host}"[: tokens.LONGEST_LABEL],
        scopes=scopes,
        made_by=row.answered_by,
        user=row.user,
        address=row.address,
    )
    return token, row.workspace, scopes


def _granted(
    connection: Connection,
    asked: Iterable[Scope],
    user: str | None,
    workspace: str,
    grants: tuple[Scope, ...],
) -> tuple[Scope, ...]:
    """Return which ``asked`` scopes the user may allow; without a user, ``grants`` decides."""
    allowed = set(grants) if user is None else set(granted(connection, user, workspace))
    return tuple(scope for scope in asked if scope in allowed)


def _waiting(connection: Connection, user_code: str) -> Asked | None:
    columns = (
        table.c.user_code,
        table.c.host,
        table.c.address,
        table.c.scopes,
        table.c.created_at,
    )
    row = connection.execute(
        select(*columns).where(
            table.c.user_code == _as_compared(user_code),
            table.c.expires_at > time.time(),
            table.c.answer.is_(None),
        )
    ).first()
    if row is None:
        return None
    return Asked(
        user_code=shown(row.user_code),
        host=row.host,
        address=row.address,
        scopes=cast("tuple[Scope, ...]", tuple(row.scopes.split())),
        created_at=row.created_at,
    )


def _as_compared(user_code: str) -> str:
    return "".join(c for c in user_code.upper() if c in _ALPHABET)
