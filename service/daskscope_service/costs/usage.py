"""Usage and cost of clusters in days or weeks, by user."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, case, func, not_, select

from daskscope_service.costs import usage_sums
from daskscope_service.costs.pricing import price_usage, reckonable
from daskscope_service.db.schema import usage
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.verdict import LEAST_THREADS
from daskscope_service.insight.views import UsageOfUser

_DAY = 86400.0
_TOTALS = (
    *("up_seconds", "thread_seconds", "idle_seconds", "cost", "idle_cost"),
    *("gib_seconds", "gpu_seconds"),
)
_OF_OPERATOR = ("operator_cost", "operator_currency", "operator_source")

#: How many users, each with their prices, are listed for one period: those with the most threads'
#: time. All others are added up. Whoever may send data could invent a million users a day.
MOST_USERS = 2_000
OTHERS = "other users"
#: How many currencies that sum keeps apart.
_MOST_CURRENCIES = 50


def list_usage(scope: Scope, first: int, periods: int, days: int) -> list[UsageOfUser]:
    """Return the usage of each user's clusters in each of ``periods`` periods of ``days`` days.

    ``first`` is the first day, in days since the Unix epoch, in UTC. Periods count from 0. Users
    beyond :data:`MOST_USERS` are added up as :data:`OTHERS`.
    """
    starts = range(first, first + periods * days, days)
    sums = usage_sums.kept(scope.connection, scope.workspace, days, starts.start, starts.stop)
    for run in runs((start for start in starts if start not in sums), days):
        sums |= add_up(scope, run[0], len(run), days)
    # Sums that an older version has stored are of threads alone.
    held = dict.fromkeys(("gib_seconds", "gpu_seconds", *_OF_OPERATOR))
    items = [held | {"period": n, **item} for n, start in enumerate(starts) for item in sums[start]]
    return price_usage(scope, items)


def add_up(scope: Scope, first: int, periods: int, days: int) -> dict[int, list[Item]]:
    """Return the items of :func:`list_usage`, before they are priced, by the periods' first days.

    They are computed from the rows of the clusters, not from stored sums.
    """
    # A row holds the sum since the cluster's start. On its first day that is the day's sum; on a
    # later day the sum of the day before is subtracted. Most clusters have only one day.
    end = first + periods * days
    before, older, earlier = (usage.alias(name) for name in ("before", "older", "earlier"))
    goes_on = usage.c.started_at < usage.c.day * _DAY
    # For a cluster that sent nothing for a day. Looked up only for such clusters, which are few.
    last_day = (
        select(func.max(earlier.c.day))
        .where(
            earlier.c.workspace == usage.c.workspace,
            earlier.c.cluster == usage.c.cluster,
            earlier.c.day < usage.c.day,
        )
        .correlate(usage)
        .scalar_subquery()
    )
    # The bound follows from the first condition. Without it, PostgreSQL reads all days.
    day_before = and_(before.c.day == usage.c.day - 1, before.c.day.between(first - 1, end - 2))
    rows = usage.outerjoin(before, and_(_same_cluster(before), goes_on, day_before)).outerjoin(
        older,
        and_(
            _same_cluster(older),
            older.c.day == case((and_(goes_on, before.c.day.is_(None)), last_day)),
        ),
    )
    # A cluster that began in a period counts on the first day on which it reported. One that began
    # earlier counts once in the period.
    period = ((usage.c.day - first) // days).label("period")
    began_before = usage.c.started_at < (first + (usage.c.day - first) // days * days) * _DAY
    first_heard = and_(not_(began_before), before.c.day.is_(None), older.c.day.is_(None))
    clusters = func.count(case((not_(goes_on), 1), (first_heard, 1))) + func.count(
        case((and_(goes_on, began_before), usage.c.cluster)).distinct()
    )
    of_operator = (usage.c.operator_currency, usage.c.operator_source)
    keys = (usage.c.user, period, usage.c.prices, *of_operator)
    sums = [
        func.sum(
            _difference(usage.c[name], func.coalesce(before.c[name], older.c[name], 0.0))
        ).label(name)
        for name in _TOTALS
    ]
    sums.append(func.sum(_by_operator(before, older)).label("operator_cost"))
    query = (
        scope.select(usage, *keys, clusters.label("clusters"), *sums)
        .select_from(rows)
        .where(usage.c.day >= first, usage.c.day < end)
        .group_by(*keys)
        .order_by(period, sums[_TOTALS.index("thread_seconds")].desc(), usage.c.user)
    )
    by_start: dict[int, _Period] = {first + period * days: _Period() for period in range(periods)}
    # One by one: there may be far more rows than listed items.
    result = scope.connection.execute(query.execution_options(stream_results=True))
    names = list(map(str, result.keys()))
    for row in result:
        item = dict(zip(names, row, strict=True))
        prices = None if item["prices"] is None else json.loads(item["prices"])
        start = first + item.pop("period") * days
        by_start[start].add(item | {"prices": prices})
    return {start: one.items() for start, one in by_start.items()}


class _Period:
    """The items of one period, those with the most threads' time first."""

    def __init__(self) -> None:
        self._listed: list[Item] = []
        self._others: dict[tuple[str | None, bool, str | None, str | None], Item] = {}

    def items(self) -> list[Item]:
        return [*self._listed, *self._others.values()]

    def add(self, item: Item) -> None:
        if len(self._listed) < MOST_USERS:
            self._listed.append(item)
            return
        currency = None if item["prices"] is None else item["prices"]["currency"]
        of_operator = (item["operator_currency"], item["operator_source"])
        key = currency, item["cost"] is None, *of_operator
        if key not in self._others and len(self._others) >= _MOST_CURRENCIES:
            currency, item = None, item | dict.fromkeys(("cost", "idle_cost", *_OF_OPERATOR))
            key = None, True, None, None
        others = self._others.get(key)
        if others is None:
            prices = None if currency is None else {"currency": currency, "per_hour": {}}
            self._others[key] = item | {"user": OTHERS, "prices": prices}
        else:
            added = ("clusters", *_TOTALS, "operator_cost")
            names = [name for name in added if item[name] is not None]
            self._others[key] = others | {name: (others[name] or 0) + item[name] for name in names}


