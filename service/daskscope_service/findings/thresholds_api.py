"""``/api/v1/thresholds``: the numbers from which on something is a finding."""

from __future__ import annotations

from typing import Annotated

import msgspec
from flask import Blueprint, g

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.db.scope import Item
from daskscope_service.findings.own_thresholds import set_thresholds
from daskscope_service.insight.findings.thresholds import TABLE
from daskscope_service.queries.thresholds import thresholds_of
from daskscope_service.services import services
from daskscope_service.web.operation import answers

blueprint = Blueprint("thresholds", __name__, url_prefix="/api/v1")


def _field(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


#: Each threshold by its name, with its bounds.
OwnThresholds = msgspec.defstruct(
    "OwnThresholds",
    [
        (
            _field(one.name),
            Annotated[float, msgspec.Meta(ge=one.least, le=one.most)] | msgspec.UnsetType,
            msgspec.UNSET,
        )
        for one in TABLE
    ],
    rename={_field(one.name): one.name for one in TABLE},
    forbid_unknown_fields=True,
)


class ThresholdsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The workspace's own thresholds by name, in place of those it had."""

    own: OwnThresholds  # type: ignore[valid-type]


@blueprint.get("/thresholds")
@require("read")
@answers(types.Page[types.Threshold])
def get_thresholds() -> Item:
    """Answer with all thresholds that are in force, in the order of the documentation."""
    return _thresholds()


@blueprint.put("/thresholds")
@require_role("owner")
@answers(types.Page[types.Threshold], body=ThresholdsRequest)
def put_thresholds(body: ThresholdsRequest) -> Item:
    """Set the workspace's own thresholds; those that are left out are the defaults.

    All findings of the workspace are made anew.
    """
    with changing() as change:
        set_thresholds(change, msgspec.to_builtins(body.own))
    return _thresholds()


def _thresholds() -> Item:
    with services().engine.connect() as connection:
        in_force = thresholds_of(connection, g.workspace)
    items = [
        {
            "name": one.name,
            "value": in_force[one.name],
            "default": one.value,
            "least": one.least,
            "most": one.most,
            "unit": one.unit,
            "source": one.source,
        }
        for one in TABLE
    ]
    return {"items": items, "next": None}
