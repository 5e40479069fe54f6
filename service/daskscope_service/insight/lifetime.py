"""Describes what a cluster did: what it ran, how many workers it lost, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from daskscope_service.db.readable import Readable
from daskscope_service.insight.wording import money, number, plural

# The word for computations that did not finish, by the status that the cluster reported last.
_CAME_TO = {"erred": "failed", "cancelled": "cancelled", "running": "unfinished"}


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Counts of what happened on a cluster.

    ``computations`` counts them by the status that the cluster reported last; ``lost`` counts the
    workers that left unexpectedly.
    """

    computations: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


def what_it_did(cluster: Readable, life: Lifetime, *, with_cost: bool) -> str:
    """Return what follows "it" in a sentence: ``ran 3 computations (1 failed)``.

    ``with_cost`` adds what the cluster cost, if it has prices.
    """
    parts = [_ran(life)]
    if life.lost:
        parts.append(f"lost {plural(life.lost, 'worker')}")
    cost = _cost(cluster) if with_cost else ""
    if cost:
        parts.append(cost)
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _ran(life: Lifetime) -> str:
    all_of_them = sum(life.computations.values())
    if not all_of_them:
        return "ran no computation"
    others = [
        f"{number(life.computations[status])} {word}"
        for status, word in _CAME_TO.items()
        if life.computations.get(status)
    ]
    return f"ran {plural(all_of_them, 'computation')}" + (
        f" ({', '.join(others)})" if others else ""
    )


def _cost(cluster: Readable) -> str:
    cost, idle = cluster["cost"], cluster["idle_cost"]
    currency = (cluster["prices"] or {}).get("currency")
    if not cost or currency is None:
        return ""
    spent, of_it = money(cost, currency), ""
    if idle and not spent.startswith("<"):
        of_it = f", {money(idle, currency)} of it idle"
    at = " at list prices" if cluster["price_source"] == "list" else ""
    return f"cost {spent}{at}{of_it}"
