"""The rows of a stock, as SQL that multiplies those of the model cluster.

Each of :func:`parts` numbers its rows by ``n.i``; ``k`` is the number of the row's cluster, and
``n.at`` the row's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import Table

from daskscope_service.db import schema
from tests.bench.stock import (
    BUGS,
    COMPUTATIONS,
    DAY,
    EVENTS,
    EVERY,
    FAILED,
    FEW,
    GROUPED,
    LIFE,
    LOGS,
    LOSSES,
    PROFILES,
    USERS,
    Stock,
)
from tests.bench.stock_model import SPANS_BEGAN

#: Most clusters are of few users, and the others of many.
_USER = f"'user-' || CASE WHEN k % 10 < 8 THEN k % {FEW} ELSE {FEW} + k / 10 % {USERS - FEW} END"
_TRACE = f"substr('{'0' * 32}' || n.i, length(CAST(n.i AS TEXT)) + 1)"


@dataclass(frozen=True, slots=True)
class Part:
    """``rows`` of ``table`` out of ``numbers``, a query of n.i, k and at; ``values`` by column."""

    rows: int
    table: Table
    numbers: str
    values: dict[str, str] = field(default_factory=dict)


def _stands(stock: Stock) -> str:
    return f"(k = 0 OR k % {stock.standing} = 1)"


def parts(stock: Stock) -> Iterator[Part]:
    """Return what there is in ``stock``."""
    life, now = stock.long_life, stock.now
    began = f"CASE k WHEN 0 THEN {now - life} ELSE {now - LIFE} - k * {EVERY} END"
    clusters = f"SELECT i, k, {began} AS at FROM (SELECT i, i AS k FROM n) AS placed"
    stopped = f"CASE WHEN {_stands(stock)} THEN NULL ELSE {now} - k * {EVERY} END"
    # Later than any look at it, so that those that did not stop do not fall silent; but some did.
    one_of = stock.standing
    heard = f"CASE WHEN k % {5 * one_of} = {one_of + 1} THEN {now - 3600} ELSE {now + DAY} END"
    of_cluster = {"cluster": "'Scheduler-' || k"}
    yield Part(
        stock.clusters,
        schema.cluster,
        clusters,
        {
            "id": "'Scheduler-' || k",
            "name": "'nightly-' || (k % 7)",
            "user": _USER,
            "started_at": "n.at",
            "stopped_at": stopped,
            "last_seen_at": f"COALESCE({stopped}, {heard})",
            "status_at": f"COALESCE({stopped}, {now})",
            "idle_seconds": f"CASE WHEN k % {3 * one_of} = 1 THEN k END",
            "cost": "0.01 * (k % 1000)",
        },
    )
    yield Part(stock.clusters, schema.activity, clusters, of_cluster)
    yield Part(stock.clusters, schema.shutdown, clusters, of_cluster | {"at": "n.at"})
    yield from _usage(stock, clusters, of_cluster | {"user": _USER})
    yield from _of_computations(stock, of_cluster)


def _usage(stock: Stock, clusters: str, of_cluster: dict[str, str]) -> Iterator[Part]:
    """Return what clusters came to: the short-lived on one day, the others on each of theirs."""
    now = stock.now

    def used(up: str) -> dict[str, str]:
        amounts = {"thread_seconds": 16, "idle_seconds": 4, "cost": 0.001, "idle_cost": 0.0002}
        return {"up_seconds": up} | {name: f"{each} * {up}" for name, each in amounts.items()}

    short = f"SELECT * FROM ({clusters}) AS every WHERE NOT {_stands(stock)}"
    day = {"day": f"CAST(n.at AS BIGINT) / {DAY}", "started_at": "n.at"}
    yield Part(stock.clusters, schema.usage, short, of_cluster | day | used(f"{LIFE}.0"))
    days = stock.long_life // DAY + 1
    standing = 1 + (stock.clusters - 2) // stock.standing + 1  # the first of all is one, too
    which = f"CASE i / {days} WHEN 0 THEN 0 ELSE 1 + (i / {days} - 1) * {stock.standing} END"
    lived = (
        f"SELECT i, k, {now} - i % {days} * {DAY} AS at FROM (SELECT i, {which} AS k FROM n) AS "
        f"placed WHERE i % {days} * {DAY} < CASE k WHEN 0 THEN {stock.long_life} ELSE "
        f"{LIFE} + k * {EVERY} END"
    )
    began = f"CASE k WHEN 0 THEN {now - stock.long_life} ELSE {now - LIFE} - k * {EVERY} END"
    grown = {"day": f"CAST(n.at AS BIGINT) / {DAY}", "started_at": began}
    of_days = of_cluster | grown | used(f"1.0 * (n.at - ({began}))")
    yield Part(standing * days, schema.usage, lived, of_days)


def _of_computations(stock: Stock, of_cluster: dict[str, str]) -> Iterator[Part]:
    both = {"started_at": "n.at", "stopped_at": "n.at + 5"}
    runs = f"(k % {stock.standing} = 1 AND n.i % {COMPUTATIONS} = {COMPUTATIONS - 1})"
    failed = {"computation": "'c' || i", "user": _USER}
    tables: tuple[tuple[Table, int, dict[str, str]], ...] = (
        (
            schema.computation,
            1,
            {
                "id": "'c' || i",
                "user": _USER,
                "started_at": "n.at",
                "stopped_at": f"CASE WHEN {runs} THEN NULL ELSE n.at + 5 END",
                "status": f"CASE WHEN {runs} THEN 'running' WHEN n.i % {FAILED} = 0 THEN 'erred' "
                "WHEN n.i % 37 = 0 THEN 'cancelled' ELSE 'finished' END",
                "trace_id": f"CASE WHEN n.i % {FAILED} = 0 THEN {_TRACE} END",
            },
        ),
        (schema.task_group, GROUPED, {"computation": "'c' || i", **both}),
        (
            schema.failure,
            FAILED,
            failed
            | {
                # Half are of bugs that never go away, and the others are seen four times.
                "fingerprint": f"CASE i / {FAILED} % 2 WHEN 0 THEN '1:bug' || "
                f"(i / {2 * FAILED} % {BUGS}) ELSE '1:rare' || (i / {8 * FAILED}) END",
                "first_at": "n.at",
                "last_at": "n.at + 4",
            },
        ),
        (schema.notice, FAILED, {"id": "m.id || ':' || n.i", "found_at": "n.at + 5"}),
        (
            schema.span,
            FAILED,
            {"trace_id": _TRACE, **{name: f"n.at + m.{name} - {SPANS_BEGAN}" for name in both}},
        ),
        (schema.event, EVENTS, {"id": "'e' || i", "at": "n.at", "user": _USER}),
        (schema.worker_loss, LOSSES, {"id": "'w' || i", "at": "n.at"}),
        (schema.profile, PROFILES, {"id": "'p' || i", "user": _USER, **both}),
        (
            schema.log_record,
            LOGS,
            {"id": "'l' || i", "at": "n.at", "severity": "CASE n.i % 7 WHEN 0 THEN 17 ELSE 13 END"},
        ),
    )
    for table, step, values in tables:
        yield Part(stock.computations // step, table, _placed(stock, step), of_cluster | values)


def _placed(stock: Stock, step: int) -> str:
    """Return the numbers and times of each ``step``-th computation."""
    life, short, now = stock.long_life, stock.of_short_lived, stock.now
    placed = (
        f"SELECT i * {step} AS i, CASE WHEN i * {step} < {short} "
        f"THEN 1 + i * {step} / {COMPUTATIONS} ELSE 0 END AS k FROM n"
    )
    # Those of a cluster that still runs are spread over all its life.
    lasts = f"CASE WHEN k % {stock.standing} = 1 THEN {LIFE} + k * {EVERY} ELSE {LIFE} END"
    at = (
        f"CASE k WHEN 0 THEN {now - life} + (i - {short}) * {EVERY} ELSE "
        f"{now - LIFE} - k * {EVERY} + i % {COMPUTATIONS} * ({lasts}) / {COMPUTATIONS} END"
    )
    return f"SELECT i, k, {at} AS at FROM ({placed}) AS placed"
