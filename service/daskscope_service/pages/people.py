"""People and cost: usage and costs of each user's clusters, week by week."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.accounts.first_run import first_run, has_clusters
from daskscope_service.costs.budgets import list_budgets
from daskscope_service.costs.forecasts import in_words, spent
from daskscope_service.costs.spending import (
    UsageSum,
    by_period,
    by_user,
    first_monday,
    price_lists,
    total,
)
from daskscope_service.costs.usage import list_usage
from daskscope_service.db.scope import reading
from daskscope_service.insight.views import UsageOfUser
from daskscope_service.insight.wording import hours, money
from daskscope_service.queries.causes import costliest_cause_of_users
from daskscope_service.web.downloads import csv_answer
from daskscope_service.web.parameters import one_of, refuse_unknown

blueprint = Blueprint("people", __name__)

#: For how many weeks the page can be asked, this week included; the first is the default.
WEEKS = ("8", "4", "13", "26")
#: How many people the page shows, those with the most first; the CSV has all.
MOST_SHOWN = 100
#: Shades of the heat map, from the least to the most.
_SHADES = 6

_DAY = 86400
#: The days in which the findings are of what would save most.
_CAUSE_DAYS = 30

_CSV = (
    *("user", "week", "clusters", "cluster_hours", "compute_hours", "idle_compute_hours"),
    *("currency", "price_source", "cost_estimate", "idle_cost_estimate"),
)


@dataclass(frozen=True, slots=True)
class HeatMeasure:
    """What the heat map shows: its ``name`` in the address, its ``label``, and its format.

    ``amount`` returns None if it is not known: nothing has a price in that currency.
    """

    name: str
    label: str
    amount: Callable[[UsageSum], float | None]
    words: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One week of one user. ``shade`` is 0 for nothing, up to :data:`_SHADES` for the most."""

    words: str
    shade: int


_NOTHING = Cell("·", 0)


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user. ``cells`` begin with the newest week."""

    user: str
    cells: list[Cell]
    whole: UsageSum


@blueprint.get("/people")
@signed_in
def people() -> ResponseReturnValue:
    """Show the users as a heat map over weeks, and as a table."""
    refuse_unknown("weeks", "show")
    weeks = int(one_of("weeks", WEEKS))
    now = time.time()
    first = first_monday(now, weeks)
    with reading() as scope:
        if not has_clusters(scope):
            return first_run()
        items = list_usage(scope, first, weeks, 7)
        causes = costliest_cause_of_users(scope, now - _CAUSE_DAYS * _DAY)
        budgets = [
            in_words(limit, spent(scope.connection, scope.workspace, limit, now))
            for limit in list_budgets(scope.connection, scope.workspace)
        ]
    each_week = by_period(items, weeks)
    whole = total(each_week)
    measures = _measures(whole)
    shown = one_of("show", tuple(measures))
    measure = measures[shown]
    users = by_user(items, weeks)
    highest = max(
        (measure.amount(one) or 0.0 for each in users.values() for one in each), default=0.0
    )
    sums = {user: total(each) for user, each in users.items()}
    order = sorted(sums, key=lambda user: (-(measure.amount(sums[user]) or 0.0), user))
    rows = [
        UserRow(user, [_cell(measure, one, highest) for one in reversed(users[user])], sums[user])
        for user in order[:MOST_SHOWN]
    ]
    return render_template(
        "people.html",
        now=now,
        moving=False,
        weeks=weeks,
        choices=sorted(map(int, WEEKS)),
        # The newest first, beside the names: half a year is wider than most screens.
        starts=[(first + 7 * week) * _DAY for week in reversed(range(weeks))],
        measure=measure,
        measures=measures,
        rows=rows,
        left_out=len(order) - len(rows),
        whole=whole,
        sums=[_text(measure, one) for one in reversed(each_week)],
        text_of=functools.partial(_text, measure),
        budgets=budgets,
        causes=causes,
        cause_days=_CAUSE_DAYS,
        prices=price_lists(items),
        shades=_SHADES,
    )


@blueprint.get("/people.csv")
@signed_in
def people_csv() -> ResponseReturnValue:
    """Answer with the usage and costs of each user's clusters in each week, as CSV."""
    refuse_unknown("weeks")
    weeks = int(one_of("weeks", WEEKS))
    first = first_monday(time.time(), weeks)
    with reading() as scope:
        items = list_usage(scope, first, weeks, 7)
    return csv_answer(_CSV, [_csv_row(item, first) for item in items], "people")


def _measures(whole: UsageSum) -> dict[str, HeatMeasure]:
    """Return what can be shown: first the costs in each currency, if there are prices."""
    measures: list[HeatMeasure] = []
    for currency in sorted(whole.cost, key=lambda name: -whole.cost[name]):
        code = currency.lower()
        measures += [
            HeatMeasure(
                f"cost-{code}", f"cost, {currency}", _cost_in(currency), _text_in(currency)
            ),
            HeatMeasure(
                f"idle-{code}", f"idle cost, {currency}", _idle_in(currency), _text_in(currency)
            ),
        ]
    measures += [
        HeatMeasure("compute", "compute hours", lambda one: one.thread_seconds, hours),
        HeatMeasure("cluster", "cluster hours", lambda one: one.up_seconds, hours),
    ]
    return {measure.name: measure for measure in measures}


def _cost_in(currency: str) -> Callable[[UsageSum], float | None]:
    return lambda spent: spent.cost.get(currency)


def _idle_in(currency: str) -> Callable[[UsageSum], float | None]:
    return lambda spent: spent.idle_cost.get(currency)


def _text_in(currency: str) -> Callable[[float], str]:
    return lambda amount: money(amount, currency).removesuffix(f" {currency}")


def _cell(measure: HeatMeasure, spent: UsageSum, highest: float) -> Cell:
    if not spent.clusters:
        return _NOTHING
    amount = measure.amount(spent)
    shade = min(1 + int(_SHADES * amount / highest), _SHADES) if amount and amount > 0 else 0
    return Cell(_text(measure, spent), shade)


def _text(measure: HeatMeasure, spent: UsageSum) -> str:
    amount = measure.amount(spent)
    if not spent.clusters:
        return _NOTHING.words
    return "–" if amount is None else measure.words(amount)


def _csv_row(used: UsageOfUser, first: int) -> list[Any]:
    prices: Mapping[str, Any] = used.prices or {}
    monday = datetime.fromtimestamp((first + 7 * used.period) * _DAY, UTC)
    return [
        used.user,
        f"{monday:%Y-%m-%d}",
        used.clusters,
        *(round(used[name] / 3600, 4) for name in ("up_seconds", "thread_seconds", "idle_seconds")),
        prices.get("currency"),
        used.price_source,
        used.cost,
        used.idle_cost,
    ]
