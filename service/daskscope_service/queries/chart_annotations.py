"""Marks for the charts of a cluster: what happened on it in a period. Their number is bounded."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Select

from daskscope_service.db.schema import computation, failure, worker_loss
from daskscope_service.db.scope import Item, Scope

#: The most rows of one kind that are marked: the newest.
MOST_MARKS = 100
#: How many computations that began before the period are checked for whether they reach into it.
_LOOKED_AT_BEFORE = 300


@dataclass(frozen=True, slots=True)
class ChartMark:
    """Something that happened from ``since`` to ``until``; None if it goes on.

    ``kind`` is ``computation``, ``failure`` or ``loss``; ``words`` describe it.
    """

    kind: str
    since: float
    until: float | None
    words: str


@dataclass(frozen=True, slots=True)
class ChartAnnotations:
    """Marks in the order of time.

    ``numbers`` counts what is marked, by kind: equal failures of one computation count once, though
    they may have two marks. ``cut`` names the kinds of which some were left out.
    """

    items: list[ChartMark]
    numbers: dict[str, int]
    cut: tuple[str, ...]


def list_marks(scope: Scope, cluster_id: str, since: float, until: float) -> ChartAnnotations:
    """Return what happened on a cluster from ``since`` to ``until``.

    There are marks for computations, for the first and last time of failures, and for workers that
    were lost, but not for workers that were asked to leave. Of the computations that began before
    ``since``, only the newest ``_LOOKED_AT_BEFORE`` are checked.
    """
    computations = _computations(scope, cluster_id, since, until)
    failures = _failures(scope, cluster_id, since, until)
    losses = scope.items(
        scope.select(worker_loss, worker_loss.c.at, worker_loss.c.name, worker_loss.c.reason)
        .where(worker_loss.c.cluster == cluster_id, ~worker_loss.c.expected)
        .where(worker_loss.c.at >= since, worker_loss.c.at < until)
        .order_by(worker_loss.c.at.desc())
        .limit(MOST_MARKS + 1)
    )
    rows = {"computation": computations, "failure": failures, "loss": losses}
    kept = {kind: some[:MOST_MARKS] for kind, some in rows.items()}
    marks = {
        "computation": [
            ChartMark("computation", row["started_at"], row["stopped_at"], _what(row))
            for row in kept["computation"]
        ],
        "failure": [
            ChartMark("failure", at, at, row["type"])
            for row in kept["failure"]
            for at in sorted({row["first_at"], row["last_at"]})
            if since <= at < until
        ],
        "loss": [
            ChartMark("loss", row["at"], row["at"], f"{row['name']} lost: {row['reason']}")
            for row in kept["loss"]
        ],
    }
    return ChartAnnotations(
        sorted((mark for some in marks.values() for mark in some), key=lambda mark: mark.since),
        {kind: len(some) for kind, some in kept.items()},
        tuple(kind for kind, some in rows.items() if len(some) > MOST_MARKS),
    )


def _what(row: Item) -> str:
    return f"a computation, {row['status']}"


def _computations(scope: Scope, cluster_id: str, since: float, until: float) -> list[Item]:
    began = computation.c.started_at
    of_it = (
        scope.select(computation, began, computation.c.stopped_at, computation.c.status)
        .where(computation.c.cluster == cluster_id)
        .order_by(began.desc())
    )
    within: Select[tuple[object, ...]] = of_it.where(began >= since, began < until)
    computations = scope.items(within.limit(MOST_MARKS + 1))
    if len(computations) <= MOST_MARKS:
        earlier = scope.items(of_it.where(began < since).limit(_LOOKED_AT_BEFORE))
        computations += [
            row for row in earlier if row["stopped_at"] is None or row["stopped_at"] >= since
        ]
    return computations


def _failures(scope: Scope, cluster_id: str, since: float, until: float) -> list[Item]:
    # An expression: for the column itself, SQLite would search its index of all clusters' failures.
    last_at = failure.c.last_at + 0.0
    return scope.items(
        scope.select(failure, failure.c.type, failure.c.first_at, failure.c.last_at)
        .where(failure.c.cluster == cluster_id)
        .where(last_at >= since, failure.c.first_at < until)
        .order_by(last_at.desc())
        .limit(MOST_MARKS + 1)
    )
