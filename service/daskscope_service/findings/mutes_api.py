"""``/api/v1/mutes``: findings that someone has muted until a time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from flask import Blueprint

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.db.scope import Item, Page, reading
from daskscope_service.findings import mutes
from daskscope_service.findings.mutes import Id, NewMute, TooManyMutes
from daskscope_service.findings.rule_parameter import RULE_NAMES
from daskscope_service.queries.cluster_filter import cluster_id_called
from daskscope_service.queries.mutes import list_mutes
from daskscope_service.web.fields import Name
from daskscope_service.web.operation import answers
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import as_item, page_answer

blueprint = Blueprint("mutes", __name__, url_prefix="/api/v1")


class MuteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Mute the findings of ``rule`` until ``until_at``.

    With ``computation``, the mute covers that computation; without, the cluster and all
    computations on it. With ``job`` in place of both, it covers all runs of that job.
    """

    rule: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(RULE_NAMES)})]
    reason: Name
    until_at: Annotated[datetime, msgspec.Meta(tz=True)]
    cluster: Id | None = None
    computation: Id | None = None
    job: Id | None = None


@blueprint.get("/mutes")
@require("read")
@answers(types.Page[types.MuteInForce])
def get_mutes() -> Item:
    """Answer with the active mutes; those that end first come first."""
    with reading() as scope:
        return page_answer(Page(list_mutes(scope), None))


@blueprint.post("/mutes")
@require_role("member")
@answers(types.MuteInForce, body=MuteRequest, statuses=(201,), problems=(404, 409))
def post_mute(body: MuteRequest) -> Item:
    """Mute findings: nobody is notified of them, and pages fold them.

    `cluster` is a cluster's id, or its name, if only one has it.
    """
    with reading() as scope:
        cluster = cluster_id_called(scope, body.cluster) if body.cluster else ""
    requested = NewMute(
        body.rule,
        cluster,
        body.computation or "",
        body.reason,
        body.until_at.timestamp(),
        body.job or "",
    )
    try:
        with changing() as change:
            id = mutes.mute(change, requested)
    except TooManyMutes as error:
        raise Problem(409, str(error)) from None
    with reading() as scope:
        made = next((one for one in list_mutes(scope) if one.id == id), None)
    if made is None:
        raise Problem(
            409,
            "At the same moment, someone else muted the same findings or ended the mute. Read the "
            "list of mutes, and try again.",
        )
    return as_item(made)


@blueprint.delete("/mutes/<mute_id>")
@require_role("member")
@answers(None, statuses=(204,), problems=(404,))
def delete_mute(mute_id: str) -> None:
    """End a mute."""
    with changing() as change:
        mutes.unmute(change, mute_id)
