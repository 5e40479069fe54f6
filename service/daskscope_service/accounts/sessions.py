"""Sessions: how the service recognizes a browser after sign-in.

The browser holds a random id in a cookie, the database the hash of that id. A session sees one
workspace at a time. Each request reads its rights anew: a session stops working when its user is
disabled, removed or no longer a member of the workspace, or when its token is revoked.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from flask import Response
from sqlalchemy import (
    Connection,
    Engine,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from daskscope_service.accounts import audit
from daskscope_service.accounts.secret import hash_of, new_secret
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import member, token, user
from daskscope_service.db.schema import session as table

COOKIE = "daskscope_session"

#: Browsers accept a cookie with this prefix only from this host and by HTTPS, so no other host of
#: the domain can set it.
_SECURE_COOKIE = f"__Host-{COOKIE}"
SECONDS = 30 * 24 * 60 * 60

#: How many sessions a user or a token may have: a program that signs in each time makes no more.
MOST = 100

#: ``last_seen_at`` is written at most this often, in seconds: a write per request costs too much.
_SEEN_NOTED_EVERY = 60.0

#: How many characters of the User-Agent header are read. A browser may send 60,000, made so that
#: searching them for a version takes a minute, in which no other thread runs.
_MOST_AGENT = 500

_BROWSERS = (
    # In this order: each browser's header also contains names that follow here.
    ("Edge", r"Edg(?:e|A|iOS)?/(\d+)"),
    ("Opera", r"OPR/(\d+)"),
    ("Firefox", r"(?:Firefox|FxiOS)/(\d+)"),
    ("Chrome", r"(?:HeadlessChrome|Chrome|Chromium|CriOS)/(\d+)"),
    ("Safari", r"Version/(\d+)[\d.]* .*Safari/"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("macOS", "Mac OS X"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True, slots=True)
class Session:
    """A session in force. Times are seconds since the epoch, UTC; None means unknown.

    ``user`` and ``user_name`` are None if it began with a link or a token. ``proven``: the person
    proved their identity when it began. With a provider, they may only have found a browser that
    was signed in there.
    """

    id_hash: bytes
    workspace: str
    role: str
    token: str | None
    user: str | None
    user_name: str | None
    created_at: float
    last_seen_at: float | None
    browser: str | None
    proven: bool

    @property
    def who(self) -> str:
        """The actor's name in the audit log."""
        return self.user_name or (f"token {self.token}" if self.token else "link")


_ROLE = case((table.c.user.is_(None), table.c.role), else_=member.c.role)
_IN_FORCE: Select[*tuple[Any, ...]] = (
    select(
        table.c.id_hash,
        table.c.workspace,
        _ROLE,
        table.c.token,
        table.c.user,
        user.c.name,
        table.c.created_at,
        table.c.last_seen_at,
        table.c.browser,
        table.c.proven,
    )
    .select_from(
        table.outerjoin(user, user.c.id == table.c.user)
        .outerjoin(
            member, and_(member.c.workspace == table.c.workspace, member.c.user == table.c.user)
        )
        .outerjoin(token, token.c.id == table.c.token)
    )
    .where(
        _ROLE.is_not(None),
        or_(table.c.user.is_(None), and_(user.c.id.is_not(None), user.c.disabled_at.is_(None))),
        or_(table.c.token.is_(None), and_(token.c.id.is_not(None), token.c.revoked_at.is_(None))),
        or_(token.c.expires_at.is_(None), token.c.expires_at > bindparam("now")),
        table.c.expires_at > bindparam("now"),
        func.coalesce(table.c.last_seen_at, table.c.created_at) > bindparam("seen_after"),
    )
)


def start(
    connection: Connection,
    *,
    workspace: str,
    role: str | None = None,
    user: str | None = None,
    token: str | None = None,
    agent: str = "",
    proven: bool = True,
) -> str:
    """Start a session and return its id. Give a ``user``, or a ``role`` and perhaps a ``token``.

    ``agent`` is the User-Agent header; ``proven`` is as in :class:`Session`. Of more than
    :data:`MOST` sessions of the user or token, the oldest end.
    """
    session_id = new_secret()
    now = time.time()
    connection.execute(delete(table).where(table.c.expires_at <= now))
    if user is not None or token is not None:
        theirs = table.c.token == token if user is None else table.c.user == user
        newest_first = select(table.c.id_hash).where(theirs).order_by(table.c.created_at.desc())
        too_many = connection.scalars(newest_first.offset(MOST - 1)).all()
        connection.execute(delete(table).where(table.c.id_hash.in_(too_many)))
    connection.execute(
        insert(table).values(
            id_hash=hash_of(session_id),
            workspace=workspace,
            user=user,
            token=token,
            role=role,
            created_at=now,
            expires_at=now + SECONDS,
            last_seen_at=now,
            browser=browser(agent),
            proven=proven,
        )
    )
    return session_id


