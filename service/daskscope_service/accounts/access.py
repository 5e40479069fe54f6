"""Decides before a view runs whether the user or token may do it; refuses by default.

API views say :func:`require`, pages say :func:`signed_in`; views that change something in a
workspace say :func:`require_role` and :func:`acting_as`, and make the change in :func:`changing`.
All set ``flask.g.workspace``, the one workspace that the request may see, and where it comes from a
session, ``flask.g.session``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar
from urllib.parse import urlencode, urlsplit

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

#: What the roles may do, each all of those before it.
_RANK = ("viewer", "member", "owner")

#: Seconds after sign-in for which a session may do what :func:`check_fresh` guards.
FRESH_SECONDS = 60 * 60.0

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class SignInAgain(Problem):
    """Whoever asks signed in too long ago for this: someone else may have found their browser."""

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
        # Programs may know the service by an address of its network, and show a token. What a
        # browser shows by itself it shows to this host alone.
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
        if expected is None:  # a proxy of which nothing is known may speak TLS for the service
            return host in (request.host, own_host)
        # What is served in clear at the same host may have been put there by anyone on the way.
        return (scheme, _without_usual_port(host)) == (own_scheme, expected)

    @app.before_request
    def refuse_cross_site() -> None:
        if request.method in _SAFE_METHODS:
            return
        # A browser adds the session's cookie by itself, a Bearer token it does not. Pages look at
        # the cookie in any case.
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

    For ``read``, a signed-in person's session does as well.
    """
    return _checked(scope, "viewer" if scope == "read" else None)


def require_recently(scope: Scope) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As :func:`require`, but the token may have been revoked within the last minute.

    The view raises something unless :func:`~daskscope_service.accounts.tokens.in_force` said so of
    ``flask.g.token_id``: then the token is looked up, and what is wrong with it is the answer.
    """
    return _checked(scope, None, recently=True)


def require_role(least: Role) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let an API view that changes something run only for sessions of the role ``least`` or higher.

    A token needs the scope ``admin``: it may do what its user may do or, if it belongs to no user,
    what an owner may. ``flask.g.actor`` is the actor's name in the audit log.
    """
    return _checked("admin", least)


def signed_in(view: Callable[P, ResponseReturnValue]) -> Callable[P, ResponseReturnValue]:
    """Let a page run only for a signed-in person; send others to the sign-in page first."""

    @functools.wraps(view)
    def checked(*args: P.args, **kwargs: P.kwargs) -> ResponseReturnValue:
        session = current_session()
        if session is None:
            here = request.full_path.rstrip("?") if request.method == "GET" else "/"
            return redirect(f"/sign-in?{urlencode({'next': here})}", code=303)
        g.caller = _caller_of(session)
        g.workspace = session.workspace
        if session.user is not None:  # for the choice in the header
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
    """Return whether ``who`` is ``least``, or more, in the workspace."""
    return _RANK.index(who.role) >= _RANK.index(least)


def check_fresh() -> None:
    """Raise SignInAgain if the request comes from a session that is not fresh.

    What gives others rights, or removes what does not come back, is not for who finds a browser
    that was left signed in. A token of scope ``admin`` is there to do so.
    """
    session: Session | None = g.get("session")
    if session is None:
        return
    if not session.proven or session.created_at < time.time() - FRESH_SECONDS:
        raise SignInAgain


def check_fresh_for_token(scopes: Collection[str], expires_at: float | None) -> None:
    """Raise SignInAgain if the token to be made needs a session that is fresh, and it is not.

    So it is with a token that makes changes, and one that works longer than a session could.
    """
    if "admin" in scopes or expires_at is None or expires_at > time.time() + sessions.SECONDS:
        check_fresh()


def current_session() -> Session | None:
    """Return the session of the request, in force; None if there is none."""
    session_id = session_cookie()
    session = None
    if session_id is not None:
        settings: Settings = current_app.config["SETTINGS"]
        session = sessions.find(services().engine, session_id, settings.session_idle)
    if session is not None:
        g.session = session
    return session


def session_cookie() -> str | None:
    """Return the id of a session that the request shows; None if it shows none."""
    return request.cookies.get(session_cookie_name())


def session_cookie_name() -> str:
    """Return what the cookie of a session is called here."""
    settings: Settings = current_app.config["SETTINGS"]
    return sessions.cookie_name(secure=settings.secure)


def safe_next(target: str | None) -> str:
    """Return ``target`` if it is a path on this site, else ``/``: where to go after sign-in."""
    # Browsers read "//host" and "/\host" as another site, and drop tabs and line ends.
    if target is None or not target.startswith("/") or target.startswith(("//", "/\\")):
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

        # For the API's document.
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
    g.token_id = token.id  # for the log
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
    """Return the role in which a token of scope ``admin`` acts: its user's."""
    if token.user is None:
        return "owner"
    # It is revoked when its user leaves the workspace: a user without a role has just left.
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
    """A change by the user or the token of this request; committed at the end."""
    with writing(services().engine) as connection:
        yield Change(connection, g.workspace, g.actor, request.remote_addr)
