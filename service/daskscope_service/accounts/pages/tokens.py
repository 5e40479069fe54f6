"""Settings, tokens: the workspace's tokens, and forms to make and revoke them."""

from __future__ import annotations

import time

from flask import Blueprint, g, make_response, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, tokens
from daskscope_service.accounts.caller import (
    Caller,
    NotGranted,
    NotOwn,
    make_token,
)
from daskscope_service.accounts.caller import revoke_token as revoke_own
from daskscope_service.accounts.tokens import LONGEST_LABEL, SCOPES
from daskscope_service.services import services
from daskscope_service.web.fields import Unfit
from daskscope_service.web.forms import said
from daskscope_service.web.parameters import part, refuse_unknown
from daskscope_service.web.problems import Problem

blueprint = Blueprint("tokens_page", __name__)

#: After how many days a token can expire; "" for never.
LIFETIMES = {"": "never", "30": "in 30 days", "90": "in 90 days", "365": "in a year"}

#: How many of the tokens in force a page shows.
_SHOWN = 100

#: How many of the expired and revoked tokens the page shows; the API lists all.
_OVER_SHOWN = 50


@blueprint.get("/settings/tokens")
@access.signed_in
def list_tokens() -> ResponseReturnValue:
    """Show the tokens of the workspace."""
    refuse_unknown("cursor")
    return _page()


@blueprint.post("/settings/tokens")
@access.signed_in
def create_token() -> ResponseReturnValue:
    """Create a token, and show its secret, which is not shown again."""
    scopes = [scope for scope in SCOPES if scope in request.form.getlist("scope")]
    lifetime = request.form.get("days", "")
    if lifetime not in LIFETIMES:
        raise Problem(400, "The form does not offer this expiry time.")
    expires_at = time.time() + float(lifetime) * 86_400 if lifetime else None
    access.check_fresh_for_token(scopes, expires_at)
    try:
        made = make_token(
            services().engine,
            g.caller,
            label=said("label"),
            scopes=scopes,
            expires_at=expires_at,
        )
    except Unfit as error:
        return _page(400, wrong=str(error))
    except NotGranted:
        raise Problem(403, "A token may do no more than you may, so none was created.") from None
    response = make_response(_page(made=made))
    # The browser must not store the secret or show it again.
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.post("/settings/tokens/<token_id>/revoke")
@access.signed_in
def revoke_token(token_id: str) -> ResponseReturnValue:
    """Revoke one token."""
    try:
        revoke_own(services().engine, g.caller, token_id)
    except NotOwn as error:
        raise Problem(403, str(error)) from None
    return redirect("/settings/tokens", code=303)


@blueprint.post("/settings/tokens/revoke")
@access.signed_in
def revoke_tokens() -> ResponseReturnValue:
    """Revoke all tokens of the caller in this workspace, or all tokens of the workspace."""
    caller: Caller = g.caller
    which = request.form.get("which")
    if which == "mine" and caller.user is not None:
        user = caller.user
    elif which == "all" and caller.role == "owner":
        access.check_fresh()
        user = None
    else:
        raise Problem(403, "You may revoke your own tokens; an owner may revoke all.")
    tokens.revoke_all(
        services().engine,
        workspace=g.workspace,
        user=user,
        actor=caller.name,
        address=caller.address,
    )
    return redirect("/settings/tokens", code=303)


def _page(
    status: int = 200, *, made: str | None = None, wrong: str | None = None
) -> tuple[str, int]:
    caller: Caller = g.caller
    engine, now = services().engine, time.time()
    after = part()[1] if request.method == "GET" else None
    last = None if after is None else after[:2]
    active = tokens.list_in(engine, g.workspace, active=True, limit=_SHOWN + 1, after=last)
    more = active[_SHOWN - 1] if len(active) > _SHOWN else None
    page = render_template(
        "tokens.html",
        now=now,
        made=made,
        wrong=wrong,
        grants=caller.grants,
        lifetimes=LIFETIMES,
        longest_label=LONGEST_LABEL,
        active=active[:_SHOWN],
        active_count=tokens.count_in(engine, g.workspace, active=True),
        later=after is not None,
        next=more and (more.created_at, more.id, ""),
        over=tokens.list_in(engine, g.workspace, active=False, limit=_OVER_SHOWN),
        over_count=tokens.count_in(engine, g.workspace, active=False),
    )
    return page, status
