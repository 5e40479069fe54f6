"""Idle policies, what each would do about a cluster now, and earlier decisions."""

from __future__ import annotations

import dataclasses

from sqlalchemy import Connection, func

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import decision, policy
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.insight.views import ClusterView
from daskscope_service.policies.decision import Policy, decide, rule
from daskscope_service.web.fields import Missing

#: Decisions about one cluster that its page shows, the newest first.
MOST_DECISIONS = 20


def policies_in(connection: Connection, workspace: str) -> list[Item]:
    """Return the policies of a workspace, sorted by name."""
    rows = connection.execute(select_in(workspace, policy).order_by(policy.c.name, policy.c.id))
    # msgspec does not accept SQLAlchemy's own kind of text as keys.
    return [{str(key): value for key, value in row.items() if key != "workspace"}
            for row in rows.mappings()]  # fmt: skip


def as_policy(item: Item) -> Policy:
    """Return the policy in an item of :func:`policies_in`."""
    values = {field.name: item[field.name] for field in dataclasses.fields(Policy)}
    return Policy(**values | {"users": tuple(item["users"])})


def list_policies(scope: Scope) -> list[Item]:
    """Return the policies of the workspace, sorted by name, each with its rule in words."""
    items = policies_in(scope.connection, scope.workspace)
    return [item | {"sentence": f"It {rule(as_policy(item))}."} for item in items]


def one_policy(scope: Scope, id: str) -> Item:
    """Return one policy. Raises Missing."""
    for item in list_policies(scope):
        if item["id"] == id:
            return item
    raise Missing("policy", id)


def policies_for(scope: Scope, cluster: ClusterView) -> list[Item]:
    """Return the decision of each policy that applies to ``cluster``: ``outcome``, ``sentence``."""
    items = []
    for one in map(as_policy, policies_in(scope.connection, scope.workspace)):
        if one.means(cluster):
            comes_to = decide(
                one,
                cluster,
                status=cluster.status,
                acted_at=last_acted(scope.connection, scope.workspace, cluster.id, one),
                now=scope.now,
            )
            items.append({"policy": one.id, "name": one.name, **dataclasses.asdict(comes_to)})
    return items


def last_acted(
    connection: Connection, workspace: str, cluster_id: str, policy: Policy
) -> float | None:
    """Return when ``policy`` last acted on a cluster; None if it never did."""
    at: float | None = connection.execute(
        select_in(workspace, decision, func.max(decision.c.at)).where(
            decision.c.cluster == cluster_id, decision.c.policy == policy.id
        )
    ).scalar()
    return at


def list_decisions(scope: Scope, selection: Selection) -> Page[Item]:
    """Return the decisions of policies about clusters, by time."""
    query = scope.select(decision)
    query = query.where(scope.is_of(selection.cluster, decision.c.cluster))
    return page(scope, query, selection, decision.c.at, "id")


def decisions_on(scope: Scope, cluster_id: str) -> list[Item]:
    """Return the decisions of policies about one cluster, the newest first."""
    return list_decisions(scope, Selection(cluster=cluster_id, limit=MOST_DECISIONS)).items
