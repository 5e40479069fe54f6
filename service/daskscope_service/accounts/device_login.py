"""``daskscope login``: a program gets a token in the name of a user who allows it (RFC 8628).

The program asks and gets two codes: a long one with which it polls, and a short one for the user
to compare. The user, signed in, looks at who asks and allows or denies it. At its next poll the
program gets its token, which is made only then, so that no secret lies in wait for it.
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
from daskscope_service.accounts.login_rate_limit import TooMany, network
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.accounts.tokens import GRANTS, USUAL, Scope
from daskscope_service.db.engine import take_turns, writing
from daskscope_service.db.schema import device_login as table

#: Seconds for which the codes are good, between two polls, and by which a hasty one slows down.
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
    """There is no token for the program, or not yet. ``error`` is the reason by RFC 8628.

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
class Begun:
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


def begin(engine: Engine, *, host: str, scopes: Iterable[Scope] = USUAL, address: str) -> Begun:
    """Let a program on ``host`` ask for a token, from ``address``.

    Raises
    ------
    TooMany
        Too many from this address wait for an answer.
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
            raise TooMany(first)
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
    return Begun(code, shown(user_code))


def shown(user_code: str) -> str:
    """Return a user's code as people read it: ``BCDF-GHJK``."""
    return f"{user_code[:4]}-{user_code[4:]}"


def find(engine: Engine, user_code: str) -> Asked | None:
    """Return the login with this code, in any case; None if none waits for an answer."""
    with engine.connect() as connection:
        return _waiting(connection, user_code)


def answer(
    engine: Engine, user_code: str, caller: Caller, *, workspace: str, allow: bool
) -> Asked | None:
    """Allow a program its token, in ``workspace``, or deny it; return who asked.

    None if no one waits for an answer, or if the caller may not allow any of it.
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
    """Return the token that the program with this code was allowed, its workspace and its scopes.

    Raises
    ------
    NoToken
        Not yet, or not any more.
    """
    now = time.time()
    waiting = select(table).where(table.c.code_hash == hash_of(code), table.c.expires_at > now)
    with engine.connect() as connection:  # who makes codes up takes no one's turn to write
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
    """Return what of ``asked`` the user may allow; who came with a link has ``grants``."""
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
