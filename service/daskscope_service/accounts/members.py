"""Members of a workspace, and invitations to it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
)

from daskscope_service.accounts import audit, login_rate_limit, passwords, sessions, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.accounts.users import Role, UnfitName
from daskscope_service.db.engine import take_turns, writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import invitation, member, user

#: Seconds for which an invitation is valid, and how many of a workspace may be open.
SECONDS = 7 * 24 * 60 * 60.0
MOST_OPEN = 200

_PAGE = "/invitation"


class LastOwner(Exception):
    """The workspace would have no owner any more."""


class TooManyOpen(Exception):
    """The workspace has the largest allowed number of open invitations."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a workspace. ``active``: not disabled."""

    user: str
    name: str
    display_name: str
    role: str
    active: bool


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open invitation, without its code. Times are seconds since the epoch, UTC."""

    id: str
    workspace: str
    name: str
    role: Role
    made_by: str
    created_at: float
    expires_at: float


_COLUMNS = [invitation.c[name] for name in Invitation.__slots__]


def list_in(
    engine: Engine, workspace: str, *, limit: int | None = None, after: str | None = None
) -> list[Member]:
    """Return the members of ``workspace``, sorted by name.

    ``limit``: at most this many. ``after``: only members whose name follows this one.
    """
    columns = (user.c.id, user.c.name, user.c.display_name, member.c.role, user.c.disabled_at)
    statement = (
        select_in(workspace, member, *columns)
        .join(user, user.c.id == member.c.user)
        .order_by(user.c.name_key)
        .limit(limit)
    )
    if after is not None:
        statement = statement.where(user.c.name_key > (users.key_of(after) or after))
    with engine.connect() as connection:
        return [
            Member(row.id, row.name, row.display_name, row.role, row.disabled_at is None)
            for row in connection.execute(statement)
        ]


def count_in(engine: Engine, workspace: str) -> int:
    """Return how many members ``workspace`` has."""
    with engine.connect() as connection:
        return int(connection.execute(select_in(workspace, member, func.count())).scalar_one())


def change(engine: Engine, caller: Caller, user_id: str, role: Role | None) -> bool:
    """Give the member with this id another role in the caller's workspace; None removes them.

    Return False if they are not a member: new members need an invitation.

    Raises
    ------
    LastOwner
        No owner who can sign in would be left.
    """
    here = and_(member.c.workspace == caller.workspace, member.c.user == user.c.id)
    with writing(engine) as connection:
        # Locked, so that two owners cannot remove each other at the same moment.
        members_here = select(user.c.id, member.c.role, user.c.disabled_at).join(member, here)
        rows = connection.execute(members_here.order_by(user.c.id).with_for_update()).all()
        if user_id not in {row.id for row in rows}:
            return False
        owners = {row.id for row in rows if row.role == "owner" and row.disabled_at is None}
        if role != "owner" and owners == {user_id}:
            raise LastOwner
        where, who = caller.workspace, caller.name
        users.give_role(connection, user_id, where, role, actor=who, address=caller.address)
    return True


def invite(engine: Engine, caller: Caller, name: str, role: Role) -> tuple[str, str]:
    """Invite someone into the caller's workspace; return the invitation's id and its secret code.

    ``name`` is what they will sign in with, if they have no account yet.

    Raises
    ------
    UnfitName
        No user can have this name.
    TooManyOpen
        See :data:`MOST_OPEN`.
    """
    if users.key_of(name) is None:
        raise UnfitName("the name must have 1 to 200 characters, and no leading or trailing spaces")
    identifier, code, now = secrets.token_hex(8), new_secret(), time.time()
    with writing(engine) as connection:
        take_turns(connection, f"invitations to {caller.workspace}")
        connection.execute(delete(invitation).where(invitation.c.expires_at <= now))
        mine = select_in(caller.workspace, invitation, func.count())
        if connection.execute(mine).scalar_one() >= MOST_OPEN:
            raise TooManyOpen
        connection.execute(
            insert(invitation).values(
                id=identifier,
                code_hash=hash_of(code),
                workspace=caller.workspace,
                name=name,
                role=role,
                made_by=caller.name,
                user=caller.user,
                created_at=now,
                expires_at=now + SECONDS,
            )
        )
        audit.write(
            connection,
            "invited",
            actor=caller.name,
            detail=f"{name}: {role}",
            workspace=caller.workspace,
            address=caller.address,
        )
    return identifier, code


def invitations_in(engine: Engine, workspace: str) -> list[Invitation]:
    """Return the open invitations of ``workspace``, newest first."""
    statement = (
        select_in(workspace, invitation, *_COLUMNS)
        .where(_is_open())
        .order_by(invitation.c.created_at.desc(), invitation.c.id)
    )
    with engine.connect() as connection:
        return [Invitation(*row) for row in connection.execute(statement)]


def take_back(engine: Engine, caller: Caller, identifier: str) -> bool:
    """Revoke an invitation of the caller's workspace; return False if none has this id."""
    with writing(engine) as connection:
        row = connection.execute(
            delete(invitation)
            .where(invitation.c.workspace == caller.workspace, invitation.c.id == identifier)
            .returning(invitation.c.name, invitation.c.role)
        ).first()
        if row is not None:
            audit.write(
                connection,
                "invitation taken back",
                actor=caller.name,
                detail=f"{row.name}: {row.role}",
                workspace=caller.workspace,
                address=caller.address,
            )
    return row is not None


