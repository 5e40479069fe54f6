"""Reads mutes: until a time, nobody is notified of the findings that a mute covers.

A mute covers one rule, and one computation or a cluster with all computations on it. Mutes are
looked up whenever findings are read, so that they begin at once and end in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import finding, mute
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.finding import Muted
from daskscope_service.insight.views import MuteInForce

#: The fields of a mute that its findings show, and the columns that they are read from.
_SHOWN = ("id", "reason", "at", "by", "until_at")
_COLUMNS = (
    *(mute.c.rule, mute.c.cluster, mute.c.computation, mute.c.id, mute.c.reason),
    *(mute.c.changed_at.label("at"), mute.c.changed_by.label("by")),
    mute.c.until.label("until_at"),
)


def list_mutes(scope: Scope) -> list[MuteInForce]:
    """Return the mutes in force; those that end first come first."""
    rows = _in_force(scope)
    return [MuteInForce.of(row | {"computation": row["computation"] or None}) for row in rows]


def mutes_on(scope: Scope, cluster: str, computation: str = "") -> dict[str, Muted]:
    """Return by rule the mutes in force on a computation, or on a cluster itself."""
    rows = _in_force(scope, mute.c.cluster == cluster, mute.c.computation.in_({"", computation}))
    return {row["rule"]: Muted(**_shown(row)) for row in rows}


def mutes_of(scope: Scope, findings: Sequence[Item]) -> list[Item | None]:
    """Return for each stored finding the mute in force that covers it, or None."""
    clusters = {row["cluster"] for row in findings}
    rows = _in_force(scope, mute.c.cluster.in_(clusters))
    muted = {(row["cluster"], row["computation"], row["rule"]): _shown(row) for row in rows}
    return [
        muted.get((one["cluster"], one["computation"], one["rule"]))
        or muted.get((one["cluster"], "", one["rule"]))
        for one in findings
    ]


def not_muted(connection: Any, workspace: str, now: float) -> Iterable[ColumnElement[bool]]:
    """Return the conditions that exclude muted findings from a query of findings.

    Without mutes in force, there is no condition, so that the query needs only its index.
    """
    in_force = select_in(workspace, mute, mute.c.id).where(mute.c.until > now)
    if connection.execute(in_force.limit(1)).first() is None:
        return ()
    same = and_(
        mute.c.workspace == finding.c.workspace,
        mute.c.cluster == finding.c.cluster,
        mute.c.rule == finding.c.rule,
        or_(mute.c.computation == "", mute.c.computation == finding.c.computation),
        mute.c.until > now,
    )
    return (~exists().where(same),)


def _in_force(scope: Scope, *conditions: ColumnElement[bool]) -> list[Item]:
    query = scope.select(mute, *_COLUMNS).where(mute.c.until > scope.now, *conditions)
    return scope.items(query.order_by(mute.c.until, mute.c.id))


def _shown(row: Item) -> Item:
    return {name: row[name] for name in _SHOWN}
