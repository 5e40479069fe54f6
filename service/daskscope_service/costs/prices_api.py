"""``/api/v1/prices``: what an hour costs, for clusters whose own settings do not say it."""

from __future__ import annotations

import msgspec
from flask import Blueprint, g

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.costs.prices import Price, WorkspacePrices, prices_of, set_prices
from daskscope_service.db.scope import Item
from daskscope_service.services import services
from daskscope_service.web.fields import Currency
from daskscope_service.web.operation import answers

blueprint = Blueprint("prices", __name__, url_prefix="/api/v1")


class PerHour(msgspec.Struct, forbid_unknown_fields=True):
    """What an hour costs: of a thread, and of a cluster whatever its size."""

    thread: Price | msgspec.UnsetType = msgspec.UNSET
    cluster: Price | msgspec.UnsetType = msgspec.UNSET


class PricesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What an hour of something costs, in ``currency`` (ISO 4217); of nothing: no prices."""

    per_hour: PerHour
    currency: Currency = "USD"


@blueprint.get("/prices")
@require("read")
@answers(types.WorkspacePrices)
def prices() -> Item:
    """Answer with the workspace's prices; ``currency`` is null where there are none."""
    return _prices()


@blueprint.put("/prices")
@require_role("owner")
@answers(types.WorkspacePrices, body=PricesRequest)
def put_prices(body: PricesRequest) -> Item:
    """Set the workspace's prices; they also apply to the costs of earlier clusters."""
    per_hour = msgspec.to_builtins(body.per_hour)
    with changing() as change:
        set_prices(change, WorkspacePrices(body.currency, per_hour) if per_hour else None)
    return _prices()


def _prices() -> Item:
    with services().engine.connect() as connection:
        prices = prices_of(connection, g.workspace)
    if prices is None:
        return {"currency": None, "per_hour": {}, "changed_at": None, "changed_by": None}
    return {
        "currency": prices.currency,
        "per_hour": dict(prices.per_hour),
        "changed_at": prices.changed_at,
        "changed_by": prices.changed_by,
    }
