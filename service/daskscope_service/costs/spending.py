"""Sums of usage and costs, over users and periods.

Amounts of different currencies are never added up. Clusters without prices are not free: they are
counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from daskscope_service.db.readable import Readable

#: What to call the prices that the operator of the service has set, by their source.
_OF_OPERATOR = {"instances": "a price list of machines", "opencost": "OpenCost"}


@dataclass(slots=True)
class UsageSum:
    """A sum of usage, in seconds, and of costs: ``cost`` and ``idle_cost`` by currency.

    ``sources``: who has set the prices, as in ``PriceSource``. ``unpriced``: how many of
    the ``clusters`` have no prices. A cluster counts once in each period in which it was there.
    """

    clusters: int = 0
    unpriced: int = 0
    up_seconds: float = 0.0
    thread_seconds: float = 0.0
    idle_seconds: float = 0.0
    cost: dict[str, float] = field(default_factory=dict)
    idle_cost: dict[str, float] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)

    def add(self, item: Readable) -> None:
        """Add an item of :func:`daskscope_service.costs.usage.list_usage`."""
        self.clusters += item["clusters"]
        self.up_seconds += item["up_seconds"]
        self.thread_seconds += item["thread_seconds"]
        self.idle_seconds += item["idle_seconds"]
        if item["prices"] is None or item["cost"] is None:
            self.unpriced += item["clusters"]
        else:
            currency = item["prices"]["currency"]
            self.sources.add(item["price_source"])
            self.cost[currency] = self.cost.get(currency, 0.0) + item["cost"]
            idle_cost = item["idle_cost"] or 0.0
            self.idle_cost[currency] = self.idle_cost.get(currency, 0.0) + idle_cost

    @property
    def idle_share(self) -> float | None:
        """The idle share of the threads' time, 0 to 1; None if there was no time."""
        return self.idle_seconds / self.thread_seconds if self.thread_seconds else None


def _add(to: dict[str, float], amounts: Mapping[str, float]) -> None:
    for currency, amount in amounts.items():
        to[currency] = to.get(currency, 0.0) + amount


def first_monday(now: float, weeks: int) -> int:
    """Return the Monday of the first of ``weeks`` weeks up to ``now``, in days since the epoch."""
    return monday_of(int(now // 86400)) - 7 * (weeks - 1)


def monday_of(day: int) -> int:
    """Return the Monday of the week of ``day``; both are days since the Unix epoch, in UTC."""
    return day - (day + 3) % 7  # day 0 was a Thursday


def by_period(items: Iterable[Readable], periods: int) -> list[UsageSum]:
    """Return what was spent in each period, in their order."""
    sums = [UsageSum() for _ in range(periods)]
    for item in items:
        sums[item["period"]].add(item)
    return sums


def by_user(items: Iterable[Readable], periods: int) -> dict[str, list[UsageSum]]:
    """Return what each user spent in each period."""
    sums: dict[str, list[UsageSum]] = {}
    for item in items:
        user = item["user"]
        if user not in sums:
            sums[user] = [UsageSum() for _ in range(periods)]
        sums[user][item["period"]].add(item)
    return sums


def total_of(items: Iterable[Readable]) -> UsageSum:
    """Return the sum of all ``items``."""
    whole = UsageSum()
    for item in items:
        whole.add(item)
    return whole


def total(spent: Iterable[UsageSum]) -> UsageSum:
    """Return the sum of ``spent``."""
    whole = UsageSum()
    for one in spent:
        whole.clusters += one.clusters
        whole.unpriced += one.unpriced
        whole.up_seconds += one.up_seconds
        whole.thread_seconds += one.thread_seconds
        whole.idle_seconds += one.idle_seconds
        _add(whole.cost, one.cost)
        _add(whole.idle_cost, one.idle_cost)
        whole.sources |= one.sources
    return whole


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices that clusters had. ``words`` is the price of an hour of each thing, in words.

    ``source`` is "cluster" for its own settings, "workspace" for its workspace's, "instances" for
    the operator's price list, "opencost" for OpenCost, "list" for list prices.
    """

    words: str
    users: tuple[str, ...]
    source: str


def price_lists(items: Iterable[Readable]) -> list[PriceList]:
    """Return the different prices in ``items``, with the users whose clusters had them."""
    users_by_prices: dict[tuple[str, str], set[str]] = {}
    for item in items:
        if item["prices"] is not None:
            source = item["price_source"]
            words = _prices_in_words(item["prices"])
            if source in _OF_OPERATOR:  # what a thread costs differs from cluster to cluster
                words = f"{_OF_OPERATOR[source]}, in {item['prices']['currency']}"
            users_by_prices.setdefault((words, source), set()).add(item["user"])
    return [PriceList(words, tuple(sorted(users)), source)
            for (words, source), users in sorted(users_by_prices.items())]  # fmt: skip


def _prices_in_words(prices: Mapping[str, Any]) -> str:
    what = {"gib": "GiB of worker memory", "gpu": "GPU"}
    parts = [
        f"{what.get(name, name)} {price:g} {prices['currency']}"
        for name, price in prices["per_hour"].items()
    ]
    return f"{', '.join(parts) or 'nothing'} an hour"
