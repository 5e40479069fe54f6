"""Tokens over the API: signed-in users and admin tokens make, list and revoke them."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from flask import Blueprint, g, request
from msgspec import Meta

from daskscope import api_types as types
from daskscope_service.accounts import tokens, users
from daskscope_service.accounts.access import check_fresh, check_fresh_for_token, require_role
from daskscope_service.accounts.caller import (
    Caller,
    Label,
    NotGranted,
    NotOwn,
    Scopes,
    make_token,
)
from daskscope_service.accounts.caller import revoke_token as revoke_own
from daskscope_service.accounts.tokens import USUAL
from daskscope_service.db.scope import Item, cut
from daskscope_service.services import services
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import CURSOR, LIMIT, Parameter, part
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import page_answer

blueprint = Blueprint("tokens", __name__, url_prefix="/api/v1")

_WHOSE = Parameter(
    "user",
    "Only tokens made by the user with this name.",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\u0000]+$"},
)


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new token. It expires after ``days``; null: never."""

    label: Label = ""
    scopes: Scopes = USUAL
    days: Annotated[float, Meta(gt=0, le=36500)] | None = None


@blueprint.get("/tokens")
@require_role("viewer")
@answers(types.Page[types.Token], LIMIT, CURSOR)
def list_tokens() -> Item:
    """Answer with the workspace's tokens, newest first, without their secrets."""
    limit, after = part()
    place = None if after is None else after[:2]
    rows = tokens.list_in(services().engine, g.workspace, limit=limit + 1, after=place)
    return page_answer(cut([_represent(one) for one in rows], limit, "created_at", "id"))


@blueprint.post("/tokens")
@require_role("viewer")
@answers(types.NewToken, body=TokenRequest, statuses=(201,))
def create_token(body: TokenRequest) -> Item:
    """Create a token, and answer with its secret, which is not shown again."""
    engine = services().engine
    expires_at = None if body.days is None else time.time() + body.days * 86_400
    check_fresh_for_token(body.scopes, expires_at)
    try:
        text = make_token(
            engine,
            g.caller,
            label=body.label,
            scopes=body.scopes,
            expires_at=expires_at,
        )
    except NotGranted as error:
        raise _not_granted(g.caller, error) from None
    made = tokens.one_in(engine, g.workspace, tokens.id_of(text))
    assert made is not None
    return {**_represent(made), "token": text}


@blueprint.delete("/tokens/<token_id>")
@require_role("viewer")
@answers(None, statuses=(204,))
def revoke_token(token_id: str) -> None:
    """Revoke one token: owners may revoke any, others only their own."""
    try:
        revoke_own(services().engine, g.caller, token_id)
    except NotOwn as error:
        raise Problem(403, str(error)) from None


@blueprint.delete("/tokens")
@require_role("viewer")
@answers(types.Revoked, _WHOSE)
def revoke_tokens() -> Item:
    """Revoke all of the workspace's tokens, or with ``user`` those of one user."""
    caller: Caller = g.caller
    engine = services().engine
    name = request.args.get("user")
    user = None if name is None else users.find(engine, name)
    whose = None if user is None else user.id
    if caller.role != "owner" and (whose is None or whose != caller.user):
        raise Problem(
            403, "Only an owner may revoke tokens of others; use ?user= with your own name."
        )
    if whose is None or whose != caller.user:
        check_fresh()
    if name is not None and whose is None:
        return {"revoked": 0}  # as for a user without tokens: reveal no accounts
    revoked = tokens.revoke_all(
        engine, workspace=g.workspace, user=whose, actor=caller.name, address=caller.address
    )
    return {"revoked": revoked}


def _represent(token: tokens.Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "label": token.label,
        "scopes": token.scopes,
        "state": token.state(time.time()),
        "made_by": token.made_by,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }


def _not_granted(caller: Caller, error: NotGranted) -> Problem:
    if caller.by_token and caller.role != "owner":
        return Problem(403, "You signed in with a token, and a token cannot create others.")
    return Problem(
        403,
        f"{caller.name} may create tokens of these scopes only: "
        f"{', '.join(error.allowed) or 'none'}.",
        allowed=list(error.allowed),
    )
