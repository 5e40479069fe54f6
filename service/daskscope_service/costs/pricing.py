"""Estimates the cost of clusters that have sent no prices, from their workspace's prices.

A cost that a cluster has computed from its own prices is left as it is. The idle part of an
estimate is its part for threads, memory and GPUs, times the share of idle time in all threads'
time.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, func

from daskscope.protocol import NO_CURRENCY
from daskscope_service.costs.prices import WorkspacePrices, prices_of
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Item, Scope

_HOUR = 3600.0

#: How long a cluster was up, in seconds, as far as is known.
up = func.coalesce(cluster.c.stopped_at, cluster.c.status_at) - cluster.c.started_at

#: The column with the seconds of each thing that has a price, except the cluster itself.
_SECONDS = {"thread": "thread_seconds", "gib": "gib_seconds", "gpu": "gpu_seconds"}


def reckonable(seconds: ColumnElement[float]) -> ColumnElement[float]:
    """Return ``seconds``, but 0 for less than a nanosecond.

    In PostgreSQL, a product or a quotient that underflows or overflows is an error, for which the
    whole query would fail.
    """
    return case((seconds < 1e-9, 0.0), else_=seconds)


def cost(prices: WorkspacePrices) -> ColumnElement[Any]:
    """Return the column of a cluster's cost, in whatever currency, for a query of clusters."""
    if not prices.per_hour:
        return cluster.c.cost
    by_size = [
        func.coalesce(reckonable(cluster.c[column]), 0.0) * (prices.per_hour[what] / _HOUR)
        for what, column in _SECONDS.items()
        if what in prices.per_hour
    ]
    estimated = sum(by_size, up * (prices.per_hour.get("cluster", 0.0) / _HOUR))
    return func.coalesce(cluster.c.cost, estimated)


def price_clusters(scope: Scope, items: list[Item]) -> list[Item]:
    """Give a cost to those ``items`` that have none; each is a cluster with its ``duration``.

    Each gets ``price_source``: "cluster", "workspace" or "list", for whoever has set its
    ``prices``; None if it has none.
    """
    prices = prices_of(scope.connection, scope.workspace)
    for item in items:
        seconds = item["worker_seconds"]
        _price(prices, item, item["duration"], sum(seconds.values()), seconds.get("idle", 0.0))
    return items


def price_usage(scope: Scope, items: list[Item]) -> list[Item]:
    """Do as :func:`price_clusters`, for items of :mod:`~daskscope_service.costs.usage`."""
    prices = prices_of(scope.connection, scope.workspace)
    for item in items:
        _price(prices, item, item["up_seconds"], item["thread_seconds"], item["idle_seconds"])
    return items


def _price(prices: WorkspacePrices, item: Item, up: float, threads: float, idle: float) -> None:
    own = item["prices"]
    item["price_source"] = None if own is None else "cluster"
    if own is not None and own["currency"] == NO_CURRENCY:  # its settings ask for no costs
        item["prices"] = item["price_source"] = item["cost"] = item["idle_cost"] = None
        return
    if own is None or item["cost"] is None:
        item["cost"] = item["idle_cost"] = None  # its currency is not known, or its cost is not
    if own is not None or not prices.per_hour:
        return
    item["price_source"] = prices.source
    item["prices"] = {"currency": prices.currency, "per_hour": dict(prices.per_hour)}
    per_hour = prices.per_hour
    # An older plugin reports no memory and no GPUs: these do not count.
    seconds = {"thread": threads, "gib": item["gib_seconds"], "gpu": item["gpu_seconds"]}
    by_size = sum((seconds[what] or 0.0) * per_hour.get(what, 0.0) / _HOUR for what in _SECONDS)
    item["cost"] = by_size + per_hour.get("cluster", 0.0) / _HOUR * up
    item["idle_cost"] = by_size * idle / threads if threads else 0.0
