"""The page on which users allow or deny a program that ran ``daskscope login``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import urlencode

from flask import Blueprint, g, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, device_login, login_rate_limit, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.device_login import Asked
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.tokens import GRANTS, SCOPES, Scope
from daskscope_service.services import services
from daskscope_service.web.problems import Problem

blueprint = Blueprint("activation", __name__)

_WORDS: dict[Scope, str] = {
    "ingest": "send data",
    "read": "see its data",
    "admin": "make changes",
}


@blueprint.get("/activate")
@access.signed_in
def activate() -> ResponseReturnValue:
    """Show the form for a code. One in the address is only filled in: other sites may link here."""
    _caller()
    return _page(code=request.args.get("code", "")[:20], done=request.args.get("done"))


@blueprint.post("/activate")
@access.signed_in
def answer() -> ResponseReturnValue:
    """Show which program waits with this code; then allow or deny it."""
    caller = _caller()
    code = request.form.get("code", "")
    said = request.form.get("answer")
    if said not in (None, "allow", "deny"):
        raise Problem(400, "Choose Allow or Deny. Nothing was changed.")
    waiting = _asked(caller, code)
    if waiting is None:
        return _unknown(code)
    if said is None:
        return _page(asked=waiting)
    if said == "allow":
        access.check_fresh_for_token(waiting.scopes, None)
    asked = device_login.answer(
        services().engine,
        code,
        caller,
        workspace=request.form.get("workspace", caller.workspace),
        allow=said == "allow",
    )
    if asked is None:
        raise Problem(
            403, "You may not allow this in that workspace: it needs more rights than you have."
        )
    done = "allowed" if said == "allow" else "denied"
    return redirect(f"/activate?{urlencode({'done': done})}", code=303)


def _caller() -> Caller:
    caller: Caller = g.caller
    if caller.by_token:
        raise Problem(
            403,
            "You signed in with a token, and a token cannot create others. Sign out, then "
            "sign in with your name or a link.",
            title="Not with a token",
        )
    return caller


def _asked(caller: Caller, code: str) -> Asked | None:
    """Return the login with ``code``; a wrong code counts as a failed attempt to sign in."""
    engine = services().engine
    try:
        attempt = login_rate_limit.begin(engine, caller.user or "", caller.address, kind="code")
    except TooManyAttempts as error:
        raise Problem(
            429,
            f"Too many wrong codes. Try again in {-(-error.seconds // 60)} min.",
            headers={"Retry-After": str(error.seconds)},
        ) from None
    asked = device_login.find(engine, code)
    if asked is not None:
        login_rate_limit.succeeded(engine, attempt)
    return asked


def _unknown(code: str) -> tuple[str, int]:
    return _page(
        wrong=f"No program is waiting with the code {code[:20]}. A code works once, for 15 "
        "minutes.",
        status=404,
    )


def _page(
    *,
    asked: Asked | None = None,
    code: str = "",
    wrong: str | None = None,
    done: str | None = None,
    status: int = 200,
) -> tuple[str, int]:
    caller: Caller = g.caller
    roles = {caller.workspace: caller.role}
    if caller.user is not None:
        roles = users.roles_of(services().engine, caller.user)
    scopes = {
        workspace: [scope for scope in asked.scopes if scope in GRANTS[role]] if asked else []
        for workspace, role in roles.items()
    }
    page = render_template(
        "activate.html",
        now=time.time(),
        asked=asked,
        code=code,
        scopes=scopes,
        says=_says,
        changes={one: roles[one] for one, given in scopes.items() if "admin" in given},
        wrong=wrong,
        done=done if done in ("allowed", "denied") else None,
    )
    return page, status


def _says(scopes: Sequence[Scope]) -> str:
    """Return in words what a token of ``scopes`` may do."""
    words = [_WORDS[scope] for scope in SCOPES if scope in scopes]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]])) or "do nothing"
