"""Stores notices of what no heartbeat reports: silent clusters, passed budgets, findings."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, and_, not_

from daskscope_service.costs.budgets import list_budgets
from daskscope_service.costs.forecasts import cost_of_month, month_of, subject
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import (
    FINDING_COSTS,
    cluster,
    computation,
    finding,
    job,
    notice,
)
from daskscope_service.db.statements import Upsert
from daskscope_service.insight.verdict import OF_VERDICT, cluster_verdict
from daskscope_service.notifications import wording as words
from daskscope_service.queries.mutes import not_muted

#: A finding is news for this many seconds since the work began, and since the finding was made.
_BEGAN_WITHIN, _FOUND_WITHIN = 86400.0, 600.0
#: How many findings one round reads.
_MOST_FINDINGS = 200
#: The rule whose finding is about a job, and for how many seconds since the job's change it is
#: news. Notices must be kept for longer, or a finding would be sent twice.
_OF_JOBS, _CHANGED_WITHIN = "slower-than-before", 30 * 86400.0
#: Rules whose findings get no notification, because another kind of notification reports the same.
_REPORTED_OTHERWISE = (
    *("silent", "failed", "upstream-failed", "cancelled", "out-of-memory", "idle-cluster"),
)

#: A cluster that has been silent for longer than this many seconds is not news any more. And how
#: many silent clusters, the newest, are news: as many as one process serves.
_SILENT_WITHIN, _MOST_SILENT = 86400.0, 10_000
#: The columns that are read of silent clusters: whole rows may be large.
_OF_SILENT = [cluster.c[name] for name in ("id", "name", "user", *OF_VERDICT)]

#: How many ids one statement looks up: databases limit the number of parameters.
_AT_ONCE = 500


def store_new_notices(
    engine: Engine, workspace: str, silent_after: float, *, listens: bool
) -> None:
    """Store a notice for each new event in ``workspace``; do not change notices that exist.

    ``listens``: the service has run long enough to know which clusters are silent.
    """
    with engine.connect() as connection:
        notices = [*_over_budget(connection, workspace), *_findings(connection, workspace)]
        if listens:
            notices += _silent(connection, workspace, silent_after)
        new = {one["id"]: one for one in notices}
        ids = list(new)
        for first in range(0, len(ids), _AT_ONCE):
            some = ids[first : first + _AT_ONCE]
            known = select_in(workspace, notice, notice.c.id).where(notice.c.id.in_(some))
            for id in connection.execute(known).scalars():
                del new[id]
    if new:
        statement = Upsert(engine, notice)
        with writing(engine) as connection:
            statement.run(
                connection,
                [
                    tuple((one | {"workspace": workspace, "found_at": time.time()})[name]
                          for name in statement.columns)
                    for one in new.values()
                ],
            )  # fmt: skip


def _silent(connection: Connection, workspace: str, silent_after: float) -> list[dict[str, Any]]:
    now = time.time()
    query = select_in(workspace, cluster, *_OF_SILENT).where(
        cluster.c.stopped_at.is_(None),
        not_(cluster.c.may_end),
        cluster.c.last_seen_at < now - silent_after,
        cluster.c.last_seen_at > now - _SILENT_WITHIN,
    )
    query = query.order_by(cluster.c.last_seen_at.desc()).limit(_MOST_SILENT)
    return [
        {
            # The id contains the time of the last heartbeat: if a cluster reports again and falls
            # silent again, it gets another notice.
            "id": f"cluster silent:{row['id']}:{row['last_seen_at']:.3f}",
            "kind": "cluster silent",
            "cluster": row["id"],
            "sentence": words.cluster_silent({**row}, now - row["last_seen_at"]),
            "path": f"/clusters/{row['id']}",
        }
        for row in connection.execute(query).mappings()
        if cluster_verdict({**row}, now, silent_after).status == "lost"
    ]


def _findings(connection: Connection, workspace: str) -> list[dict[str, Any]]:
    now = time.time()
    columns = ("cluster", "computation", "rule", "severity", "user", "at", "sentence")
    query = (
        select_in(workspace, finding, *(finding.c[name] for name in columns))
        .join(
            cluster,
            and_(cluster.c.workspace == finding.c.workspace, cluster.c.id == finding.c.cluster),
        )
        .outerjoin(
            computation,
            and_(
                computation.c.workspace == finding.c.workspace,
                computation.c.cluster == finding.c.cluster,
                computation.c.id == finding.c.computation,
            ),
        )
        .outerjoin(job, and_(job.c.workspace == finding.c.workspace, job.c.id == computation.c.job))
        .add_columns(*(cluster.c.name, finding.c.cost, finding.c.currency, finding.c.price_source))
        .add_columns(computation.c.job, job.c.change_at)
        .where(
            finding.c.at > now - _BEGAN_WITHIN,
            FINDING_COSTS,
            finding.c.found_at > now - _FOUND_WITHIN,
            finding.c.rule.not_in(_REPORTED_OTHERWISE),
            *not_muted(connection, workspace, now),
        )
        .order_by(finding.c.at, finding.c.cluster, finding.c.id)
        .limit(_MOST_FINDINGS)
    )
    notices: dict[str, dict[str, Any]] = {}
    for row in connection.execute(query).mappings():
        # Work that is repeated has the same findings each time: one notice per day is enough.
        day = datetime.fromtimestamp(row["at"], UTC).date()
        id = f"finding:{row['rule']}:{row['severity']}:{row['user']}:{day}"
        if row["rule"] == _OF_JOBS:
            # Each run of the job has the same finding until the job changes again: one notice per
            # change is enough. Runs from before the change are no news.
            changed_at = row["change_at"] or 0.0
            if not now - _CHANGED_WITHIN < changed_at <= row["at"]:
                continue
            id = f"finding:{row['rule']}:{row['job']}:{changed_at:.3f}"
        path = f"/clusters/{quote(row['cluster'], safe='')}"
        if row["computation"]:
            path += f"/computations/{quote(row['computation'], safe='')}"
        notices.setdefault(
            id,
            {
                "id": id,
                "kind": "finding",
                "cluster": row["cluster"],
                "sentence": words.finding({**row}),
                "path": f"{path}#finding-{row['rule']}",
            },
        )
    return list(notices.values())


def _over_budget(connection: Connection, workspace: str) -> list[dict[str, Any]]:
    now = time.time()
    month = month_of(now)
    notices = []
    for limit in list_budgets(connection, workspace):
        amount, sources = cost_of_month(connection, workspace, limit, now)
        if amount <= limit.amount:
            continue
        part = f":{limit.user or limit.tag}" if limit.user or limit.tag else ""
        whose = f"{subject(limit)} that started in {month:%B %Y}"
        notices.append(
            {
                "id": f"budget passed:{month:%Y-%m}:{limit.amount:g} {limit.currency}{part}",
                "kind": "budget passed",
                "cluster": "",
                "sentence": words.budget_passed(
                    amount, limit.amount, limit.currency, whose, sources
                ),
                "path": "/people",
            }
        )
    return notices
