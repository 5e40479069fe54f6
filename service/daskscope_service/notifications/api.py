"""``/api/v1/targets``: the receivers of notifications."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from flask import Blueprint, current_app, g
from msgspec import Meta

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, check_fresh, require, require_role
from daskscope_service.db.scope import Item
from daskscope_service.notifications import targets
from daskscope_service.notifications.addresses import LONGEST, UnfitAddress, check
from daskscope_service.notifications.sending import Busy, NotSent
from daskscope_service.notifications.targets import Kinds
from daskscope_service.notifications.wording import KINDS
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.fields import Name
from daskscope_service.web.operation import answers
from daskscope_service.web.problems import Problem

blueprint = Blueprint("targets", __name__, url_prefix="/api/v1")


class TargetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A receiver: its ``address`` in the form of Apprise, never shown again, and what it gets."""

    name: Name
    address: Annotated[str, Meta(min_length=1, max_length=LONGEST, pattern=r"^[^\x00-\x1f]*$")]
    kinds: Kinds = msgspec.field(default_factory=lambda: list(KINDS))


@blueprint.get("/targets", endpoint="targets")
@require("read")
@answers(types.Page[types.NotificationTarget])
def list_targets() -> Item:
    """Answer with the targets of the workspace, without their addresses."""
    with services().engine.connect() as connection:
        rows = targets.list_targets(connection, g.workspace)
    return {"items": [_shown(one) for one in rows], "next": None}


@blueprint.post("/targets")
@require_role("owner")
@answers(types.NotificationTarget, body=TargetRequest, statuses=(201,), problems=(409,))
def post_target(body: TargetRequest) -> Item:
    """Store a target."""
    check_fresh()
    settings: Settings = current_app.config["SETTINGS"]
    try:
        address = check(body.address, settings.notify_networks)
        with changing() as change:
            target_id = targets.add(change, name=body.name, address=address, kinds=body.kinds)
            listed = targets.list_targets(change.connection, g.workspace)
            (target,) = (one for one in listed if one.id == target_id)
    except UnfitAddress as error:
        raise Problem(400, str(error), field="$.address") from None
    except targets.TooManyTargets as error:
        raise Problem(409, str(error)) from None
    return _shown(target)


@blueprint.delete("/targets/<target_id>")
@require_role("owner")
@answers(None, statuses=(204,), problems=(404,))
def delete_target(target_id: str) -> None:
    """Remove a target."""
    with changing() as change:
        targets.remove(change, target_id)


@blueprint.post("/targets/<target_id>/test")
@require_role("owner")
@answers(types.Sent, problems=(404, 429))
def test_target(target_id: str) -> Item:
    """Send a message to a target now, and report whether the target accepted it."""
    trials = services().trials
    with services().engine.connect() as connection:
        address = targets.address_of(connection, g.workspace, target_id)
    try:
        trials.run(g.workspace, address, g.actor)
    except NotSent as error:
        return {"sent": False, "failure": str(error)}
    except Busy:
        raise Problem(
            429,
            "Another test is running, in this workspace or in several others. Try again when "
            "it has finished.",
            title="Another test is running",
            headers={"Retry-After": "5"},
        ) from None
    return {"sent": True, "failure": None}


def _shown(target: targets.Target) -> Item:
    return asdict(target) | {"kinds": list(target.kinds)}
