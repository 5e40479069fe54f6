"""``/api/v1/budget`` and ``/api/v1/budgets``: the workspace's budgets for a month."""

from __future__ import annotations

import time
from dataclasses import asdict

import msgspec
from flask import Blueprint, g
from sqlalchemy import Connection

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, require, require_role
from daskscope_service.costs.budgets import (
    Amount,
    Budget,
    Tag,
    TooManyBudgets,
    User,
    budget_of,
    list_budgets,
    remove_budget,
    set_budget,
)
from daskscope_service.costs.forecasts import in_words, spent
from daskscope_service.db.scope import Item
from daskscope_service.services import services
from daskscope_service.web.fields import Currency
from daskscope_service.web.operation import answers
from daskscope_service.web.problems import Problem

blueprint = Blueprint("budget", __name__, url_prefix="/api/v1")


class BudgetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What the clusters that start in a month (UTC) may cost; null: no budget.

    It is for the clusters of ``user`` or for those with ``tag`` (name=value), or for all clusters.
    """

    amount: Amount | None
    currency: Currency = "USD"
    user: User = ""
    tag: Tag = ""


@blueprint.get("/budgets")
@require("read")
@answers(types.Page[types.Budget])
def budgets() -> Item:
    """Answer with all budgets: first that of all clusters, then those of users, then of tags."""
    with services().engine.connect() as connection:
        items = [_stands(connection, one) for one in list_budgets(connection, g.workspace)]
    return {"items": items, "next": None}


@blueprint.get("/budget")
@require("read")
@answers(types.Budget)
def budget() -> Item:
    """Answer with the budget of all clusters; its ``amount`` is null if there is none."""
    return _one()


@blueprint.put("/budget")
@require_role("owner")
@answers(types.Budget, body=BudgetRequest, problems=(409,))
def put_budget(body: BudgetRequest) -> Item:
    """Set the budget of all clusters, of a user or of a tag; an ``amount`` of null removes it."""
    try:
        with changing() as change:
            if body.amount is None:
                remove_budget(change, body.user, body.tag)
            else:
                set_budget(change, Budget(body.amount, body.currency, body.user, body.tag))
    except TooManyBudgets as error:
        raise Problem(409, str(error)) from None
    return _one(body.user, body.tag)


def _one(user: str = "", tag: str = "") -> Item:
    with services().engine.connect() as connection:
        limit = budget_of(connection, g.workspace, user, tag)
        if limit is not None:
            return _stands(connection, limit)
    none = dict.fromkeys(("amount", "currency", "spent", "sentence", "forecast"))
    return none | {"user": user or None, "tag": tag or None}


def _stands(connection: Connection, budget: Budget) -> Item:
    month = spent(connection, g.workspace, budget, time.time())
    return {
        "user": budget.user or None,
        "tag": budget.tag or None,
        "amount": budget.amount,
        "currency": budget.currency,
        "spent": month.amount,
        "sentence": in_words(budget, month),
        "forecast": None if month.forecast is None else asdict(month.forecast),
    }
