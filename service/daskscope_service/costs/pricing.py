"""Estimates the cost of clusters that have sent no prices, from their workspace's prices.

A cost that a cluster has computed from its own prices is left as it is. Where the workspace has set
none, the operator's price list or OpenCost comes before list prices. The idle part of an estimate
is its part for threads, memory and GPUs, times the share of idle time in all threads' time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, case, func

from daskscope.protocol import NO_CURRENCY
from daskscope_service.costs.prices import WorkspacePrices, prices_of
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.verdict import LEAST_THREADS, cluster_seconds
from daskscope_service.insight.views import UsageOfUser

_HOUR = 3600.0

#: How long a cluster was up, in seconds, as far as is known.
up = func.coalesce(cluster.c.stopped_at, cluster.c.status_at) - cluster.c.started_at

#: The column with the seconds of each thing that has a price, except the cluster itself.
_SECONDS = {"thread": "thread_seconds", "gib": "gib_seconds", "gpu": "gpu_seconds"}

#: The columns, beside those that answers show, that :func:`price_clusters` needs.
OPERATOR_COST = [
    cluster.c[name] for name in ("operator_cost", "operator_currency", "operator_source")
]


def reckonable(seconds: ColumnElement[float]) -> ColumnElement[float]:
    """Return ``seconds``, or an amount of money, but 0 for less than a billionth.

    In PostgreSQL, a product or a quotient that underflows or overflows is an error, for which the
    whole query would fail.
    """
    return case((seconds < LEAST_THREADS, 0.0), else_=seconds)


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
    if prices.source == "list":
        return func.coalesce(cluster.c.cost, cluster.c.operator_cost, estimated)
    return func.coalesce(cluster.c.cost, estimated)


def price_clusters(scope: Scope, rows: Iterable[Item]) -> list[Item]:
    """Return ``rows`` of clusters with their ``duration``, and with a cost where they have none.

    Each gets ``price_source``, as in ``daskscope.api_types.PriceSource``, for whoever has set its
    ``prices``; None if it has none.
    """
    prices = prices_of(scope.connection, scope.workspace)
    priced = []
    for row in rows:
        seconds, duration = row["worker_seconds"], cluster_seconds(row)
        threads, idle = sum(seconds.values()), seconds.get("idle", 0.0)
        priced.append(row | _priced(prices, row, duration, threads, idle) | {"duration": duration})
    return priced


def price_usage(scope: Scope, items: Iterable[Item]) -> list[UsageOfUser]:
    """Do as :func:`price_clusters`, for items of :mod:`~daskscope_service.costs.usage`."""
    prices = prices_of(scope.connection, scope.workspace)
    of_threads = ("up_seconds", "thread_seconds", "idle_seconds")
    return [
        UsageOfUser.of(item | _priced(prices, item, *(item[name] for name in of_threads)))
        for item in items
    ]


def _priced(prices: WorkspacePrices, row: Item, up: float, threads: float, idle: float) -> Item:
    """Return what changes of ``row`` by its prices."""
    own, per_hour = row["prices"], prices.per_hour
    has_time = threads >= LEAST_THREADS
    if own is not None and own["currency"] != NO_CURRENCY:
        # The share of an unknown cost is unknown, too.
        idle_cost = None if row["cost"] is None else row["idle_cost"]
        return {"price_source": "cluster", "idle_cost": idle_cost}
    if own is not None or not per_hour:  # its settings ask for no costs, or its currency is unknown
        return dict.fromkeys(("prices", "price_source", "cost", "idle_cost"))
    if prices.source == "list" and row["operator_cost"] is not None:
        whole = row["operator_cost"]
        of_thread = {"thread": whole * _HOUR / threads} if has_time else {}
        return {
            "prices": {"currency": row["operator_currency"], "per_hour": of_thread},
            "price_source": row["operator_source"],
            "cost": whole,
            "idle_cost": whole * idle / threads if has_time else 0.0,
        }
    # An older plugin reports no memory and no GPUs: these do not count.
    seconds = {"thread": threads, "gib": row["gib_seconds"], "gpu": row["gpu_seconds"]}
    by_size = sum((seconds[what] or 0.0) * per_hour.get(what, 0.0) / _HOUR for what in _SECONDS)
    return {
        "prices": {"currency": prices.currency, "per_hour": dict(per_hour)},
        "price_source": prices.source,
        "cost": by_size + per_hour.get("cluster", 0.0) / _HOUR * up,
        "idle_cost": by_size * idle / threads if has_time else 0.0,
    }
