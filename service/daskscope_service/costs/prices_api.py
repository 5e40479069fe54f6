"""``/api/v1/prices``: prices per hour, for clusters whose own settings have none."""

from __future__ import annotations

import msgspec
from flask import Blueprint, g

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.costs.prices import (
    Price,
    WorkspacePrices,
    own_prices,
    prices_of,
    set_prices,
)
from daskscope_service.db.scope import Item
from daskscope_service.services import services
from daskscope_service.web.fields import Currency
from daskscope_service.web.operation import answers

blueprint = Blueprint("prices", __name__, url_prefix="/api/v1")


class PerHour(msgspec.Struct, forbid_unknown_fields=True):
    """Prices of an hour: of a thread, a GiB of the workers' memory, a worker's GPU, a cluster."""

    thread: Price | msgspec.UnsetType = msgspec.UNSET
    gib: Price | msgspec.UnsetType = msgspec.UNSET
    gpu: Price | msgspec.UnsetType = msgspec.UNSET
    cluster: Price | msgspec.UnsetType = msgspec.UNSET


class PricesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The prices per hour, in ``currency`` (ISO 4217); an empty ``per_hour``: no costs."""

    per_hour: PerHour
    currency: Currency = "USD"


@blueprint.get("/prices")
@require("read")
@answers(types.WorkspacePrices)
def prices() -> Item:
    """Answer with the prices in force: the workspace's own or, if it has set none, list prices.

    If it wants no costs, ``currency`` is null.
    """
    return _prices()


@blueprint.put("/prices")
@require_role("owner")
@answers(types.WorkspacePrices, body=PricesRequest)
def put_prices(body: PricesRequest) -> Item:
    """Set the workspace's prices; they also apply to the costs of earlier clusters.

    With an empty ``per_hour``, clusters without prices of their own have no costs.
    """
    with changing() as change:
        set_prices(change, own_prices(body.currency, msgspec.to_builtins(body.per_hour)))
    return _prices()


@blueprint.delete("/prices")
@require_role("owner")
@answers(types.WorkspacePrices)
def delete_prices() -> Item:
    """Go back to list prices."""
    with changing() as change:
        set_prices(change, WorkspacePrices())
    return _prices()


def _prices() -> Item:
    with services().engine.connect() as connection:
        prices = prices_of(connection, g.workspace)
    return {
        "source": prices.source,
        "currency": prices.currency or None,
        "per_hour": dict(prices.per_hour),
        "changed_at": prices.changed_at,
        "changed_by": prices.changed_by,
    }
