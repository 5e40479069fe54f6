"""Sign-in, sign-out, the choice of a workspace, and the page *Account*."""

from __future__ import annotations

import time
from urllib.parse import urlencode, urlsplit

from flask import (
    Blueprint,
    Response,
    current_app,
    g,
    make_response,
    redirect,
    render_template,
    request,
)
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, members, openid_sign_in, sessions, sign_in, users
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.passwords import SHORTEST, UnfitPassword
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.problems import Problem, answer_problem, is_api
from daskscope_service.web.template_filters import exact

blueprint = Blueprint("account", __name__)


@blueprint.get("/sign-in")
def sign_in_form() -> ResponseReturnValue:
    """Show the sign-in form or, for a sign-in link, the button that uses its code."""
    code = request.args.get("code")
    if code is None:
        return sign_in_page(access.safe_next(request.args.get("next")))
    # Do not sign in yet: another site may have led here, and mail programs open links.
    session = access.current_session()
    return render_template(
        "sign_in_link.html", code=code, who=None if session is None else session.who
    )


@blueprint.post("/sign-in")
def sign_in_by_form() -> ResponseReturnValue:
    """Sign in by name and password, by a token, or by the code of a link."""
    target = access.safe_next(request.form.get("next"))
    if "code" in request.form:
        session_id = sign_in.by_code(
            services().engine, request.form["code"], address=_address(), agent=_agent()
        )
        wrong = "This link is unknown, expired or used already. Ask for a new one, or sign in here."
    elif "token" in request.form:
        try:
            session_id = sign_in.by_token(
                services().engine, request.form["token"], address=_address(), agent=_agent()
            )
        except TooManyAttempts as error:
            return _refused(target, error)
        wrong = (
            "There is no such token, or it may not read. A token starts with dsk_ and is "
            "shown once, when it is created."
        )
    else:
        wrong = "The name or the password is wrong. Check both."
        try:
            session_id = sign_in.by_password(
                services().engine,
                request.form.get("name", ""),
                request.form.get("password", ""),
                address=_address(),
                agent=_agent(),
                invitation=members.code_in(target),
            )
        except TooManyAttempts as error:
            return _refused(target, error)
        except sign_in.NoWorkspace:
            session_id = None
            wrong = (
                "You are not a member of any workspace. An owner of one can invite you, or "
                "the operator of the service adds you with 'daskscope user role'."
            )
    if session_id is None:
        if "code" in request.form and access.current_session() is not None:
            return redirect("/", code=303)  # the browser is signed in
        return sign_in_page(target, 403, wrong)
    return begin_session(session_id, target)


@blueprint.post("/sign-out")
def sign_out() -> ResponseReturnValue:
    """End the session."""
    if session_id := access.session_cookie():
        sessions.sign_out(services().engine, session_id, _address())
    return _signed_out()


@blueprint.post("/workspace")
@access.as_user
def choose_workspace() -> ResponseReturnValue:
    """Switch the session to another workspace."""
    workspace = request.form.get("workspace", "")
    if not sessions.switch(services().engine, g.session, workspace):
        raise Problem(404, f"You are not a member of the workspace {workspace}.", title="Not found")
    return redirect("/", code=303)


@blueprint.get("/account")
@access.as_user
def account() -> ResponseReturnValue:
    """Show the user's sessions, and a form for another password."""
    return _account()


@blueprint.post("/account/password")
@access.as_user
def change_password() -> ResponseReturnValue:
    """Change the password, and end all other sessions."""
    engine = services().engine
    try:
        changed = sign_in.change_password(
            engine,
            g.session,
            request.form.get("old", ""),
            request.form.get("new", ""),
            address=_address(),
        )
    except TooManyAttempts as error:
        response = make_response(_account(429, _come_again(error)))
        response.headers["Retry-After"] = _seconds(error)
        return response
    except UnfitPassword as error:
        return _account(400, f"The new password was refused: it {error}.")
    if not changed:
        return _account(403, "The old password is wrong, so nothing was changed.")
    return redirect(f"/account?{urlencode({'done': 'password'})}", code=303)


