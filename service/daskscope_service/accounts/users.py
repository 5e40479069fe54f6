"""Users, and their roles in workspaces.

A user signs in with a name, compared without case, and a password. A role defines what a user may
do in a workspace; without a role they do not see the workspace.
"""

from __future__ import annotations

import secrets
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Row, Select, delete, select, update

from daskscope_service.accounts import audit, passwords, tokens
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.db.schema import identity, member, session
from daskscope_service.db.schema import user as table
from daskscope_service.db.statements import Upsert

Role = Literal["owner", "member", "viewer"]
ROLES: tuple[Role, ...] = ("owner", "member", "viewer")

_LONGEST_NAME = 200
_UNFIT = (
    f"the name must have 1 to {_LONGEST_NAME} printable characters, and no leading or "
    "trailing spaces"
)


class UnfitName(ValueError):
    """A sign-in name that cannot be used. The message says why."""


@dataclass(frozen=True, slots=True)
class User:
    """A user without the password. Times are seconds since the epoch, UTC.

    ``made_in``: the workspace whose invitation created the account. Whoever opened the invitation
    chose the password, so the name proves nothing to other workspaces. None once someone vouches
    for it.
    """

    id: str
    name: str
    display_name: str
    created_at: float
    disabled_at: float | None
    made_in: str | None = None


_COLUMNS = tuple(table.c[name] for name in User.__slots__)


def create(
    engine: Engine, *, name: str, password: str, workspace: str, role: Role, display_name: str = ""
) -> User:
    """Create a user with a role in one workspace, which is created if it is missing.

    Raises
    ------
    UnfitName
        The name is empty, too long or taken, or has spaces around it or unprintable characters.
    UnfitPassword
        See :func:`passwords.check`.
    """
    if key_of(name) is None:
        raise UnfitName(_UNFIT)
    passwords.check(password, name)
    hashed = passwords.hash_of(password)  # slow, so it runs before the transaction
    with writing(engine) as connection:
        user = add(connection, name=name, password_hash=hashed, display_name=display_name)
        give_role(connection, user.id, workspace, role)
    return user


