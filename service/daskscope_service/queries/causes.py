"""Reads causes from stored findings: the first one of each item in a list, and what they cost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, and_, func

from daskscope_service.db.schema import FINDING_COSTS, cluster, computation, finding
from daskscope_service.db.scope import Item, Scope
from daskscope_service.queries.among import among
from daskscope_service.queries.mutes import not_muted

#: The columns of a cause that lists show.
NAMED = ("rule", "severity", "sentence")

#: How many causes of users are read: those that cost the most threads' time.
_MOST_OF_USERS = 2_000

#: The cluster's id and the computation's id, or "" for the cluster itself.
Subject = tuple[str, str]


def causes_of(scope: Scope, subjects: Collection[Subject]) -> dict[Subject, Item]:
    """Return the cause of each of the ``subjects`` that have one.

    The cause is the first finding that is not muted: its ``rule``, ``severity`` and ``sentence``.
    """
    subject = (finding.c.cluster, finding.c.computation)
    columns = [finding.c[name] for name in NAMED]
    query = among(scope.select(finding, *subject, *columns), subject, subjects)
    # Mostly there are no mutes: then one row of each subject is enough.
    unmuted = [*not_muted(scope.connection, scope.workspace, scope.now)]
    if unmuted:
        query = query.where(finding.c.suppressed_by.is_(None), *unmuted)
        query = query.order_by(finding.c.position.desc())
    else:
        query = query.where(finding.c.position == 0)
    return {
        (row[0], row[1]): dict(zip(NAMED, row[2:], strict=True))
        for row in scope.connection.execute(query)
    }


def with_finding(query: Select[Any], rule: str) -> Select[Any]:
    """Return ``query`` for the computations that have a finding of ``rule``.

    Findings that another one explains do not count. The rows also have the finding's ``at``, when
    the computation began: an index of findings has that order.
    """
    # The database is to look up the computation of each finding, not the findings of each
    # computation: for an expression, unlike a column, it uses no index.
    same = and_(
        finding.c.workspace == computation.c.workspace,
        finding.c.cluster.concat("") == computation.c.cluster,
        finding.c.computation.concat("") == computation.c.id,
    )
    return (
        query.add_columns(finding.c.at)
        .join(finding, same)
        .where(finding.c.rule == rule, finding.c.suppressed_by.is_(None))
    )


def is_cause_of_cluster(scope: Scope, rule: str) -> ColumnElement[bool]:
    """Return the condition that a cluster itself has a finding of ``rule`` that is no effect."""
    found = scope.select(finding, finding.c.cluster).where(
        finding.c.rule == rule, finding.c.computation == "", finding.c.suppressed_by.is_(None)
    )
    return cluster.c.id.in_(found)


def causes_by_cost(scope: Scope, since: float, until: float | None = None) -> list[Item]:
    """Return what causes cost by rule, for work that began since ``since``; the costliest first.

    Each item has ``rule``, ``findings`` (their number), thread-``seconds``, ``cost`` (an estimate
    by currency) and ``sources`` (of the prices). Notices, muted findings, and findings that another
    one explains are left out.
    """
    query = _costs(scope, since, finding.c.rule)
    if until is not None:
        query = query.where(finding.c.at < until)
    return _by_cost(scope, query)


def costliest_cause_of_users(scope: Scope, since: float) -> dict[str, Item]:
    """Return for each user the cause that cost the most threads' time since ``since``.

    The items are as of :func:`causes_by_cost`.
    """
    query = _costs(scope, since, finding.c.user, finding.c.rule)
    query = query.order_by(func.coalesce(func.sum(finding.c.seconds), 0.0).desc())
    found: dict[str, Item] = {}
    for item in _by_cost(scope, query.limit(_MOST_OF_USERS)):
        found.setdefault(item["user"], item)
    return found


def costliest_cause_of_runs(
    scope: Scope, runs: Collection[Subject], since: float, times: float = 1.0
) -> Item | None:
    """Return the cause that cost these computations the most threads' time since ``since``.

    It is as of :func:`causes_by_cost`, for ``times`` as many runs, and with ``sources`` sorted;
    None if nothing stands out.
    """
    key = (finding.c.cluster, finding.c.computation)
    found = _by_cost(scope, among(_costs(scope, since, finding.c.rule), key, runs))
    if not found:
        return None
    cause = found[0]
    return cause | {
        "findings": round(cause["findings"] * times),
        "seconds": cause["seconds"] * times,
        "cost": {currency: amount * times for currency, amount in cause["cost"].items()},
        "sources": sorted(cause["sources"]),
    }


def _costs(scope: Scope, since: float, *keys: Column[Any]) -> Select[Any]:
    """Return the query for what findings cost by ``keys``, of work that began since ``since``."""
    prices = (finding.c.currency, finding.c.price_source)
    sums = [func.coalesce(func.sum(finding.c[name]), 0.0).label(name)
            for name in ("seconds", "cost")]  # fmt: skip
    query = scope.select(finding, *keys, *prices, func.count().label("findings"), *sums)
    query = query.where(finding.c.at >= since, FINDING_COSTS)
    query = query.where(*not_muted(scope.connection, scope.workspace, scope.now))
    return query.group_by(*keys, *prices)


def _by_cost(scope: Scope, query: Select[Any]) -> list[Item]:
    """Return the rows of ``query`` with the amounts of different currencies joined."""
    found: dict[tuple[str, ...], Item] = {}
    for row in scope.connection.execute(query).mappings():
        keys = {name: row[name] for name in ("user", "rule") if name in row}
        nothing = {**keys, "findings": 0, "seconds": 0.0, "cost": {}, "sources": set()}
        item = found.setdefault(tuple(keys.values()), nothing)
        item["findings"] += row["findings"]
        item["seconds"] += row["seconds"]
        currency, cost = row["currency"], row["cost"]
        if currency is not None and cost > 0:  # else the page would show "0.00 USD"
            item["cost"][currency] = item["cost"].get(currency, 0.0) + cost
            item["sources"].add(row["price_source"])
    return sorted(
        found.values(), key=lambda item: (-item["seconds"], -item["findings"], item["rule"])
    )