@blueprint.post("/account/sessions/<id_hash>/end")
@access.as_user
def end_session(id_hash: str) -> ResponseReturnValue:
    """End one of the user's sessions."""
    try:
        which = bytes.fromhex(id_hash)
    except ValueError:
        which = b""
    if not _end(which):
        raise Problem(404, "You have no such session; perhaps it has ended.", title="Not found")
    return _signed_out() if which == g.session.id_hash else redirect("/account", code=303)


@blueprint.post("/account/sessions/end")
@access.as_user
def end_sessions() -> ResponseReturnValue:
    """End all of the user's sessions, this one too."""
    _end(None)
    return _signed_out()


def _end(id_hash: bytes | None) -> int:
    user, name = g.session.user, g.session.user_name
    return sessions.end_of(services().engine, user, name, id_hash, actor=name, address=_address())


def sign_in_again(problem: access.SignInAgain) -> ResponseReturnValue:
    """Answer a request that needs a fresh sign-in: with the sign-in page, which leads back."""
    if is_api(request.path):
        return answer_problem(problem)
    before = urlsplit(request.referrer or "")
    target = access.safe_next(before.path if before.netloc == request.host else None)
    name, user = g.session.user_name or "", g.session.user
    has_password = user is None or users.has_password(services().engine, user)
    return sign_in_page(
        target, problem.status, problem.detail, again=name, has_password=has_password
    )


def sign_in_page(
    target: str,
    status: int = 200,
    wrong: str | None = None,
    *,
    again: str | None = None,
    has_password: bool = True,
) -> tuple[str, int]:
    """Return the sign-in page, which leads to ``target``. ``wrong``: why the sign-in failed.

    ``again``: the name of the signed-in user, who must prove their identity once more.
    ``has_password``: they can do so with a password.
    """
    page = render_template(
        "sign_in.html",
        next=target,
        wrong=wrong,
        again=again,
        has_password=has_password,
        by_token="token" in request.form,
        provider=provider_name(),
    )
    return page, status


def _account(status: int = 200, wrong: str | None = None) -> tuple[str, int]:
    engine, user = services().engine, g.session.user
    settings: Settings = current_app.config["SETTINGS"]
    page = render_template(
        "account.html",
        now=time.time(),
        sessions=sessions.list_of(engine, user, settings.session_idle),
        has_password=users.has_password(engine, user),
        connected=openid_sign_in.is_connected(engine, settings.oidc_issuer, user),
        shortest=SHORTEST,
        provider=provider_name(),
        wrong=wrong,
        done=request.args.get("done") == "password",
    )
    return page, status


def provider_name() -> str | None:
    """Return the display name of the OpenID Connect provider; None if there is none."""
    settings: Settings = current_app.config["SETTINGS"]
    return settings.oidc_name if settings.oidc_issuer else None


def begin_session(session_id: str, target: str) -> ResponseReturnValue:
    """Set the cookie of a new session, end the browser's old one, and redirect to ``target``."""
    engine = services().engine
    if before := access.session_cookie():
        sessions.end(engine, before)
    if (invitation := members.code_in(target)) and members.find(engine, invitation) is None:
        target = "/"  # this sign-in has used it
    response = make_response(redirect(target, code=303))
    settings: Settings = current_app.config["SETTINGS"]
    sessions.set_cookie(response, session_id, secure=settings.secure)
    return response


def _refused(target: str, error: TooManyAttempts) -> Response:
    response = make_response(sign_in_page(target, 429, _come_again(error)))
    response.headers["Retry-After"] = _seconds(error)
    return response


def _signed_out() -> Response:
    response = make_response(redirect("/sign-in", code=303))
    settings: Settings = current_app.config["SETTINGS"]
    name = access.session_cookie_name()
    # A name with the prefix __Host- requires these attributes, also to delete the cookie.
    response.delete_cookie(name, path="/", secure=settings.secure, httponly=True, samesite="Lax")
    return response


def _come_again(error: TooManyAttempts) -> str:
    minutes = -(-(error.until - time.time()) // 60)
    return (
        f"Too many failed attempts. Try again at {exact(error.until)}, in "
        f"{max(1, minutes):.0f} min."
    )


def _seconds(error: TooManyAttempts) -> str:
    return str(max(1, round(error.until - time.time() + 0.5)))


def _address() -> str:
    return request.remote_addr or ""


def _agent() -> str:
    return request.headers.get("User-Agent", "")
