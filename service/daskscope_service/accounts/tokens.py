"""Tokens: what a program shows to send beats (scope ``ingest``) or to ask (scope ``read``).

A token reads ``dsk_<id>_<secret>``. The id is shown in lists and logs, the secret only once, when
the token is made. A token belongs to one workspace.
"""

from __future__ import annotations

import functools
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Dialect, Engine, bindparam, insert, or_, select, update
from sqlalchemy.exc import DBAPIError

from daskscope_service.accounts import audit
from daskscope_service.accounts.secret import LENGTH, hash_of, new_secret
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import token as table
from daskscope_service.db.statements import Lookup

Scope = Literal["ingest", "read"]
SCOPES: tuple[Scope, ...] = ("ingest", "read")

#: Without letters and digits that look alike.
_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 10
_FORMAT = re.compile(rf"dsk_([{_ID_ALPHABET}]{{{_ID_LENGTH}}})_([0-9a-f]{{{LENGTH}}})")

#: ``last_used_at`` is written at most this often, in seconds: a write per request costs too much.
_USE_NOTED_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are seconds since the epoch, UTC."""

    id: str
    workspace: str
    label: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None

    def state(self, now: float) -> Literal["active", "expired", "revoked"]:
        """Return whether the token is of use at ``now``, and why not."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"


_COLUMNS = [column for column in table.columns if column.name != "secret_hash"]
_BY_ID = select(table.c.secret_hash, *_COLUMNS).where(table.c.id == bindparam("id"))


@functools.cache
def _by_id(dialect: Dialect) -> Lookup:
    return Lookup(dialect, _BY_ID)


def create(
    engine: Engine,
    *,
    workspace: str,
    label: str,
    scopes: Iterable[Scope] = SCOPES,
    expires_at: float | None = None,
) -> str:
    """Make a token and return it as text: the only time that its secret can be seen.

    The workspace is made if it is missing. ``expires_at`` is in seconds since the epoch.
    """
    scopes = sorted(set(scopes))
    identifier = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = new_secret()
    with writing(engine) as connection:
        make_workspace(connection, workspace)
        connection.execute(
            insert(table).values(
                id=identifier,
                workspace=workspace,
                label=label,
                scopes=" ".join(scopes),
                secret_hash=hash_of(secret),
                created_at=time.time(),
                expires_at=expires_at,
            )
        )
        audit.write(
            connection,
            "token made",
            detail=f"{identifier} ({label}): {', '.join(scopes)}",
            workspace=workspace,
        )
    return f"dsk_{identifier}_{secret}"


def find(engine: Engine, text: str) -> Token | None:
    """Return the token that ``text`` is, whatever its state; None if there is no such token."""
    parts = _FORMAT.fullmatch(text)
    if parts is None:
        return None
    identifier, secret = parts.groups()
    row = _by_id(engine.dialect).first(engine, id=identifier)
    if row is None or not hmac.compare_digest(row[0], hash_of(secret)):
        return None
    return _token(row[1:])


def note_use(engine: Engine, token: Token, now: float) -> None:
    """Write down that ``token`` was used at ``now``, unless that was done a moment ago."""
    due = now - _USE_NOTED_EVERY
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


def list_in(engine: Engine, workspace: str) -> list[Token]:
    """Return the tokens of ``workspace``, newest first."""
    statement = select_in(workspace, table, *_COLUMNS).order_by(table.c.created_at.desc())
    with engine.connect() as connection:
        return [_token(row) for row in connection.execute(statement)]


def revoke(engine: Engine, workspace: str, identifier: str) -> bool:
    """Revoke the token of this id for good; False if the workspace has no such token."""
    with writing(engine) as connection:
        found = connection.execute(
            update(table)
            .where(table.c.workspace == workspace, table.c.id == identifier)
            .values(revoked_at=time.time())
        )
        if found.rowcount > 0:
            audit.write(connection, "token revoked", detail=identifier, workspace=workspace)
        return found.rowcount > 0


def _token(row: Sequence[Any]) -> Token:
    identifier, workspace, label, scopes, *times = row
    return Token(identifier, workspace, label, tuple(scopes.split()), *times)
