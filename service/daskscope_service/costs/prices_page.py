"""Settings, prices: the prices per hour, who has set them, and the costs that follow."""

from __future__ import annotations

import time

from flask import Blueprint, g, redirect, render_template
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing, may_act, signed_in
from daskscope_service.costs.prices import (
    LIST_CURRENCY,
    LIST_PER_HOUR,
    PRICED,
    THINGS,
    WorkspacePrices,
    own_prices,
    prices_of,
    set_prices,
    wrong_with,
)
from daskscope_service.costs.spending import first_monday, price_lists, total_of
from daskscope_service.costs.usage import list_usage
from daskscope_service.db.scope import reading
from daskscope_service.web.forms import said

blueprint = Blueprint("prices_page", __name__)

#: How many weeks the page shows, this one included.
_WEEKS = 8


@blueprint.get("/settings/prices")
@signed_in
def prices() -> ResponseReturnValue:
    """Show the prices in force, and the costs of clusters that follow from them."""
    return _page()


@blueprint.post("/settings/prices")
@acting_as("owner")
def change() -> ResponseReturnValue:
    """Store the form's prices, or go back to list prices, or have no costs."""
    if (source := said("source")) in ("list", "none"):
        with changing() as change:
            set_prices(change, WorkspacePrices() if source == "list" else own_prices("", {}))
        return redirect("/settings/prices", code=303)
    fields = {name: said(name) for name in ("currency", *PRICED)}
    per_hour: dict[str, float] = {}
    wrong: dict[str, str] = {}
    for name in PRICED:
        if text := fields[name]:
            try:
                per_hour[name] = float(text)
            except ValueError:
                wrong[name] = f"{text!r} is not a number: write an amount such as 0.06."
    entered = own_prices(fields["currency"].upper(), per_hour)
    wrong |= wrong_with(entered)
    if not per_hour and not wrong:
        wrong["thread"] = "Write a price, or choose list prices or no costs below."
    if wrong:
        return _page(fields, wrong)
    with changing() as change:
        set_prices(change, entered)
    return redirect("/settings/prices", code=303)


def _page(
    fields: dict[str, str] | None = None, wrong: dict[str, str] | None = None
) -> tuple[str, int]:
    now = time.time()
    with reading() as scope:
        items = list_usage(scope, first_monday(now, _WEEKS), _WEEKS, 7)
        prices = prices_of(scope.connection, scope.workspace)
    if fields is None:
        fields = {"currency": LIST_CURRENCY}
        if prices.source == "workspace":
            fields = {name: f"{price:g}" for name, price in prices.per_hour.items()}
            fields["currency"] = prices.currency
    page = render_template(
        "prices.html",
        now=now,
        weeks=_WEEKS,
        prices=prices,
        things=THINGS,
        list_prices=LIST_PER_HOUR,
        list_currency=LIST_CURRENCY,
        ours=total_of(item for item in items if item.price_source in ("workspace", "list")),
        unpriced=total_of(item for item in items if item.price_source is None),
        users=sorted({item.user for item in items if item.price_source != "cluster"}),
        theirs=[one for one in price_lists(items) if one.source == "cluster"],
        fields=fields,
        wrong=wrong or {},
        may_change=may_act(g.session, "owner"),
    )
    return page, 400 if wrong else 200
