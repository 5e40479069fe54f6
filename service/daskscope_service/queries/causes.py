"""Reads causes from stored findings: the first one of each item in a list, and what they cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from sqlalchemy import Column, ColumnElement, Select, and_, func, tuple_

from daskscope_service.db.row_values import Row
from daskscope_service.db.schema import FINDING_COSTS, cluster, computation, finding
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.rules import OF_BOTH
from daskscope_service.queries.among import among
from daskscope_service.queries.mutes import not_muted

#: The columns of a cause that lists show.
NAMED = ("rule", "severity", "sentence")

#: How many causes of users are read: those that cost the most threads' time.
_MOST_OF_USERS = 2_000

#: The cluster's id and the computation's id, or "" for the cluster itself.
Subject = tuple[str, str]


class CostOfCause(Row, frozen=True):
    """What a cause cost: its number of findings, thread-``seconds``, and an estimate by currency.

    ``sources`` are those of the prices, sorted.
    """

    rule: str
    findings: int
    seconds: float
    cost: dict[str, float]
    sources: list[str]


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
    clusters = scope.select(finding, finding.c.cluster).where(
        finding.c.rule == rule, finding.c.computation == "", finding.c.suppressed_by.is_(None)
    )
    return cluster.c.id.in_(clusters)


def causes_by_cost(scope: Scope, since: float, until: float | None = None) -> list[CostOfCause]:
    """Return what causes cost by rule, for work that began since ``since``; the costliest first.

    Notices, muted findings, and findings that another one explains are left out. So are those of a
    cluster that a computation on it has, too: they are about the same.
    """
    queries = [_costs(scope, since, finding.c.rule), _costs_twice(scope, since, finding.c.rule)]
    if until is not None:
        queries = [query.where(finding.c.at < until) for query in queries]
    return [cause for _, cause in _by_cost(scope, *queries)]


def costliest_cause_of_users(scope: Scope, since: float) -> dict[str, CostOfCause]:
    """Return for each user the cause that cost the most threads' time since ``since``."""
    keys = (finding.c.user, finding.c.rule)
    query = _costs(scope, since, *keys)
    query = query.order_by(func.coalesce(func.sum(finding.c.seconds), 0.0).desc())
    query, twice = query.limit(_MOST_OF_USERS), _costs_twice(scope, since, *keys)
    by_user: dict[str, CostOfCause] = {}
    for user, cause in _by_cost(scope, query, twice):
        by_user.setdefault(user, cause)
    return by_user


def costliest_cause_of_runs(
    scope: Scope, runs: Collection[Subject], since: float, times: float = 1.0
) -> Item | None:
    """Return the cause that cost these computations the most threads' time since ``since``.

    It has the fields of :class:`CostOfCause`, for ``times`` as many runs; None if nothing stands
    out.
    """
    key = (finding.c.cluster, finding.c.computation)
    causes = _by_cost(scope, among(_costs(scope, since, finding.c.rule), key, runs))
    if not causes:
        return None
    _, cause = causes[0]
    return asdict(cause) | {
        "findings": round(cause.findings * times),
        "seconds": cause.seconds * times,
        "cost": {currency: amount * times for currency, amount in cause.cost.items()},
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


def _costs_twice(scope: Scope, since: float, *keys: Column[Any]) -> Select[Any]:
    """Return the part of :func:`_costs` of a cluster's findings that its computations have, too."""
    theirs = scope.select(finding, finding.c.cluster, finding.c.rule).where(
        *(finding.c.at >= since, FINDING_COSTS, finding.c.rule.in_(OF_BOTH)),
        finding.c.computation != "",
        # A muted one is not counted, so the cluster's is.
        *not_muted(scope.connection, scope.workspace, scope.now),
    )
    return _costs(scope, since, *keys).where(
        finding.c.rule.in_(OF_BOTH),
        finding.c.computation == "",
        tuple_(finding.c.cluster, finding.c.rule).in_(theirs),
    )


def _by_cost(
    scope: Scope, query: Select[Any], twice: Select[Any] | None = None
) -> list[tuple[str, CostOfCause]]:
    """Return users and causes of the rows of ``query``, with amounts of all currencies joined.

    The user is "" if the query does not select users. The amounts of ``twice`` are taken off.
    """
    left_out = (
        {}
        if twice is None
        else {_key(row): row for row in scope.connection.execute(twice).mappings()}
    )
    rows: dict[tuple[str, str], list[Any]] = {}
    for whole in scope.connection.execute(query).mappings():
        row = dict(whole)
        if (part := left_out.get(_key(row))) is not None:
            row |= {name: row[name] - part[name] for name in ("findings", "seconds", "cost")}
        if row["findings"]:
            rows.setdefault((row.get("user", ""), row["rule"]), []).append(row)
    causes = [(user, _joined(rule, some)) for (user, rule), some in rows.items()]
    return sorted(causes, key=lambda one: (-one[1].seconds, -one[1].findings, one[1].rule))


def _key(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("user", "rule", "currency", "price_source"))


def _joined(rule: str, rows: Sequence[Any]) -> CostOfCause:
    cost: dict[str, float] = {}
    # Without costs of 0, which the page would show as "0.00 USD".
    priced = [row for row in rows if row["currency"] is not None and row["cost"] > 0]
    for row in priced:
        cost[row["currency"]] = cost.get(row["currency"], 0.0) + row["cost"]
    return CostOfCause(
        rule=rule,
        findings=sum(row["findings"] for row in rows),
        seconds=sum(row["seconds"] for row in rows),
        cost=cost,
        sources=sorted({row["price_source"] for row in priced}),
    )
