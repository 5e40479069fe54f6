"""``/api/v1/commands``: shut clusters down, and see what became of it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from flask import Blueprint, g, request
from flask.typing import ResponseReturnValue
from msgspec import Meta

from daskscope_service.accounts.access import require, require_role
from daskscope_service.api.body import json_body
from daskscope_service.api.parameters import refuse_unknown, selection
from daskscope_service.api.representation import represent, represent_page
from daskscope_service.commands import shutdowns
from daskscope_service.commands.shutdowns import NoCluster, NotPossible, Wish
from daskscope_service.db.engine import current_engine, writing
from daskscope_service.problems import Problem
from daskscope_service.reads.scope import Item, reading
from daskscope_service.reads.shutdowns import list_commands, one_command

blueprint = Blueprint("commands", __name__, url_prefix="/api/v1")

_Text = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*$")]
_Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
_Seconds = Annotated[float, Meta(ge=0, le=7 * 86400)]


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    cluster: _Name
    action: Literal["shutdown"] = "shutdown"
    reason: _Text = ""
    grace: _Seconds | None = None
    even_if_busy: bool = False


class _CalledOff(msgspec.Struct, forbid_unknown_fields=True):
    reason: _Text = ""


@blueprint.get("/commands")
@require("read")
def commands() -> Item:
    """Answer with the shutdowns that people and policies asked for, by when they did."""
    which = selection()
    with reading() as scope:
        return represent_page(list_commands(scope, which))


@blueprint.get("/commands/<command_id>")
@require("read")
def command(command_id: str) -> Item:
    """Answer with one shutdown, and where it stands."""
    refuse_unknown()
    return _one(command_id)


@blueprint.post("/commands")
@require_role("member")
def post_command() -> ResponseReturnValue:
    """Ask a cluster to shut down. To ask twice for the same is to ask once."""
    refuse_unknown()
    asked = json_body(_Asked)
    wish = Wish(asked.reason, asked.grace, asked.even_if_busy)
    try:
        with writing(current_engine()) as connection:
            command_id, new = shutdowns.ask(
                connection,
                g.workspace,
                asked.cluster,
                wish,
                actor=g.actor,
                address=request.remote_addr,
            )
    except NoCluster:
        raise _missing("cluster", asked.cluster) from None
    except NotPossible as error:
        raise Problem(409, str(error)) from None
    return _one(command_id), 201 if new else 200


@blueprint.post("/commands/<command_id>/call-off")
@require_role("member")
def call_off(command_id: str) -> Item:
    """Call a shutdown off, if the cluster is not closing yet."""
    refuse_unknown()
    said = json_body(_CalledOff)
    try:
        with writing(current_engine()) as connection:
            shutdowns.call_off(
                connection,
                g.workspace,
                command_id,
                actor=g.actor,
                reason=said.reason,
                address=request.remote_addr,
            )
    except NoCluster:
        raise _missing("command", command_id) from None
    except NotPossible as error:
        raise Problem(409, str(error)) from None
    return _one(command_id)


def _one(command_id: str) -> Item:
    with reading() as scope:
        found = one_command(scope, command_id)
    if found is None:
        raise _missing("command", command_id)
    return dict(represent(found))


def _missing(what: str, id: str) -> Problem:
    return Problem(404, f"This workspace has no {what} {id!r}.", title="Not found")
