"""Mutes: findings that people know of, and that nobody is notified of until a time.

A mute is of one rule and one computation, or of a cluster and all computations on it. It is looked
up when findings are read, so that it counts at once, and no longer than it should.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import finding, mute
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.finding import Muted

#: What a finding shows of its mute.
_ANSWERED = ("id", "reason", "until", "changed_at", "changed_by")


def list_mutes(scope: Scope) -> list[Item]:
    """Return the mutes that are in force, those that end first first."""
    query = scope.select(mute).where(mute.c.until > scope.now)
    return [_named(item) for item in scope.items(query.order_by(mute.c.until, mute.c.id))]


def mutes_on(scope: Scope, cluster: str, computation: str = "") -> dict[str, Muted]:
    """Return by rule what mutes findings of a computation, or of a cluster itself."""
    query = scope.select(mute, mute.c.rule, *(mute.c[name] for name in _ANSWERED)).where(
        mute.c.cluster == cluster,
        mute.c.computation.in_({"", computation}),
        mute.c.until > scope.now,
    )
    found = scope.items(query.order_by(mute.c.until))
    return {item.pop("rule"): Muted(**_answered(item)) for item in found}


def add_mutes(scope: Scope, items: list[Item]) -> list[Item]:
    """Give stored findings their ``muted``: the mute in force, or None."""
    for item in items:
        item["muted"] = None
    query = scope.select(mute, *(mute.c[name] for name in ("cluster", "computation", "rule")),
                         *(mute.c[name] for name in _ANSWERED))  # fmt: skip
    clusters = {item["cluster"] for item in items}
    query = query.where(mute.c.cluster.in_(clusters), mute.c.until > scope.now)
    found: dict[tuple[str, str, str], Item] = {}
    for row in scope.items(query.order_by(mute.c.until)):
        found[row.pop("cluster"), row.pop("computation"), row.pop("rule")] = _answered(row)
    for item in items if found else ():
        for computation in ("", item["computation"]):
            one = found.get((item["cluster"], computation, item["rule"]))
            if one is not None:
                item["muted"] = one
    return items


def not_muted(connection: Any, workspace: str, now: float) -> Iterable[ColumnElement[bool]]:
    """Return what a query of findings is to say to leave out those that are muted.

    That is nothing where there are no mutes: so a query reads its index alone.
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


def _answered(item: Item) -> Item:
    item["at"], item["by"] = item.pop("changed_at"), item.pop("changed_by")
    item["until_at"] = item.pop("until")
    return item


def _named(item: Item) -> Item:
    return _answered(item) | {"computation": item["computation"] or None}