def find(engine: Engine, session_id: str, idle: float = SECONDS) -> Session | None:
    """Return the session with this id; None if there is none, or it has ended.

    It ends ``idle`` seconds after it was last seen.
    """
    now = time.time()
    statement = _IN_FORCE.where(table.c.id_hash == hash_of(session_id))
    with engine.connect() as connection:
        row = connection.execute(statement, {"now": now, "seen_after": now - idle}).first()
    if row is None:
        return None
    session = Session(*row)
    _note_seen(engine, session, now)
    return session


def list_of(engine: Engine, user: str, idle: float = SECONDS) -> list[Session]:
    """Return the user's sessions, the last seen first. ``user``: their id; ``idle``: see find."""
    now = time.time()
    statement = _IN_FORCE.where(table.c.user == user).order_by(
        table.c.last_seen_at.desc(), table.c.id_hash
    )
    with engine.connect() as connection:
        rows = connection.execute(statement, {"now": now, "seen_after": now - idle})
        return [Session(*row) for row in rows]


def switch(engine: Engine, session: Session, workspace: str) -> bool:
    """Switch the session to another workspace; return False if its user has no role there."""
    with writing(engine) as connection:
        value = connection.execute(
            select(member.c.role).where(
                member.c.workspace == workspace, member.c.user == session.user
            )
        ).scalar()
        if value is not None:
            connection.execute(
                update(table).where(table.c.id_hash == session.id_hash).values(workspace=workspace)
            )
    return value is not None


def end(engine: Engine, session_id: str) -> None:
    """End the session with this id."""
    with writing(engine) as connection:
        connection.execute(delete(table).where(table.c.id_hash == hash_of(session_id)))


def sign_out(engine: Engine, session_id: str, address: str) -> None:
    """End the session with this id, as the browser at ``address`` asks; log it in the audit log."""
    session = find(engine, session_id)
    end(engine, session_id)
    if session is not None:
        with writing(engine) as connection:
            audit.write(
                connection,
                "signed out",
                actor=session.who,
                workspace=session.workspace,
                address=address,
            )


def end_of(
    engine: Engine,
    user: str,
    name: str,
    id_hash: bytes | None = None,
    *,
    actor: str = audit.OPERATOR,
    address: str | None = None,
) -> int:
    """End all sessions of the user with this id, or only the one with this hash; return how many.

    ``name`` is the user's name; ``actor`` ends the sessions from ``address``.
    """
    statement = delete(table).where(table.c.user == user)
    if id_hash is not None:
        statement = statement.where(table.c.id_hash == id_hash)
    with writing(engine) as connection:
        ended = connection.execute(statement).rowcount
        if ended:
            detail = f"{name}: {'all sessions' if id_hash is None else 'one session'}"
            audit.write(connection, "signed out", actor=actor, detail=detail, address=address)
    return ended


def cookie_name(*, secure: bool) -> str:
    """Return the name of the session cookie. ``secure``: users reach the service by https."""
    return _SECURE_COOKIE if secure else COOKIE


def set_cookie(response: Response, session_id: str, *, secure: bool) -> None:
    """Set the session cookie. ``secure``: users reach the service by https."""
    response.set_cookie(
        cookie_name(secure=secure),
        session_id,
        max_age=SECONDS,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=secure,
    )


def browser(agent: str) -> str | None:
    """Return a short name for the browser with this User-Agent header: ``Firefox 144, Linux``."""
    agent = agent[:_MOST_AGENT]
    name = next(
        (f"{name} {match[1]}" for name, sign in _BROWSERS if (match := re.search(sign, agent))),
        None,
    )
    system = next((name for name, sign in _SYSTEMS if sign in agent), None)
    return ", ".join(part for part in (name, system) if part) or None


def _note_seen(engine: Engine, session: Session, now: float) -> None:
    if session.last_seen_at is not None and session.last_seen_at > now - _SEEN_NOTED_EVERY:
        return
    try:
        with writing(engine) as connection:
            connection.execute(
                update(table).where(table.c.id_hash == session.id_hash).values(last_seen_at=now)
            )
    except DBAPIError:
        pass  # a request must not fail for this: reading still works when the disk is full
