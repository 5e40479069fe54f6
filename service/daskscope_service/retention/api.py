"""``/api/v1/retention``: how long the workspace keeps each kind of data."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from flask import Blueprint, current_app, g
from msgspec import UNSET, Meta, UnsetType

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, check_fresh, require, require_role
from daskscope_service.db.scope import Item
from daskscope_service.retention import policy
from daskscope_service.retention.rounds import next_round
from daskscope_service.services import services
from daskscope_service.web.operation import answers
from daskscope_service.web.problems import Problem

blueprint = Blueprint("retention", __name__, url_prefix="/api/v1")

#: A float, because 30.0 is a whole number in JSON.
_Days = Annotated[float, Meta(ge=1, le=policy.MOST_DAYS, multiple_of=1)] | None | UnsetType


class KeptDays(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """How many days each kind of data is kept; null: forever."""

    clusters: _Days = UNSET
    computations: _Days = UNSET
    failures: _Days = UNSET
    events: _Days = UNSET
    profiles: _Days = UNSET
    spans: _Days = UNSET
    logs: _Days = UNSET
    series_full: _Days = UNSET
    series_5min: _Days = UNSET
    series: _Days = UNSET


class RetentionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How many days each kind of data is kept; null: forever. Omitted kinds get the default."""

    days: KeptDays


@blueprint.get("/retention")
@require("read")
@answers(types.Retention)
def retention() -> Item:
    """Answer with how long each kind of data is kept."""
    return _retention()


@blueprint.put("/retention")
@require_role("owner")
@answers(types.Retention, body=RetentionRequest, problems=(409,))
def put_retention(body: RetentionRequest) -> Item:
    """Set how long each kind of data is kept.

    The next round permanently removes older data.
    """
    check_fresh()
    said = msgspec.to_builtins(body.days)
    own = {kind: None if days is None else int(days) for kind, days in said.items()}
    try:
        with changing() as change:
            policy.set_periods(change, own)
    except policy.UnfitPolicy as error:
        raise Problem(409, f"{error}.", field=f"$.days.{error.kind}") from None
    return _retention()


def _retention() -> Item:
    engine = services().engine
    kept, own = policy.periods(engine, g.workspace), policy.periods_set(engine, g.workspace)
    interval = current_app.config["SETTINGS"].retention_interval
    return {
        "kinds": [
            {
                "kind": kind.name,
                "days": kept[kind.name],
                "default": kind.days,
                "own": kind.name in own,
                "what": kind.help,
            }
            for kind in policy.KINDS
        ],
        "next_at": next_round(engine, interval, time.time()),
    }
