"""Workspaces over the API: their members, and invitations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from flask import Blueprint, current_app, g
from msgspec import Meta

from daskscope import api_types as types
from daskscope_service.accounts import members, users
from daskscope_service.accounts.access import check_fresh, require_role
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.members import LastOwner, TooManyOpen
from daskscope_service.accounts.users import Role, UnfitName
from daskscope_service.db.scope import Item, cut
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import CURSOR, LIMIT, part
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import page_answer

blueprint = Blueprint("workspaces", __name__, url_prefix="/api/v1/workspaces")


class RoleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A member's new role."""

    role: Role


class InvitationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whom to invite: ``name`` is what they will sign in with, if they have no account yet."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    role: Role = "member"


@blueprint.get("")
@require_role("viewer")
@answers(types.Page[types.Workspace])
def workspaces() -> Item:
    """Answer with the caller's workspaces, and the caller's role in each."""
    caller: Caller = g.caller
    roles = {caller.workspace: caller.role}
    if caller.user is not None and not caller.by_token:
        roles = users.roles_of(services().engine, caller.user)
    return {"items": [{"id": id, "role": role} for id, role in roles.items()], "next": None}


@blueprint.get("/<workspace>/members")
@require_role("viewer")
@answers(types.Page[types.Member], LIMIT, CURSOR)
def list_members(workspace: str) -> Item:
    """Answer with the members of a workspace, sorted by name."""
    _check(workspace)
    limit, after = part()
    last = None if after is None else after[1]
    rows = members.list_in(services().engine, workspace, limit=limit + 1, after=last)
    items = [asdict(one) | {"at": 0.0} for one in rows]  # the cursor needs the name alone
    return page_answer(cut(items, limit, "at", "name"))


@blueprint.put("/<workspace>/members/<user_id>")
@require_role("owner")
@answers(None, body=RoleRequest, statuses=(204,), problems=(409,))
def change_member(workspace: str, user_id: str, body: RoleRequest) -> None:
    """Give a member another role."""
    _check(workspace)
    _change(user_id, body.role)


@blueprint.delete("/<workspace>/members/<user_id>")
@require_role("owner")
@answers(None, statuses=(204,), problems=(409,))
def remove_member(workspace: str, user_id: str) -> None:
    """Take a member out of the workspace; their account stays."""
    _check(workspace)
    _change(user_id, None)


@blueprint.get("/<workspace>/invitations")
@require_role("owner")
@answers(types.Page[types.Invitation])
def list_invitations(workspace: str) -> Item:
    """Answer with the open invitations, newest first, without their links."""
    _check(workspace)
    invitations = members.invitations_in(services().engine, workspace)
    return {"items": [asdict(one) for one in invitations], "next": None}


@blueprint.post("/<workspace>/invitations")
@require_role("owner")
@answers(types.NewInvitation, body=InvitationRequest, statuses=(201,), problems=(409,))
def invite(workspace: str, body: InvitationRequest) -> Item:
    """Invite someone, and answer with the link, which is not shown again."""
    _check(workspace)
    check_fresh()
    try:
        identifier, code = members.invite(services().engine, g.caller, body.name, body.role)
    except UnfitName as error:
        raise Problem(400, f"At $.name: {error}.", field="$.name") from None
    except TooManyOpen:
        raise Problem(
            409, f"{members.MOST_OPEN} invitations are open; revoke some first."
        ) from None
    settings: Settings = current_app.config["SETTINGS"]
    url = members.link(settings.url, code)
    return {"id": identifier, "name": body.name, "role": body.role, "url": url}


@blueprint.delete("/<workspace>/invitations/<invitation_id>")
@require_role("owner")
@answers(None, statuses=(204,))
def take_back(workspace: str, invitation_id: str) -> None:
    """Revoke an invitation."""
    _check(workspace)
    if not members.take_back(services().engine, g.caller, invitation_id):
        raise Problem(404, f"No invitation {invitation_id!r} is open.", title="Not found")


def _check(workspace: str) -> None:
    # The token or the session selects the one workspace that the request may see.
    if workspace != g.workspace:
        raise Problem(
            404,
            f"You are not a member of the workspace {workspace!r}, or you are viewing "
            "another one now.",
            title="Not found",
        )


def _change(user_id: str, role: Role | None) -> None:
    check_fresh()
    try:
        changed = members.change(services().engine, g.caller, user_id, role)
    except LastOwner:
        raise Problem(
            409, "This is the last owner of the workspace; make someone else one first."
        ) from None
    if not changed:
        raise Problem(
            404,
            f"The workspace has no member {user_id!r}. New members need an invitation.",
            title="Not found",
        )
