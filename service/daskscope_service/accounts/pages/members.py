"""Settings, members: the members of the workspace and invitations; the page of an invitation."""

from __future__ import annotations

import time

from flask import Blueprint, current_app, g, make_response, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, members, sessions
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.members import LastOwner, TooManyOpen
from daskscope_service.accounts.pages.account import begin_session, provider_name
from daskscope_service.accounts.passwords import SHORTEST, UnfitPassword
from daskscope_service.accounts.users import ROLES, Role, UnfitName
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.parameters import part, refuse_unknown
from daskscope_service.web.problems import Problem

blueprint = Blueprint("members_page", __name__)

#: How many members a page shows.
_SHOWN = 100


@blueprint.get("/settings/members")
@access.signed_in
def list_members() -> ResponseReturnValue:
    """Show the members of the workspace and, to owners, the open invitations."""
    refuse_unknown("cursor")
    return _page()


@blueprint.post("/settings/members/<user_id>")
@access.acting_as("owner")
def change_member(user_id: str) -> ResponseReturnValue:
    """Give a member another role, or take them out of the workspace."""
    access.check_fresh()
    said = request.form.get("role", "")
    role = None if said == "none" else _role(said)
    try:
        if not members.change(services().engine, g.caller, user_id, role):
            raise Problem(404, "The workspace has no such member.", title="Not found")
    except LastOwner:
        return _page(409, wrong="A workspace needs an owner: make another member one first.")
    return redirect("/settings/members", code=303)


@blueprint.post("/settings/invitations")
@access.acting_as("owner")
def invite() -> ResponseReturnValue:
    """Invite someone, and show the link for them, which is not shown again."""
    access.check_fresh()
    name = request.form.get("name", "").strip()
    try:
        _, code = members.invite(services().engine, g.caller, name, _role(request.form.get("role")))
    except UnfitName as error:
        return _page(400, wrong=f"Nobody was invited: {error}.")
    except TooManyOpen:
        return _page(409, wrong="Too many invitations are open; revoke some first.")
    settings: Settings = current_app.config["SETTINGS"]
    response = make_response(_page(made=members.link(settings.url, code), made_for=name))
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.post("/settings/invitations/<invitation_id>/take-back")
@access.acting_as("owner")
def take_back(invitation_id: str) -> ResponseReturnValue:
    """Revoke an invitation."""
    if not members.take_back(services().engine, g.caller, invitation_id):
        raise Problem(404, "No such invitation is open.", title="Not found")
    return redirect("/settings/members", code=303)


@blueprint.get("/invitation")
def invitation() -> ResponseReturnValue:
    """Show an invitation: a signed-in user accepts it, someone new also chooses a password."""
    return _invitation(request.args.get("code", ""))


@blueprint.post("/invitation")
def accept() -> ResponseReturnValue:
    """Accept an invitation."""
    code = request.form.get("code", "")
    engine, address = services().engine, request.remote_addr or ""
    session = access.current_session()
    if session is not None and session.user is not None:
        workspace = members.accept(
            engine, code, user_id=session.user, name=session.who, address=address
        )
        if workspace is None:
            return _invitation(code)
        sessions.switch(engine, session, workspace)
        return redirect("/", code=303)
    try:
        session_id = members.accept_as_new(
            engine,
            code,
            request.form.get("password", ""),
            address=address,
            agent=request.headers.get("User-Agent", ""),
        )
    except UnfitPassword as error:
        return _invitation(code, 400, f"The password was refused: it {error}.")
    except UnfitName:
        return _invitation(
            code,
            409,
            "No account could be created with this name and password. Sign in if you have an "
            "account, or ask for an invitation to another name.",
        )
    except TooManyAttempts as error:
        raise Problem(
            429,
            f"Too many attempts to create an account. Try again in {-(-error.seconds // 60)} min.",
            headers={"Retry-After": str(error.seconds)},
        ) from None
    return _invitation(code) if session_id is None else begin_session(session_id, "/")


def _invitation(code: str, status: int = 200, wrong: str | None = None) -> tuple[str, int]:
    invitation = members.find(services().engine, code)
    if invitation is None:
        raise Problem(
            404,
            "This invitation is unknown, was accepted or revoked, or is older than a week. "
            "Ask for another one.",
            title="No such invitation",
        )
    session = access.current_session()
    page = render_template(
        "invitation.html",
        invitation=invitation,
        code=code,
        me=None if session is None else session.user_name,
        shortest=SHORTEST,
        provider=provider_name(),
        wrong=wrong,
    )
    return page, status


def _role(text: str | None) -> Role:
    role = next((role for role in ROLES if role == text), None)
    if role is None:
        raise Problem(400, f"There is no role {text}; the roles are: {', '.join(ROLES)}.")
    return role


def _page(
    status: int = 200, *, made: str | None = None, made_for: str = "", wrong: str | None = None
) -> tuple[str, int]:
    owner = access.may_act(g.session, "owner")
    engine = services().engine
    after = part()[1] if request.method == "GET" else None
    last = None if after is None else after[1]
    rows = members.list_in(engine, g.workspace, limit=_SHOWN + 1, after=last)
    page = render_template(
        "members.html",
        now=time.time(),
        members=rows[:_SHOWN],
        members_count=members.count_in(engine, g.workspace),
        later=after is not None,
        next=(0.0, rows[_SHOWN - 1].name, "") if len(rows) > _SHOWN else None,
        invitations=members.invitations_in(engine, g.workspace) if owner else [],
        owner=owner,
        roles=ROLES,
        made=made,
        made_for=made_for,
        wrong=wrong,
    )
    return page, status
