"""Costs of clusters that brought no prices, by those of their workspace: estimates, made here.

What a cluster reckoned by its own prices is left as it is. Of what is estimated here, idle is the
price of the threads' time in which they had no task.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, func

from daskscope_service.costs.prices import WorkspacePrices, prices_of
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Item, Scope

_HOUR = 3600.0

#: For how long it was up, in seconds, as far as is known.
up = func.coalesce(cluster.c.stopped_at, cluster.c.status_at) - cluster.c.started_at


def cost(prices: WorkspacePrices | None) -> ColumnElement[Any]:
    """Return what a cluster cost, in whatever currency: a column of a query of clusters."""
    if prices is None:
        return cluster.c.cost
    return func.coalesce(cluster.c.cost, estimated_cost(prices))


def estimated_cost(prices: WorkspacePrices) -> ColumnElement[Any]:
    """Return what a cluster cost by ``prices``: a column of a query of clusters."""
    by_thread = cluster.c.thread_seconds * (prices.per_hour.get("thread", 0.0) / _HOUR)
    return by_thread + up * (prices.per_hour.get("cluster", 0.0) / _HOUR)


def price_clusters(scope: Scope, items: list[Item]) -> list[Item]:
    """Give ``items``, clusters with their ``duration``, a cost where they have none.

    Each gets ``price_source``: "cluster" or "workspace", whose ``prices`` it has; None for none.
    """
    prices = prices_of(scope.connection, scope.workspace)
    for item in items:
        seconds = item["worker_seconds"]
        _price(prices, item, item["duration"], sum(seconds.values()), seconds.get("idle", 0.0))
    return items


def price_usage(scope: Scope, items: list[Item]) -> list[Item]:
    """As :func:`price_clusters`, for items of :mod:`~daskscope_service.costs.usage`."""
    prices = prices_of(scope.connection, scope.workspace)
    for item in items:
        _price(prices, item, item["up_seconds"], item["thread_seconds"], item["idle_seconds"])
    return items


def _price(
    prices: WorkspacePrices | None, item: Item, up: float, threads: float, idle: float
) -> None:
    item["price_source"] = None if item["prices"] is None else "cluster"
    if item["prices"] is None or item["cost"] is None:
        item["cost"] = item["idle_cost"] = None  # of no currency, or idle out of nothing
    if prices is None or item["prices"] is not None:
        return
    by_thread = prices.per_hour.get("thread", 0.0) / _HOUR
    item["price_source"] = "workspace"
    item["prices"] = {"currency": prices.currency, "per_hour": dict(prices.per_hour)}
    item["cost"] = by_thread * threads + prices.per_hour.get("cluster", 0.0) / _HOUR * up
    item["idle_cost"] = by_thread * idle