def runs(starts: Iterable[int], step: int) -> list[list[int]]:
    """Return ``starts``, which rise, in runs without a gap: each is ``step`` after the last."""
    parts: list[list[int]] = []
    for start in starts:
        if parts and parts[-1][-1] + step == start:
            parts[-1].append(start)
        else:
            parts.append([start])
    return parts


def _same_cluster(other: FromClause) -> ColumnElement[bool]:
    return and_(other.c.workspace == usage.c.workspace, other.c.cluster == usage.c.cluster)


def _difference(now: ColumnElement[Any], then: ColumnElement[Any]) -> ColumnElement[Any]:
    # A plugin that was restarted counts from 0 again.
    return case((now >= then, now - then), else_=now)


def _by_operator(before: FromClause, older: FromClause) -> ColumnElement[Any]:
    """Return a day's part of the cost by the operator's prices; None: the day has none.

    That cost is no counter: it may be missing on a day, change its source, and fall a little when
    types of machines become known. It is what the cost rose by since the day before; if that had
    none of the same source, the day's share of it by the threads' time.
    """
    now, threads = usage.c.operator_cost, usage.c.thread_seconds
    then = func.coalesce(
        *(case((_same_source(one), one.c.operator_cost)) for one in (before, older))
    )
    threads_then = func.coalesce(before.c.thread_seconds, older.c.thread_seconds, 0.0)
    share = reckonable(_difference(threads, threads_then)) / threads
    return case(
        (now.is_(None), None),
        (threads < threads_then, now),  # a plugin that was restarted
        (now >= then, now - then),
        (now < then, 0.0),
        (threads >= LEAST_THREADS, reckonable(now) * share),
        else_=now,
    )


def _same_source(other: FromClause) -> ColumnElement[bool]:
    return and_(*(other.c[name] == usage.c[name] for name in _OF_OPERATOR[1:]))
