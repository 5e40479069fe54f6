"""Checks before a view runs whether the user or token may do what it does; refuses by default.

API views use the decorator :func:`require`, pages :func:`signed_in`. Views that change something in
a workspace use :func:`require_role` or :func:`acting_as`, and make the change inside
:func:`changing`. All of them set ``flask.g.workspace``, the one workspace that the request may see,
and, if the request has a session, ``flask.g.session``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from flask import Flask, current_app, g, redirect, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import sessions, tokens, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.change import Change
from daskscope_service.accounts.sessions import Session
from daskscope_service.accounts.tokens import Scope
from daskscope_service.accounts.users import Role
from daskscope_service.db.engine import writing
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.problems import Problem, is_api

P = ParamSpec("P")
R = TypeVar("R")

#: The roles, lowest first: each may also do what the roles before it may.
_RANK = ("viewer", "member", "owner")

#: Seconds after sign-in for which a session may do what :func:`check_fresh` guards.
FRESH_SECONDS = 60 * 60.0

#: The most characters of the page to return to after sign-in, which is in the answer's headers:
#: nginx accepts 4 KiB of those, and answers 502 otherwise.
_LONGEST_NEXT = 2_000

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class SignInAgain(Problem):
    """The session needs a new sign-in first: someone else may be using an unattended browser."""

    def __init__(self) -> None:
        super().__init__(
            403,
            "Nothing was changed: this needs a sign-in within the last hour. Sign in again, or "
            "with a new sign-in link, then repeat it.",
            title="Sign in again",
            reason="sign in again",
        )


def install(app: Flask, settings: Settings) -> None:
    """Refuse requests for another host, and cross-site ones that change something."""
    own_scheme, own_host = urlsplit(settings.url)[:2]
    expected = _without_usual_port(own_host) if settings.public_url else None

    @app.before_request
    def refuse_other_hosts() -> None:
        # Programs may reach the service by another address of its network, and send a token. A
        # browser sends its cookie by itself, so requests with a cookie must name the public host.
        if is_api(request.path) and "Cookie" not in request.headers:
            return
        host = request.environ.get("HTTP_HOST", "")
        if not host or "," in host:
            raise Problem(400, "The request must have exactly one Host header.")
        if expected is not None and _without_usual_port(host) != expected:
            raise Problem(
                421, f"This service is only available at {settings.url}: go there instead."
            )

    def is_own(origin: str) -> bool:
        scheme, _, host = origin.partition("://")
        if expected is None:  # compare no scheme: a proxy may handle TLS for the service
            return host in (request.host, own_host)
        # The scheme must match too: anyone on the network may answer for this host over plain HTTP.
        return (scheme, _without_usual_port(host)) == (own_scheme, expected)

    @app.before_request
    def refuse_cross_site() -> None:
        if request.method in _SAFE_METHODS:
            return
        # A browser sends the session cookie by itself, but never a Bearer token. Pages read the
        # cookie even if the request has a token.
        if _bearer() is not None and is_api(request.path):
            return
        site = request.headers.get("Sec-Fetch-Site")
        origin = request.headers.get("Origin")
        if site is not None:
            allowed = site in ("same-origin", "none")
        elif origin is not None:  # a browser from before Sec-Fetch-Site
            allowed = is_own(origin)
        else:  # not a browser
            allowed = True
        if not allowed:
            raise Problem(403, "This request came from another site, so it was refused.")


def require(scope: Scope) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let an API view run only for a token of ``scope``.

    For ``read``, the session of a signed-in person is accepted, too.
    """
    return _checked(scope, "viewer" if scope == "read" else None)


def require_recently(scope: Scope) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Like :func:`require`, but accept a token that was looked up within the last minute.

    The token may have been revoked since. The view must therefore raise an exception unless
    :func:`~daskscope_service.accounts.tokens.in_force` returns True for ``flask.g.token_id``. The
    token is then looked up again; if it is not valid any more, the answer says why.
    """
    return _checked(scope, None, recently=True)


def require_role(least: Role) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let an API view that changes something run only for the role ``least`` or higher.

    A session must have that role. A token needs the scope ``admin``; it acts with its user's role
    or, if it belongs to no user, as an owner. ``flask.g.actor`` is set to the actor's name in the
    audit log.
    """
    return _checked("admin", least)