def add(
    connection: Connection,
    *,
    name: str,
    password_hash: str,
    display_name: str = "",
    made_in: str | None = None,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> User:
    """Create a user in no workspace. ``password_hash`` is "" for one who signs in another way.

    ``made_in``: see :class:`User`.

    Raises
    ------
    UnfitName
        As for :func:`create`.
    """
    name_key = key_of(name)
    if name_key is None:
        raise UnfitName(_UNFIT)
    user = User(secrets.token_hex(8), name, display_name or name, time.time(), None, made_in)
    columns = ("id", "name", "name_key", "display_name", "password_hash", "created_at", "made_in")
    values = (user.id, name, name_key, user.display_name, password_hash, user.created_at, made_in)
    # If two users with this name are added at the same moment, the second row is not inserted.
    Upsert(connection.engine, table, key=("name_key",), columns=columns).run(connection, [values])
    if connection.execute(select(table.c.id).where(table.c.id == user.id)).first() is None:
        raise UnfitName(f"there is already a user {name}")
    audit.write(connection, "user made", actor=actor, detail=name, address=address)
    return user


def find(engine: Engine, name: str) -> User | None:
    """Return the user who signs in as ``name``; None if there is no such user."""
    with engine.connect() as connection:
        row = by_name(connection, name, *_COLUMNS)
    return None if row is None else _user(row)


def by_name(connection: Connection, name: str, *columns: Any) -> Row[Any] | None:
    """Return ``columns`` of the user who signs in as ``name``; None if there is no such user."""
    name_key = key_of(name)
    if name_key is None:
        return None
    return connection.execute(select(*columns).where(table.c.name_key == name_key)).first()


def list_all(engine: Engine) -> list[tuple[User, dict[str, str]]]:
    """Return all users, sorted by name, each with the role in each workspace."""
    roles: dict[str, dict[str, str]] = {}
    with engine.connect() as connection:
        for workspace, user, role in connection.execute(select(member).order_by(*member.c)):
            roles.setdefault(user, {})[workspace] = role
        rows = connection.execute(select(*_COLUMNS).order_by(table.c.name_key)).all()
    return [(_user(row), roles.get(row.id, {})) for row in rows]


def workspaces_of(engine: Engine, user: str) -> list[str]:
    """Return the workspaces in which the user with this id has a role, sorted by name."""
    with engine.connect() as connection:
        return list(connection.execute(workspaces_query(user)).scalars())


def roles_of(engine: Engine, user: str) -> dict[str, str]:
    """Return the role of the user with this id in each of their workspaces, sorted by workspace."""
    statement = (
        select(member.c.workspace, member.c.role)
        .where(member.c.user == user)
        .order_by(member.c.workspace)
    )
    with engine.connect() as connection:
        return {row.workspace: row.role for row in connection.execute(statement)}


def workspaces_query(user: str) -> Select[Any]:
    """Return the SELECT of the workspaces in which the user has a role, sorted by name."""
    return select(member.c.workspace).where(member.c.user == user).order_by(member.c.workspace)


def set_role(engine: Engine, user: User, workspace: str, role: Role) -> None:
    """Give ``user`` a role in a workspace, which is created if it is missing.

    Tokens of theirs that can do more than the role are revoked.
    """
    with writing(engine) as connection:
        give_role(connection, user.id, workspace, role)


def vouch_for(engine: Engine, user: User) -> None:
    """Confirm that the account of ``user`` belongs to whom it names: see :class:`User`."""
    with writing(engine) as connection:
        connection.execute(update(table).where(table.c.id == user.id).values(made_in=None))
        audit.write(connection, "user vouched for", detail=user.name)


def take_role(engine: Engine, user: User, workspace: str) -> bool:
    """Remove ``user`` from a workspace, revoke their tokens there; False if not in it."""
    with writing(engine) as connection:
        return give_role(connection, user.id, workspace, None)


def give_role(
    connection: Connection,
    user: str,
    workspace: str,
    role: Role | None,
    *,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> bool:
    """Set the role of the user with this id in a workspace; return False if it does not change.

    ``role`` None removes the user from it. The workspace is created if it is missing. Tokens that
    can do more than the role are revoked. ``actor`` sets it from ``address``.
    """
    here = (member.c.workspace == workspace, member.c.user == user)
    before = connection.execute(select(member.c.role).where(*here).with_for_update()).scalar()
    if before == role:
        return False
    if role is None:
        connection.execute(delete(member).where(*here))
    else:
        make_workspace(connection, workspace)
        Upsert(connection.engine, member, replace=("role",)).run(
            connection, [(workspace, user, role)]
        )
    name = connection.execute(select(table.c.name).where(table.c.id == user)).scalar()
    audit.write(
        connection,
        "role changed",
        actor=actor,
        detail=f"{name}: {role or 'none'}",
        workspace=workspace,
        address=address,
    )
    tokens.revoke_beyond(
        connection, user, workspace=workspace, role=role, actor=actor, address=address
    )
    return True


def set_disabled(engine: Engine, user: User, disabled: bool) -> None:
    """Disable or enable ``user``; in both cases, end their sessions and revoke all their tokens."""
    with writing(engine) as connection:
        connection.execute(
            update(table)
            .where(table.c.id == user.id)
            .values(disabled_at=time.time() if disabled else None)
        )
        connection.execute(delete(session).where(session.c.user == user.id))
        audit.write(connection, "user disabled" if disabled else "user enabled", detail=user.name)
        tokens.revoke_beyond(connection, user.id)


def remove(engine: Engine, user: User) -> None:
    """Remove ``user``, with their roles and sessions, and revoke their tokens."""
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.id == user.id))
        connection.execute(delete(member).where(member.c.user == user.id))
        connection.execute(delete(identity).where(identity.c.user == user.id))
        connection.execute(delete(session).where(session.c.user == user.id))
        audit.write(connection, "user removed", detail=user.name)
        tokens.revoke_beyond(connection, user.id)


def set_password(
    engine: Engine,
    user: User,
    password: str,
    *,
    keep_session: bytes | None = None,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> None:
    """Give ``user`` another password, and end their sessions except the one with this hash.

    ``actor`` does so from ``address``.

    Raises
    ------
    UnfitPassword
        See :func:`passwords.check`.
    """
    passwords.check(password, user.name)
    hashed = passwords.hash_of(password)
    others = delete(session).where(session.c.user == user.id)
    if keep_session is not None:
        others = others.where(session.c.id_hash != keep_session)
    with writing(engine) as connection:
        values: dict[str, Any] = {"password_hash": hashed}
        if actor == audit.OPERATOR:
            values["made_in"] = None  # the password from the invitation is gone
        connection.execute(update(table).where(table.c.id == user.id).values(values))
        connection.execute(others)
        audit.write(connection, "password changed", actor=actor, detail=user.name, address=address)


def has_password(engine: Engine, user: str) -> bool:
    """Return whether the user with this id can sign in with a password."""
    with engine.connect() as connection:
        rows = connection.execute(select(table.c.password_hash).where(table.c.id == user))
        return bool(rows.scalar())


def key_of(name: str) -> str | None:
    """Return the normalized name by which users are compared; None if no user can have it."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
        return None
    return unicodedata.normalize("NFKC", name).casefold()


def _user(row: Sequence[Any]) -> User:
    return User(*row)
