"""How people sign in: with a password, by a link that the service printed, or by a token.

Each starts a session; :mod:`.sessions` does the rest.
"""

from __future__ import annotations

import time
from urllib.parse import urlencode

from sqlalchemy import Engine, delete, insert, select

from daskscope_service.accounts import (
    audit,
    login_rate_limit,
    members,
    passwords,
    sessions,
    tokens,
    users,
)
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.accounts.sessions import Session
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.db.schema import sign_in_link, user

LINK_SECONDS = 60 * 60


class NoWorkspace(Exception):
    """The password is right, but the user has no role in any workspace."""


def make_link(engine: Engine, url: str, workspace: str) -> str:
    """Return a new sign-in link for ``workspace``, which is created if it is missing.

    ``url`` is the service's address. The link works once, within an hour. Opening its page does not
    use it up, because chat and mail programs do so; the button on the page does.
    """
    code = new_secret()
    now = time.time()
    with writing(engine) as connection:
        make_workspace(connection, workspace)
        connection.execute(delete(sign_in_link).where(sign_in_link.c.expires_at <= now))
        connection.execute(
            insert(sign_in_link).values(
                code_hash=hash_of(code), workspace=workspace, expires_at=now + LINK_SECONDS
            )
        )
        audit.write(connection, "link made", workspace=workspace)
    return f"{url}/sign-in?{urlencode({'code': code})}"


def by_password(
    engine: Engine,
    name: str,
    password: str,
    *,
    address: str,
    agent: str = "",
    invitation: str = "",
) -> str | None:
    """Start a session with a user's name and password; return its id, or None if they are wrong.

    This takes as long if there is no such user. A user who is in no workspace accepts the
    invitation with the code ``invitation``.

    Raises
    ------
    TooManyAttempts
        Too many attempts have failed, for this name or from this address.
    NoWorkspace
        The user is in no workspace.
    """
    attempt = login_rate_limit.begin(engine, users.key_of(name) or name, address, kind="name")
    columns = (user.c.id, user.c.name, user.c.password_hash, user.c.disabled_at)
    with engine.connect() as connection:
        row = users.by_name(connection, name, *columns)
    right = passwords.fits(password, None if row is None else row.password_hash or None)
    if row is None:
        audit.refused(engine, "unknown name", "password", address)
        return None
    if not right or row.disabled_at is not None:
        why = "the user is disabled" if right else "wrong password"
        audit.refused(engine, row.name, why, address)
        return None
    login_rate_limit.succeeded(engine, attempt)
    with writing(engine) as connection:
        # A session that begins while the password is changed must not outlive the change.
        still = select(user.c.id).where(
            user.c.id == row.id,
            user.c.password_hash == row.password_hash,
            user.c.disabled_at.is_(None),
        )
        if connection.execute(still.with_for_update()).first() is None:
            return None
        workspace = connection.execute(users.workspaces_query(row.id)).scalar()
        workspace = workspace or members.join(
            connection, invitation, user_id=row.id, name=row.name, address=address
        )
        if workspace is None:
            raise NoWorkspace
        audit.write(
            connection,
            "signed in",
            actor=row.name,
            detail="by password",
            workspace=workspace,
            address=address,
        )
        return sessions.start(connection, workspace=workspace, user=row.id, agent=agent)


def change_password(engine: Engine, session: Session, old: str, new: str, *, address: str) -> bool:
    """Give the user of ``session`` another password, and end their other sessions.

    Return False if ``old`` is wrong: it is asked for so that nobody who finds a signed-in browser
    can take over the account.

    Raises
    ------
    TooManyAttempts
        Too many attempts have failed, for this user or from this address.
    UnfitPassword
        See :func:`passwords.check`.
    """
    account = None if session.user_name is None else users.find(engine, session.user_name)
    if account is None:
        return False
    passwords.check(new, account.name)
    attempt = login_rate_limit.begin(engine, users.key_of(account.name) or "", address, kind="name")
    with engine.connect() as connection:
        stored = connection.execute(
            select(user.c.password_hash).where(user.c.id == account.id)
        ).scalar()
    if not passwords.fits(old, stored or None):
        audit.refused(engine, account.name, "wrong old password", address)
        return False
    login_rate_limit.succeeded(engine, attempt)
    users.set_password(
        engine,
        account,
        new,
        keep_session=session.id_hash,
        actor=account.name,
        address=address,
    )
    return True


def by_code(engine: Engine, code: str, *, address: str, agent: str = "") -> str | None:
    """Start a session with the code of a sign-in link; None if it is unknown, used or too old.

    The session has an owner's rights: whoever made the link has the service's database.
    """
    statement = (
        delete(sign_in_link)
        .where(sign_in_link.c.code_hash == hash_of(code), sign_in_link.c.expires_at > time.time())
        .returning(sign_in_link.c.workspace)
    )
    with writing(engine) as connection:
        workspace = connection.execute(statement).scalar()
        if workspace is None:
            return None
        audit.write(connection, "signed in", actor="link", workspace=workspace, address=address)
        return sessions.start(connection, workspace=workspace, role="owner", agent=agent)


def by_token(engine: Engine, text: str, *, address: str, agent: str = "") -> str | None:
    """Start a session with a token of scope ``read``; None if it is unknown, or may not be used.

    The session has a viewer's rights, and ends with the token.

    Raises
    ------
    TooManyAttempts
        A token that cannot sign in was tried too often: each attempt is in the audit log.
    """
    token = tokens.find(engine, text.strip())
    now = time.time()
    if token is None:
        return None
    who = f"token {token.id}"
    if token.state(now) != "active" or "read" not in token.scopes:
        state = token.state(now)
        why = "it may not read" if state == "active" else f"it is {state}"
        login_rate_limit.begin(engine, token.id, address, kind="token")
        audit.refused(engine, who, why, address)
        return None
    tokens.note_use(engine, token, now)
    with writing(engine) as connection:
        audit.write_hourly(
            connection,
            "signed in",
            actor=who,
            detail=token.label,
            workspace=token.workspace,
            address=address,
        )
        return sessions.start(
            connection,
            workspace=token.workspace,
            role="viewer",
            token=token.id,
            agent=agent,
        )