def signed_in(view: Callable[P, ResponseReturnValue]) -> Callable[P, ResponseReturnValue]:
    """Let a page run only for a signed-in person; redirect others to the sign-in page."""

    @functools.wraps(view)
    def checked(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        session = current_session()
        if session is None:
            here = request.full_path.rstrip("?") if request.method == "GET" else "/"
            return redirect(f"/sign-in?{urlencode({'next': safe_next(here)})}", code=303)
        g.caller = _caller_of(session)
        g.workspace = session.workspace
        if session.user is not None:  # for the workspace menu in the header
            g.workspaces = users.workspaces_of(services().engine, session.user)
        return view(*args, **kwargs)

    return checked


def as_user(view: Callable[P, ResponseReturnValue]) -> Callable[P, ResponseReturnValue]:
    """As :func:`signed_in`, but for users only: not for sign-ins with a link or a token."""

    @functools.wraps(view)
    def checked(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        if g.session.user is None:
            raise Problem(
                403,
                "You signed in with a link or a token, so you have no account here. The "
                "operator of the service creates one with 'daskscope user create'.",
                title="Not a user",
            )
        return view(*args, **kwargs)

    return signed_in(checked)


def acting_as(
    least: Role,
) -> Callable[[Callable[P, ResponseReturnValue]], Callable[P, ResponseReturnValue]]:
    """As :func:`signed_in`, but only for the role ``least`` or higher in the workspace.

    ``flask.g.actor`` is the actor's name in the audit log.
    """

    def decorate(view: Callable[P, ResponseReturnValue]) -> Callable[P, ResponseReturnValue]:
        @functools.wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
            _check_role(g.session.role, least, g.session.workspace)
            g.actor = g.session.who
            return view(*args, **kwargs)

        return signed_in(checked)

    return decorate


def may_act(who: Session | Caller, least: Role) -> bool:
    """Return whether ``who`` has the role ``least`` or a higher one in the workspace."""
    return _RANK.index(who.role) >= _RANK.index(least)


def check_fresh() -> None:
    """Raise SignInAgain if the request comes from a session that is not fresh.

    Views that give others rights, or remove something for good, call this: someone may have found a
    browser that was left signed in. Tokens pass: a token of scope ``admin`` exists to do these
    things.
    """
    session: Session | None = g.get("session")
    if session is None:
        return
    if not session.proven or session.created_at < time.time() - FRESH_SECONDS:
        raise SignInAgain


def check_fresh_for_token(scopes: Collection[str], expires_at: float | None) -> None:
    """Raise SignInAgain if creating this token needs a fresh session, and the session is not fresh.

    A token needs one if it can make changes, or works longer than a session could.
    """
    if "admin" in scopes or expires_at is None or expires_at > time.time() + sessions.SECONDS:
        check_fresh()


def current_session() -> Session | None:
    """Return the session of the request and store it in ``flask.g``; None if none is in force."""
    session_id = session_cookie()
    session = None
    if session_id is not None:
        settings: Settings = current_app.config["SETTINGS"]
        session = sessions.find(services().engine, session_id, settings.session_idle)
    if session is not None:
        g.session = session
    return session


def session_cookie() -> str | None:
    """Return the session id in the request's cookie; None if there is no cookie."""
    return request.cookies.get(session_cookie_name())


def session_cookie_name() -> str:
    """Return the name of the session cookie."""
    settings: Settings = current_app.config["SETTINGS"]
    return sessions.cookie_name(secure=settings.secure)


def safe_next(target: str | None) -> str:
    """Return ``target`` if it is a path on this site, else ``/``: where to go after sign-in."""
    # Browsers read "//host" and "/\host" as another site, and drop tabs and line ends.
    if target is None or not target.startswith("/") or target.startswith(("//", "/\\")):
        return "/"
    if len(quote(target)) > _LONGEST_NEXT:
        return "/"
    return target if target.isprintable() and "\\" not in target else "/"


def _checked(
    scope: str, least: Role | None, *, recently: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            g.workspace = _workspace_for(scope, least, recently=recently)
            try:
                return view(*args, **kwargs)
            except Exception:
                if recently:
                    _workspace_for(scope, least)
                raise

        # The OpenAPI description reads these.
        checked.__dict__["scope"], checked.__dict__["least_role"] = scope, least
        return checked

    return decorate


def _check_role(role: str, least: Role, workspace: str) -> None:
    if _RANK.index(role) < _RANK.index(least):
        raise Problem(
            403,
            f"You are a {role} in the workspace {workspace}; only "
            f"{'owners' if least == 'owner' else 'members and owners'} may do this.",
            title="Not allowed",
        )


def _workspace_for(scope: str, least: Role | None, *, recently: bool = False) -> str:
    text = _bearer()
    if text is None:
        session = current_session() if least is not None else None
        if session is None or least is None:
            raise _unauthorized(
                "This requires a token: send the header 'Authorization: Bearer dsk_…'. "
                "'daskscope token create' on the service's machine makes one."
            )
        _check_role(session.role, least, session.workspace)
        g.caller = _caller_of(session)
        g.actor = session.who
        return session.workspace
    engine = services().engine
    now = time.time()
    if recently:
        memory = services().tokens
        token = memory.find(text, now)
    else:
        token = tokens.find(engine, text)
    if token is None:
        raise _unauthorized(
            "There is no such token. Check for missing characters: a token has the form "
            "dsk_<id>_<secret>.",
            error="invalid_token",
        )
    g.token_id = token.id  # for the log of requests
    state = token.state(now)
    if state != "active":
        raise _unauthorized(
            f"Token {token.id} ({token.label}) is {state}. "
            "Make a new one with 'daskscope token create'.",
            error="invalid_token",
        )
    if scope not in token.scopes:
        raise Problem(
            403,
            f"Token {token.id} ({token.label}) has the scope {', '.join(token.scopes)}; this needs "
            f"{scope}. Make one with 'daskscope token create --scope {scope}'.",
            headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
        )
    role = "viewer"
    if scope == "admin":
        assert least is not None
        role = _role_of(token)
        _check_role(role, least, token.workspace)
    tokens.note_use(engine, token, now)
    g.actor = f"token {token.id}"
    g.caller = Caller(
        name=g.actor,
        workspace=token.workspace,
        role=role,
        user=token.user,
        by_token=True,
        address=request.remote_addr or "",
    )
    return token.workspace


def _role_of(token: tokens.Token) -> str:
    """Return the role with which a token of scope ``admin`` acts: its user's, or owner."""
    if token.user is None:
        return "owner"
    # A token is revoked when its user leaves the workspace: a user without a role has just left.
    return users.roles_of(services().engine, token.user).get(token.workspace, "viewer")


def _caller_of(session: Session) -> Caller:
    return Caller(
        name=session.who,
        workspace=session.workspace,
        role=session.role,
        user=session.user,
        by_token=session.token is not None,
        address=request.remote_addr or "",
    )


def _without_usual_port(host: str) -> str:
    return host.lower().removesuffix(":443").removesuffix(":80")


def _bearer() -> str | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _unauthorized(detail: str, *, error: str | None = None) -> Problem:
    challenge = 'Bearer realm="daskscope"' + (f', error="{error}"' if error else "")
    return Problem(401, detail, headers={"WWW-Authenticate": challenge})


@contextmanager
def changing() -> Iterator[Change]:
    """Open a transaction for a change by the request's user or token; commit it at the end."""
    with writing(services().engine) as connection:
        yield Change(connection, g.workspace, g.actor, request.remote_addr)
