"""Stores notices of what no heartbeat reports: silent clusters, passed budgets, findings."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Row, RowMapping, and_, not_, update

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
from daskscope_service.db.scope import Scope
from daskscope_service.db.statements import Upsert
from daskscope_service.insight.findings.finding import SEVERITIES
from daskscope_service.insight.findings.rules import OF_BOTH
from daskscope_service.insight.jobs.corrections import jobs_before
from daskscope_service.insight.verdict import OF_VERDICT, cluster_verdict
from daskscope_service.notifications import wording as words
from daskscope_service.queries.job_corrections import steps_of
from daskscope_service.queries.mutes import not_muted

#: A finding is news for this many seconds since the work began, and since the finding was made.
_BEGAN_WITHIN, _FOUND_WITHIN = 86400.0, 600.0
#: How many findings one round reads.
_MOST_FINDINGS = 200
#: A finding that did not occur for so many seconds is news when it occurs again. Notices of
#: findings must be kept for longer.
COMES_BACK_AFTER = 14 * 86400.0
#: Seconds between two notes of when a finding last occurred.
_NOTED_EACH = 3600.0
#: Seconds for which a finding waits until it is known of which job its computation is a run.
_JOB_KNOWN_WITHIN = 120.0
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
        jobs = {one["id"]: job for one in notices if (job := one.pop("job", None))}
        # A computation that runs may get its job only at its end: until then, it is its user's.
        before = {one["id"]: of_user for one in notices if (of_user := one.pop("id_before", None))}
        now = time.time()
        given = {"workspace": workspace, "found_at": now, "severity": None, "seen_at": None}
        new = {one["id"]: given | one for one in notices}
        occurred = []
        for row in _known(connection, workspace, list(new)):
            values = _occurred_again(new.pop(row.id), row.severity, row.seen_at, now)
            if values:
                occurred.append((row, values))
        _keep_quiet(connection, workspace, new, jobs, before, now)
    if not (new or occurred):
        return
    statement = Upsert(engine, notice)
    with writing(engine) as connection:
        statement.run(connection, [statement.row(one) for one in new.values()])
        for row, values in occurred:
            connection.execute(
                update(notice)
                .where(notice.c.workspace == workspace, notice.c.id == row.id)
                # Not if another process was quicker.
                .where(notice.c.seen_at == row.seen_at)
                .values(values)
            )


def _known(connection: Connection, workspace: str, ids: list[str]) -> list[Row[Any]]:
    """Return the notices that exist of those with these ids."""
    columns = [notice.c[name] for name in ("id", "severity", "seen_at", "found_at", "path")]
    known = select_in(workspace, notice, *columns)
    rows: list[Row[Any]] = []
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        rows += connection.execute(known.where(notice.c.id.in_(some)))
    return rows


def _keep_quiet(
    connection: Connection,
    workspace: str,
    new: Mapping[str, dict[str, Any]],
    jobs: Mapping[str, str],
    ids_before: Mapping[str, str],
    now: float,
) -> None:
    """Date back what is new only because its run got a job, or a correction gave it another one.

    It then has the time of the notice of before, and is not sent. ``jobs`` are those of the
    notices, and ``ids_before`` the ids that these had without a job, by the notices' ids.
    """
    of_jobs = {id: job for id, job in jobs.items() if id in new}
    steps = steps_of(Scope(connection, workspace, now, 0.0)) if of_jobs else {}
    new_of = defaultdict(list)
    for id, now_job in of_jobs.items():
        for before in jobs_before(now_job, steps) if steps else ():
            new_of[id.replace(f":{now_job}", f":{before}")].append(new[id])
        if id in ids_before:
            new_of[ids_before[id]].append(new[id])
    of_users = set(ids_before.values())
    for row in _known(connection, workspace, list(new_of)):
        for one in new_of[row.id]:
            # What was its user's may have been of another computation.
            same = row.id not in of_users or row.path == one["path"]
            if same and not _is_news(one["severity"], row.severity, row.seen_at, now):
                one["found_at"] = row.found_at


def _occurred_again(
    one: Mapping[str, Any], severity: str | None, seen_at: float | None, now: float
) -> dict[str, Any] | None:
    """Return what changes in the notice of a finding that occurs again; None: nothing.

    ``severity`` and ``seen_at`` are the notice's. With a new ``found_at``, it is sent once more.
    """
    if seen_at is None:
        return None  # not of a finding
    if _is_news(one["severity"], severity, seen_at, now):
        return dict(one)
    return {"seen_at": now} if seen_at < now - _NOTED_EACH else None


def _is_news(
    severity: str | None, severity_before: str | None, seen_at: float | None, now: float
) -> bool:
    """Return whether a finding is news though there is a notice of it, last seen at ``seen_at``."""
    if severity is None or severity_before is None or seen_at is None:
        return False
    return _graver(severity, severity_before) or abs(now - seen_at) > COMES_BACK_AFTER


def _graver(severity: str, than: str) -> bool:
    return SEVERITIES.index(severity) < SEVERITIES.index(than)


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
        .add_columns(computation.c.job, computation.c.job_due_at, job.c.change_at)
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
    rows = connection.execute(query).mappings().all()
    theirs = _of_computations(connection, workspace, rows, now)
    notices: dict[str, dict[str, Any]] = {}
    for row in rows:
        if not row["computation"] and (row["cluster"], row["rule"]) in theirs:
            continue  # the computation's finding is of the same events, and says more
        due_at = row["job_due_at"]
        # At 0 is due what a correction took its job from.
        waits = due_at is not None and (due_at == 0.0 or due_at > now - _JOB_KNOWN_WITHIN)
        if row["job"] is None and waits:
            continue  # the next rounds know its job
        # Work that is repeated has the same findings each time: one notice is enough until they
        # change.
        whose = f"job:{row['job']}" if row["job"] else f"user:{row['user']}"
        id = f"finding:{row['rule']}:{whose}"
        occurs: dict[str, Any] = {"severity": row["severity"], "seen_at": now}
        if row["rule"] == _OF_JOBS:
            # Each run of the job has the same finding until the job changes again: one notice per
            # change is enough. Runs from before the change are no news.
            changed_at = row["change_at"] or 0.0
            if not now - _CHANGED_WITHIN < changed_at <= row["at"]:
                continue
            id, occurs = f"finding:{row['rule']}:{row['job']}:{changed_at:.3f}", {}
        path = f"/clusters/{quote(row['cluster'], safe='')}"
        if row["computation"]:
            path += f"/computations/{quote(row['computation'], safe='')}"
        if id in notices and not (occurs and _graver(row["severity"], notices[id]["severity"])):
            continue
        notices[id] = {
            "id": id,
            "kind": "finding",
            "cluster": row["cluster"],
            "sentence": words.finding({**row}),
            "path": f"{path}#finding-{row['rule']}",
            "job": row["job"],
            "id_before": f"finding:{row['rule']}:user:{row['user']}" if occurs else None,
            **occurs,
        }
    return list(notices.values())


def _of_computations(
    connection: Connection, workspace: str, rows: Sequence[RowMapping], now: float
) -> set[tuple[str, str]]:
    """Return the clusters and rules of ``rows`` whose finding computations there have, too."""
    clusters = {row["cluster"] for row in rows if row["rule"] in OF_BOTH and not row["computation"]}
    if not clusters:
        return set()
    query = select_in(workspace, finding, finding.c.cluster, finding.c.rule).where(
        finding.c.cluster.in_(clusters),
        finding.c.rule.in_(OF_BOTH),
        finding.c.computation != "",
        *not_muted(connection, workspace, now),
    )
    return {(row.cluster, row.rule) for row in connection.execute(query.distinct())}


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
