"""What the clusters of this month have cost, and when they will have cost more than a budget."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func

from daskscope_service.costs.budgets import Budget
from daskscope_service.costs.prices import prices_of
from daskscope_service.costs.pricing import cost
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster
from daskscope_service.insight.wording import estimate, money

_DAY = 86400.0
#: The days whose cost a forecast continues, and the fewest of them.
_DAYS, _LEAST_DAYS = 7, 3
#: Clusters in those days, with fewer of which there is nothing to continue.
_LEAST_CLUSTERS = 3


@dataclass(frozen=True, slots=True)
class Forecast:
    """How the month goes on if each day costs as much as the last ``days`` did on average.

    ``at_end`` is the cost at the month's end. ``passes_at`` is when it passes the budget, None if
    that is not in this month, or has happened.
    """

    per_day: float
    days: float
    at_end: float
    passes_at: float | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What the clusters that started since ``since`` have cost, by prices of ``sources``.

    ``forecast`` is None with too few days or clusters to continue.
    """

    since: float
    amount: float
    sources: tuple[str, ...]
    forecast: Forecast | None


def month_of(now: float) -> datetime:
    """Return the start of the month of UTC in which ``now`` is."""
    moment = datetime.fromtimestamp(now, UTC)
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def cost_of_month(
    connection: Connection, workspace: str, budget: Budget, now: float
) -> tuple[float, list[str]]:
    """Return what the budget's clusters of this month have cost, and the sources of prices."""
    amount, sources, _ = _cost_since(connection, workspace, budget, month_of(now).timestamp())
    return amount, sources


def spent(connection: Connection, workspace: str, budget: Budget, now: float) -> Spent:
    """Return what was spent of ``budget`` in this month, with a forecast."""
    month = month_of(now)
    amount, sources = cost_of_month(connection, workspace, budget, now)
    lately, _, clusters = _cost_since(connection, workspace, budget, now - _DAYS * _DAY)
    oldest = select_in(workspace, cluster, func.min(cluster.c.started_at))
    first = connection.execute(oldest.where(*_clusters_of(budget)))
    days = min((now - (first.scalar() or now)) / _DAY, float(_DAYS))
    forecast = None
    if days >= _LEAST_DAYS and clusters >= _LEAST_CLUSTERS:
        next_month = (month + timedelta(days=32)).replace(day=1).timestamp()
        per_day = lately / days
        at_end = amount + per_day * (next_month - now) / _DAY
        passes_at = None
        if amount <= budget.amount < at_end:
            passes_at = now + (budget.amount - amount) / per_day * _DAY
        forecast = Forecast(per_day, days, at_end, passes_at)
    return Spent(month.timestamp(), amount, tuple(sources), forecast)


def _cost_since(
    connection: Connection, workspace: str, budget: Budget, since: float
) -> tuple[float, list[str], int]:
    """Return the cost, sources of prices and number of the budget's clusters that started since.

    Clusters whose prices are in another currency than the budget's are left out.
    """
    currency = cluster.c.prices["currency"].as_string()
    prices = prices_of(connection, workspace)
    # Sum up separately the clusters by the source of their prices.
    source: ColumnElement[Any] = case((currency.is_not(None), "cluster"), else_=prices.source)
    of_others = None if not prices.per_hour else prices.currency
    priced_in: ColumnElement[Any] = func.coalesce(currency, of_others)
    if prices.source == "list":
        listed = cluster.c.operator_cost.is_not(None)
        source = case((currency.is_not(None), "cluster"), (listed, cluster.c.operator_source),
                      else_=prices.source)  # fmt: skip
        priced_in = func.coalesce(currency, cluster.c.operator_currency, of_others)
    by_source = source.label("priced_by")
    query = select_in(workspace, cluster, by_source, func.sum(cost(prices)), func.count())
    wanted = (cluster.c.started_at >= since, priced_in == budget.currency)
    query = query.where(*wanted, *_clusters_of(budget)).group_by(by_source)
    rows = connection.execute(query).all()
    return (
        sum(amount or 0.0 for _, amount, _ in rows),
        [source for source, amount, _ in rows if amount],
        sum(count for _, _, count in rows),
    )


def _clusters_of(budget: Budget) -> list[ColumnElement[bool]]:
    """Return the conditions for the clusters that ``budget`` is for."""
    conditions = []
    if budget.user:
        conditions.append(cluster.c.user == budget.user)
    if budget.tag:
        name, _, value = budget.tag.partition("=")
        conditions.append(cluster.c.tags[name].as_string() == value)
    return conditions


def subject(budget: Budget) -> str:
    """Return whose clusters ``budget`` is for, to begin a sentence with."""
    if budget.user:
        return f"Clusters of {budget.user}"
    return f"Clusters with {budget.tag}" if budget.tag else "Clusters"


def in_words(budget: Budget, month: Spent) -> str:
    """Return how a month stands against a budget, as a sentence or two."""
    currency = budget.currency
    said = (
        f"{subject(budget)} that started in {datetime.fromtimestamp(month.since, UTC):%B} have "
        f"cost {money(month.amount, currency)} of the budget of {money(budget.amount, currency)}, "
        f"an {estimate(month.sources)}."
    )
    ahead = month.forecast
    if ahead is None:
        return f"{said} There are too few clusters or days for a forecast."
    rate = f"At {money(ahead.per_day, currency)} a day, as in the last {ahead.days:.0f} days,"
    if month.amount > budget.amount:
        return f"{said} {rate} it will be {money(ahead.at_end, currency)} at the month's end."
    if ahead.passes_at is None:
        end = f"{money(ahead.at_end, currency)} at the month's end"
        return f"{said} {rate} it will be {end}, within the budget."
    day = datetime.fromtimestamp(ahead.passes_at, UTC)
    return (
        f"{said} {rate} the budget will be passed on {day:%Y-%m-%d}, and it will be "
        f"{money(ahead.at_end, currency)} at the month's end."
    )
