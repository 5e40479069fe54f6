"""How people sign in: by a link that the service printed, or by pasting a token.

Both lead to a session, known to the browser as a random id in a cookie and to the database as that
id's hash.
"""

from __future__ import annotations

import time
from urllib.parse import urlencode

from flask import Response
from sqlalchemy import Engine, delete, insert, select

from daskscope_service.accounts import tokens
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.db.schema import session, sign_in_link

COOKIE = "daskscope_session"
LINK_SECONDS = 60 * 60
SESSION_SECONDS = 30 * 24 * 60 * 60


def make_link(engine: Engine, url: str, workspace: str) -> str:
    """Return a fresh sign-in link for ``workspace``, made if it is missing.

    ``url`` is the service's address. The link works for an hour, also more than once, so that a
    page that a chat or a mail program looks at first is not used up.
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
    return f"{url}/sign-in?{urlencode({'code': code})}"


def by_code(engine: Engine, code: str) -> str | None:
    """Start a session with the code of a sign-in link; None if it is unknown or too old."""
    statement = select(sign_in_link.c.workspace).where(
        sign_in_link.c.code_hash == hash_of(code), sign_in_link.c.expires_at > time.time()
    )
    with engine.connect() as connection:
        workspace = connection.execute(statement).scalar()
    return None if workspace is None else _start_session(engine, workspace)


def by_token(engine: Engine, text: str) -> str | None:
    """Start a session with a token of scope ``read``; None if it is none, or not in force."""
    token = tokens.find(engine, text.strip())
    now = time.time()
    if token is None or token.state(now) != "active" or "read" not in token.scopes:
        return None
    tokens.note_use(engine, token, now)
    return _start_session(engine, token.workspace)


def workspace_of(engine: Engine, session_id: str) -> str | None:
    """Return the workspace of a session; None if there is no such session, or it is over."""
    statement = select(session.c.workspace).where(
        session.c.id_hash == hash_of(session_id), session.c.expires_at > time.time()
    )
    with engine.connect() as connection:
        workspace: str | None = connection.execute(statement).scalar()
    return workspace


def set_cookie(response: Response, session_id: str, *, secure: bool) -> None:
    """Give the browser the session. ``secure``: users reach the service by https."""
    response.set_cookie(
        COOKIE,
        session_id,
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=secure,
    )


def sign_out(engine: Engine, response: Response, session_id: str) -> None:
    """End the session and take its cookie back."""
    with writing(engine) as connection:
        connection.execute(delete(session).where(session.c.id_hash == hash_of(session_id)))
    response.delete_cookie(COOKIE, path="/")


def _start_session(engine: Engine, workspace: str) -> str:
    session_id = new_secret()
    now = time.time()
    with writing(engine) as connection:
        connection.execute(delete(session).where(session.c.expires_at <= now))
        connection.execute(
            insert(session).values(
                id_hash=hash_of(session_id),
                workspace=workspace,
                created_at=now,
                expires_at=now + SESSION_SECONDS,
            )
        )
    return session_id
