"""Tokens, with which programs send heartbeats, read data or manage a workspace.

A token has the form ``dsk_<id>_<secret>``. Lists and logs show the id; the secret is shown only
once, when the token is created. A token belongs to one workspace and, if a user created it, to that
user. It is revoked when its user loses the rights that it has.
"""

from __future__ import annotations

import functools
import hmac
import re
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    Select,
    Update,
    and_,
    bindparam,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError

from daskscope_service.accounts import audit
from daskscope_service.accounts.secret import LENGTH, hash_of, new_secret
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import token as table
from daskscope_service.db.statements import Lookup

#: ``ingest``: send data. ``read``: read data. ``admin``: change, by the API only, what its user may
#: change, or what an owner may if it belongs to no user. No scope includes another.
Scope = Literal["ingest", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("ingest", "read", "admin")

#: The scopes of a token if none are named.
USUAL: tuple[Scope, ...] = ("ingest", "read")

#: The scopes that each role may give to a token: nobody can give more rights than they have.
GRANTS: dict[str, tuple[Scope, ...]] = {
    "owner": SCOPES,
    "member": SCOPES,
    "viewer": ("read",),
}

LONGEST_LABEL = 100

#: Without letters and digits that look alike.
_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 10
_FORMAT = re.compile(rf"dsk_([{_ID_ALPHABET}]{{{_ID_LENGTH}}})_([0-9a-f]{{{LENGTH}}})")

#: ``last_used_at`` is written at most this often, in seconds: a write per request costs too much.
USE_NOTED_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are seconds since the epoch, UTC.

    ``made_by`` is None if it is not known, ``user`` if the token belongs to no user.
    """

    id: str
    workspace: str
    label: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    made_by: str | None
    user: str | None

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return whether the token works at ``now``, or why not."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"


_COLUMNS = [column for column in table.columns if column.name != "secret_hash"]
_BY_ID = select(table.c.secret_hash, *_COLUMNS).where(table.c.id == bindparam("id"))


_NOT_REVOKED = select(table.c.id).where(table.c.id == bindparam("id"), table.c.revoked_at.is_(None))


@functools.cache
def _in_force(dialect: Dialect) -> Lookup:
    return Lookup(dialect, _NOT_REVOKED)


@functools.cache
def _by_id(dialect: Dialect) -> Lookup:
    return Lookup(dialect, _BY_ID)


def create(
    engine: Engine,
    *,
    workspace: str,
    label: str,
    scopes: Iterable[Scope] = USUAL,
    expires_at: float | None = None,
    made_by: str = audit.OPERATOR,
    user: str | None = None,
    address: str | None = None,
) -> str:
    """Create a token and return its text: the only time that its secret can be seen.

    The workspace is created if it is missing. ``expires_at`` is in seconds since the epoch.
    ``made_by`` creates it from ``address``; it belongs to the user whose id is ``user``.
    """
    with writing(engine) as connection:
        make_workspace(connection, workspace)
        return add(
            connection,
            workspace=workspace,
            label=label,
            scopes=scopes,
            expires_at=expires_at,
            made_by=made_by,
            user=user,
            address=address,
        )


def add(
    connection: Connection,
    *,
    workspace: str,
    label: str,
    scopes: Iterable[Scope],
    expires_at: float | None = None,
    made_by: str,
    user: str | None,
    address: str | None,
) -> str:
    """Create a token as :func:`create` does, in the caller's transaction."""
    scopes = sorted(set(scopes))
    label = "".join(c if c.isprintable() else " " for c in label)  # it is shown in terminals, too
    identifier = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = new_secret()
    connection.execute(
        insert(table).values(
            id=identifier,
            workspace=workspace,
            label=label,
            scopes=" ".join(scopes),
            secret_hash=hash_of(secret),
            created_at=time.time(),
            expires_at=expires_at,
            made_by=made_by,
            user=user,
        )
    )
    audit.write(
        connection,
        "token made",
        actor=made_by,
        detail=f"{identifier} ({label}): {', '.join(scopes)}",
        workspace=workspace,
        address=address,
    )
    return f"dsk_{identifier}_{secret}"


def id_of(text: str) -> str:
    """Return the readable id of a token."""
    return text.split("_")[1]


def find(engine: Engine, text: str) -> Token | None:
    """Return the token with this text, whatever its state; None if there is no such token."""
    parts = _FORMAT.fullmatch(text)
    if parts is None:
        return None
    identifier, secret = parts.groups()
    row = _by_id(engine.dialect).first(engine, id=identifier)
    if row is None or not hmac.compare_digest(row[0], hash_of(secret)):
        return None
    return _token(row[1:])


def in_force(connection: Connection, identifiers: Collection[str]) -> bool:
    """Return whether all tokens with these ids exist and none is revoked; they may be expired."""
    lookup = _in_force(connection.dialect)
    return all(lookup.within(connection, id=identifier) for identifier in identifiers)


def note_use(engine: Engine, token: Token, now: float) -> None:
    """Store that ``token`` was used at ``now``, unless that was done less than a minute ago."""
    due = now - USE_NOTED_EVERY
    if token.last_used_at is not None and token.last_used_at > due:
        return
    try:
        with writing(engine) as connection:
            connection.execute(
                update(table)
                .where(table.c.id == token.id)
                .where(or_(table.c.last_used_at.is_(None), table.c.last_used_at <= due))
                .values(last_used_at=now)
            )
    except DBAPIError:
        pass  # a request must not fail for this: reading still works when the disk is full


def list_in(
    engine: Engine,
    workspace: str,
    *,
    active: bool | None = None,
    limit: int | None = None,
    after: tuple[float, str] | None = None,
) -> list[Token]:
    """Return the tokens of ``workspace``, newest first.

    ``active``: only tokens in force, or only the others. ``limit``: at most this many. ``after``:
    only tokens older than the one with this time of creation and id.
    """
    statement = _in(workspace, active, *_COLUMNS)
    if after is not None:
        place = tuple_(table.c.created_at, table.c.id)
        statement = statement.where(place < tuple_(*map(literal, after)))
    statement = statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
    with engine.connect() as connection:
        return [_token(row) for row in connection.execute(statement)]


def count_in(engine: Engine, workspace: str, *, active: bool) -> int:
    """Return how many tokens of ``workspace`` are in force, or how many are not."""
    with engine.connect() as connection:
        return int(connection.execute(_in(workspace, active, func.count())).scalar_one())


def _in(workspace: str, active: bool | None, *columns: Any) -> Select[Any]:
    statement = select_in(workspace, table, *columns)
    if active is None:
        return statement
    works = or_(table.c.expires_at.is_(None), table.c.expires_at > time.time())
    force = and_(table.c.revoked_at.is_(None), works)
    return statement.where(force if active else not_(force))


def one_in(engine: Engine, workspace: str, identifier: str) -> Token | None:
    """Return the token with this id in ``workspace``; None if there is none."""
    statement = select_in(workspace, table, *_COLUMNS).where(table.c.id == identifier)
    with engine.connect() as connection:
        row = connection.execute(statement).first()
    return None if row is None else _token(row)


def revoke(
    engine: Engine,
    workspace: str,
    identifier: str,
    *,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> bool:
    """Revoke the token with this id for good; return False if the workspace has no such token.

    ``actor`` revokes it from ``address``.
    """
    one = _revoking().where(table.c.workspace == workspace, table.c.id == identifier)
    with writing(engine) as connection:
        if _revoke(connection, one, actor, address):
            return True
        known = select_in(workspace, table, table.c.id).where(table.c.id == identifier)
        return connection.execute(known).first() is not None


def revoke_all(
    engine: Engine,
    *,
    workspace: str | None,
    user: str | None = None,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> int:
    """Revoke all tokens of a workspace, of a user, or of a user in a workspace; return how many.

    ``user`` is an id. If ``workspace`` is None, the user's tokens in all workspaces are revoked.
    """
    statement = _revoking()
    if workspace is not None:
        statement = statement.where(table.c.workspace == workspace)
    if user is not None:
        statement = statement.where(table.c.user == user)
    elif workspace is None:
        raise TypeError("name a workspace or a user: otherwise all tokens would be revoked")
    with writing(engine) as connection:
        return _revoke(connection, statement, actor, address)


def revoke_beyond(
    connection: Connection,
    user: str,
    *,
    workspace: str | None = None,
    role: str | None = None,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> int:
    """Revoke the tokens of the user with this id that can do more than ``role``; return how many.

    ``workspace`` is None for all workspaces, ``role`` is None for a user who may do nothing any
    more.
    """
    statement = _revoking().where(table.c.user == user)
    if workspace is not None:
        statement = statement.where(table.c.workspace == workspace)
    if role is not None:
        beyond = set(SCOPES) - set(GRANTS[role])
        statement = statement.where(or_(False, *(table.c.scopes.contains(one) for one in beyond)))
    return _revoke(connection, statement, actor, address)


def _revoking() -> Update:
    return update(table).where(table.c.revoked_at.is_(None)).values(revoked_at=time.time())


def _revoke(connection: Connection, which: Update, actor: str, address: str | None) -> int:
    revoked = connection.execute(which.returning(table.c.workspace, table.c.id, table.c.label))
    rows = revoked.all()
    for workspace, identifier, label in rows:
        audit.write(
            connection,
            "token revoked",
            actor=actor,
            detail=f"{identifier} ({label})",
            workspace=workspace,
            address=address,
        )
    return len(rows)


def _token(row: Sequence[Any]) -> Token:
    identifier, workspace, label, scopes, *others = row
    return Token(identifier, workspace, label, tuple(scopes.split()), *others)
