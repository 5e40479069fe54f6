"""Applies the idle policies of all workspaces: a round every few seconds, in a thread.

Every process does so. Before a process acts, it decides again in the transaction that stores the
action, so that a policy acts once while a cluster stays idle.
"""

from __future__ import annotations

import secrets
import time

from sqlalchemy import Connection, Engine, func, insert, select

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, decision, notice, policy
from daskscope_service.insight.verdict import cluster_verdict
from daskscope_service.periodic import in_each
from daskscope_service.policies.decision import Decision, Policy, decide
from daskscope_service.policies.queries import as_policy, last_acted, policies_in
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown, NotPossible

#: Seconds since the last heartbeat. A cluster that was silent for longer is lost, whatever the
#: settings say, so no policy is applied to it.
_HEARD_WITHIN = 86400.0

#: Seconds that a round spends on one workspace, about, so that others get their turn. The clusters
#: that are left have their turn in one of the next rounds.
_SECONDS = 5.0
#: And how many idle clusters it reads: there may be a million.
_MOST_READ = 10_000


def enforce_policies(engine: Engine, silent_after: float) -> int:
    """Apply the policies of all workspaces; return how often one acted."""
    with engine.connect() as connection:
        names = connection.execute(select(policy.c.workspace).distinct()).scalars().all()
    return in_each(names, lambda name: _enforce(engine, name, silent_after))


def _enforce(engine: Engine, name: str, silent_after: float) -> int:
    acted, until = 0, time.monotonic() + _SECONDS
    with engine.connect() as connection:
        ones = _policies(connection, name)
        idle = _idle_for(connection, name, min(one.after for one in ones)) if ones else []
    for cluster_id in idle:
        for one in ones:
            with engine.connect() as connection:
                due = _decision(connection, name, cluster_id, one, silent_after)
            if due is not None and due.acts:
                with writing(engine) as connection:
                    acted += _act(connection, name, cluster_id, one, silent_after)
        if time.monotonic() > until:
            break
    return acted


def _policies(connection: Connection, name: str) -> list[Policy]:
    policies = [as_policy(row) for row in policies_in(connection, name)]
    return [one for one in policies if one.enabled]


def _idle_for(connection: Connection, name: str, seconds: float) -> list[str]:
    query = select_in(name, cluster, cluster.c.id).where(
        cluster.c.stopped_at.is_(None),
        cluster.c.idle_seconds >= seconds,
        cluster.c.last_seen_at > time.time() - _HEARD_WITHIN,
    )
    # A round may end before the last one, so vary which are left out.
    query = query.order_by(func.random()).limit(_MOST_READ)
    return list(connection.execute(query).scalars())


def _decision(
    connection: Connection,
    name: str,
    cluster_id: str,
    policy: Policy,
    silent_after: float,
    *,
    lock: bool = False,
) -> Decision | None:
    query = select_in(name, cluster).where(cluster.c.id == cluster_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if row is None or not policy.means({**row}):
        return None
    now = time.time()
    return decide(
        policy,
        {**row},
        status=cluster_verdict({**row}, now, silent_after).status,
        acted_at=last_acted(connection, name, cluster_id, policy),
        now=now,
    )


def _act(
    connection: Connection, name: str, cluster_id: str, policy: Policy, silent_after: float
) -> bool:
    due = _decision(connection, name, cluster_id, policy, silent_after, lock=True)
    if due is None or not due.acts:
        return False  # another process was quicker, or work has come
    command, sentence = None, due.sentence
    if due.outcome == "shutdown":
        change = Change(connection, name, actor=f"policy {policy.name}")
        try:
            command, _ = shutdowns.ask(change, cluster_id, NewShutdown(reason=due.sentence))
        except NotPossible as error:
            sentence += f" But: {error}"
    decision_id, now = secrets.token_hex(8), time.time()
    connection.execute(
        insert(decision).values(
            workspace=name,
            id=decision_id,
            cluster=cluster_id,
            policy=policy.id,
            policy_name=policy.name,
            at=now,
            outcome=due.outcome,
            sentence=sentence,
            command=command,
        )
    )
    connection.execute(
        insert(notice).values(
            workspace=name,
            id=f"idle:{decision_id}",
            kind="idle",
            cluster=cluster_id,
            found_at=now,
            sentence=sentence,
            path=f"/clusters/{cluster_id}",
        )
    )
    return True
