"""``/api/v1/commands``: requests to shut down clusters, and their status."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from flask import Blueprint
from msgspec import Meta

from daskscope import api_types as types
from daskscope.protocol import MAX_GRACE
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.db.scope import Item, reading
from daskscope_service.queries.cluster_filter import cluster_called
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown, NotPossible
from daskscope_service.shutdowns.queries import list_commands, one_command
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import LIST, selection
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import as_item, page_answer

blueprint = Blueprint("commands", __name__, url_prefix="/api/v1")

_Text = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*$")]
_Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
_Seconds = Annotated[float, Meta(ge=0, le=MAX_GRACE)]


class ShutdownRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which cluster to shut down, by its id or name, and how.

    Of several clusters with this name, it is the one that runs.
    ``grace`` is the minimum number of seconds between the announcement and the close. Work that
    arrives in between calls the shutdown off, unless ``even_if_busy``.
    """

    cluster: _Name
    action: Literal["shutdown"] = "shutdown"
    reason: _Text = ""
    grace: _Seconds | None = None
    even_if_busy: bool = False


class CallOff(msgspec.Struct, forbid_unknown_fields=True):
    """Why a shutdown is called off."""

    reason: _Text = ""


@blueprint.get("/commands")
@require("read")
@answers(types.Page[types.ShutdownCommand], *LIST)
def commands() -> Item:
    """Answer with the shutdowns that people and policies requested, by time of the request."""
    which = selection()
    with reading() as scope:
        return page_answer(list_commands(scope, which))


@blueprint.get("/commands/<command_id>")
@require("read")
@answers(types.ShutdownCommand)
def command(command_id: str) -> Item:
    """Answer with one shutdown and its status."""
    return _one(command_id)


@blueprint.post("/commands")
@require_role("member")
@answers(types.ShutdownCommand, body=ShutdownRequest, statuses=(201, 200), problems=(404, 409))
def post_command(body: ShutdownRequest) -> tuple[Item, int]:
    """Ask a cluster to shut down. Repeating the same request has no further effect."""
    requested = NewShutdown(body.reason, body.grace, body.even_if_busy)
    with reading() as scope:
        cluster = cluster_called(scope, body.cluster, to_close=True)
    try:
        with changing() as change:
            id = body.cluster if cluster is None else cluster.id
            command_id, new = shutdowns.ask(change, id, requested)
    except NotPossible as error:
        raise Problem(409, str(error)) from None
    return _one(command_id), 201 if new else 200


@blueprint.post("/commands/<command_id>/call-off")
@require_role("member")
@answers(types.ShutdownCommand, body=CallOff, problems=(409,))
def call_off(command_id: str, body: CallOff) -> Item:
    """Call a shutdown off, if the cluster is not closing yet."""
    try:
        with changing() as change:
            shutdowns.call_off(change, command_id, body.reason)
    except NotPossible as error:
        raise Problem(409, str(error)) from None
    return _one(command_id)


def _one(command_id: str) -> Item:
    with reading() as scope:
        return as_item(one_command(scope, command_id))