def find(engine: Engine, code: str) -> Invitation | None:
    """Return the open invitation with this code; None if there is none."""
    statement = select(*_COLUMNS).where(invitation.c.code_hash == hash_of(code), _is_open())
    with engine.connect() as connection:
        row = connection.execute(statement).first()
    return None if row is None else Invitation(*row)


def accept(engine: Engine, code: str, *, user_id: str, name: str, address: str) -> str | None:
    """Accept an invitation for a user; return its workspace, or None if it is not open any more.

    A user who already has a higher role there keeps it.
    """
    with writing(engine) as connection:
        return join(connection, code, user_id=user_id, name=name, address=address)


def join(connection: Connection, code: str, *, user_id: str, name: str, address: str) -> str | None:
    """Do as :func:`accept` does, in the caller's transaction."""
    row = connection.execute(
        delete(invitation)
        .where(invitation.c.code_hash == hash_of(code), _is_open())
        .returning(*_COLUMNS)
    ).first()
    if row is None:
        return None
    has = connection.execute(
        select_in(row.workspace, member, member.c.role).where(member.c.user == user_id)
    ).scalar()
    if has is None or users.ROLES.index(row.role) < users.ROLES.index(has):
        users.give_role(connection, user_id, row.workspace, row.role, actor=name, address=address)
    return str(row.workspace)


def accept_as_new(
    engine: Engine, code: str, password: str, *, address: str, agent: str = ""
) -> str | None:
    """Create an account with this password for the invited person; return a session's id.

    Return None if the invitation is not open any more.

    Raises
    ------
    UnfitName
        A user with that name exists already: they must sign in to accept the invitation.
    UnfitPassword
        See :func:`passwords.check`.
    TooManyAttempts
        Too many invitations of the workspace, or from this address, named existing users. Without
        this limit, whoever invites could find out which accounts exist in other workspaces.
    """
    invited = find(engine, code)
    if invited is None:
        return None
    passwords.check(password, invited.name)
    attempt = login_rate_limit.begin(engine, invited.workspace, address, kind="invitation")
    hashed = passwords.hash_of(password)  # slow, so it runs before the transaction
    with writing(engine) as connection:
        row = connection.execute(
            delete(invitation).where(invitation.c.code_hash == hash_of(code), _is_open())
        )
        if row.rowcount == 0:
            return None
        made = users.add(
            connection,
            name=invited.name,
            password_hash=hashed,
            made_in=invited.workspace,
            actor=f"invitation {invited.id}",
            address=address,
        ).id
        users.give_role(
            connection,
            made,
            invited.workspace,
            invited.role,
            actor=f"invitation {invited.id}",
            address=address,
        )
        audit.write(
            connection,
            "signed in",
            actor=invited.name,
            detail="by invitation",
            workspace=invited.workspace,
            address=address,
        )
        started = sessions.start(connection, workspace=invited.workspace, user=made, agent=agent)
    login_rate_limit.withdraw(engine, attempt)
    return started


def _is_open() -> ColumnElement[bool]:
    """Return the SQL condition of an open invitation: not expired, its maker still an owner."""
    still_owner = exists().where(
        user.c.id == invitation.c.user,
        user.c.disabled_at.is_(None),
        member.c.user == user.c.id,
        member.c.workspace == invitation.c.workspace,
        member.c.role == "owner",
    )
    fit = or_(invitation.c.user.is_(None), still_owner)
    return and_(invitation.c.expires_at > time.time(), fit)


def link(url: str, code: str) -> str:
    """Return the address of an invitation's page. ``url`` is the service's address."""
    return f"{url}{_PAGE}?{urlencode({'code': code})}"


def code_in(target: str) -> str:
    """Return the code of the invitation whose page is at ``target``; "" if it is another page."""
    parts = urlsplit(target)
    return parse_qs(parts.query).get("code", [""])[0] if parts.path == _PAGE else ""
