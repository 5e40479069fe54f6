"""``/api/v1/budget``: the workspace's budget for a month."""

from __future__ import annotations

import time
from dataclasses import asdict

import msgspec
from flask import Blueprint, g

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.costs.budgets import Amount, Budget, budget_of, set_budget
from daskscope_service.costs.forecasts import in_words, spent
from daskscope_service.db.scope import Item
from daskscope_service.services import services
from daskscope_service.web.fields import Currency
from daskscope_service.web.operation import answers

blueprint = Blueprint("budget", __name__, url_prefix="/api/v1")


class BudgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What the clusters that start in a month (UTC) may cost; null: no budget."""

    amount: Amount | None
    currency: Currency = "USD"


@blueprint.get("/budget")
@require("read")
@answers(types.Budget)
def budget() -> Item:
    """Answer with the budget; its ``amount`` is null if there is none."""
    return _budget()


@blueprint.put("/budget")
@require_role("owner")
@answers(types.Budget, body=BudgetRequest)
def put_budget(body: BudgetRequest) -> Item:
    """Set the budget; an ``amount`` of null removes it."""
    with changing() as change:
        set_budget(change, None if body.amount is None else Budget(body.amount, body.currency))
    return _budget()


def _budget() -> Item:
    with services().engine.connect() as connection:
        budget = budget_of(connection, g.workspace)
        if budget is None:
            return dict.fromkeys(("amount", "currency", "spent", "sentence", "forecast"))
        found = spent(connection, g.workspace, budget, time.time())
    return asdict(budget) | {
        "spent": found.amount,
        "sentence": in_words(budget, found),
        "forecast": None if found.forecast is None else asdict(found.forecast),
    }
