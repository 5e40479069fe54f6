"""Reads mutes: until a time, nobody is notified of the findings that a mute covers.

A mute covers one rule, and one computation, a cluster with all computations on it, or all runs of a
job. Mutes are looked up whenever findings are read, so that they begin at once and end in time.
While a run waits for its job, nobody is notified of its findings of a rule that is muted for a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, or_

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import computation, finding, mute
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.finding import Muted
from daskscope_service.insight.views import MuteInForce
from daskscope_service.queries.among import among

#: The fields of a mute that its findings show, and the columns that they are read from.
_SHOWN = ("id", "reason", "at", "by", "until_at")
_COLUMNS = (
    *(mute.c.rule, mute.c.cluster, mute.c.computation, mute.c.job, mute.c.id, mute.c.reason),
    *(mute.c.changed_at.label("at"), mute.c.changed_by.label("by")),
    mute.c.until.label("until_at"),
)


def list_mutes(scope: Scope) -> list[MuteInForce]:
    """Return the mutes in force; those that end first come first."""
    optional = ("cluster", "computation", "job")
    rows = _in_force(scope)
    return [MuteInForce.of(row | {name: row[name] or None for name in optional}) for row in rows]


def mutes_on(scope: Scope, cluster: str, run: str = "") -> dict[str, Muted]:
    """Return by rule the mutes in force on a computation, or on a cluster itself."""
    of_it = and_(mute.c.cluster == cluster, mute.c.computation.in_({"", run}))
    rows = _in_force(scope, or_(of_it, mute.c.job != "") if run else of_it)
    jobs = {""}
    if any(row["job"] for row in rows):
        jobs |= {*_jobs(scope, {(cluster, run)}).values()}
    return {row["rule"]: Muted(**_shown(row)) for row in rows if row["job"] in jobs}


def mutes_of(scope: Scope, findings: Sequence[Item]) -> list[Item | None]:
    """Return for each stored finding the mute in force that covers it, or None."""
    clusters = {row["cluster"] for row in findings}
    rows = _in_force(scope, or_(mute.c.cluster.in_(clusters), mute.c.job != ""))
    muted = {
        (row["cluster"], row["computation"], row["job"], row["rule"]): _shown(row) for row in rows
    }
    jobs: dict[tuple[str, str], str] = {}
    if any(row["job"] for row in rows):
        jobs = _jobs(scope, {(one["cluster"], one["computation"]) for one in findings})
    return [
        muted.get((one["cluster"], one["computation"], "", one["rule"]))
        or muted.get((one["cluster"], "", "", one["rule"]))
        or muted.get(("", "", jobs.get((one["cluster"], one["computation"]), ""), one["rule"]))
        for one in findings
    ]


def may_be_muted(scope: Scope, findings: Sequence[Item]) -> list[bool]:
    """Return for each stored finding whether its computation may get a job that is muted."""
    rules = {row["rule"] for row in _in_force(scope, mute.c.job != "")}
    some = {(one["cluster"], one["computation"]) for one in findings if one["rule"] in rules}
    waiting = set()
    if some:
        key = (computation.c.cluster, computation.c.id)
        columns = (*key, computation.c.job, computation.c.job_due_at)
        rows = scope.connection.execute(among(scope.select(computation, *columns), key, some))
        waiting = {(row[0], row[1]) for row in rows if row[2] is None and row[3] is not None}
    return [
        one["rule"] in rules and (one["cluster"], one["computation"]) in waiting for one in findings
    ]


def not_muted(connection: Any, workspace: str, now: float) -> Iterable[ColumnElement[bool]]:
    """Return the conditions that exclude findings that are or may be muted from a query of them.

    Without mutes in force, there is no condition, so that the query needs only its index.
    """
    of_jobs = (mute.c.job != "").label("of_jobs")
    in_force = select_in(workspace, mute, of_jobs).where(mute.c.until > now).distinct()
    kinds = {bool(kind) for kind in connection.execute(in_force).scalars()}
    if not kinds:
        return ()
    same = and_(
        mute.c.workspace == finding.c.workspace,
        mute.c.cluster == finding.c.cluster,
        mute.c.rule == finding.c.rule,
        or_(mute.c.computation == "", mute.c.computation == finding.c.computation),
        mute.c.until > now,
    )
    if kinds == {False}:
        return (~exists().where(same),)
    # Only of those that have such a finding: the database looks up each computation by its key.
    of_job = and_(
        mute.c.workspace == finding.c.workspace,
        mute.c.rule == finding.c.rule,
        mute.c.job != "",
        or_(
            mute.c.job == computation.c.job,
            and_(computation.c.job.is_(None), computation.c.job_due_at.is_not(None)),
        ),
        mute.c.until > now,
        computation.c.workspace == finding.c.workspace,
        computation.c.cluster == finding.c.cluster,
        computation.c.id == finding.c.computation,
    )
    return (~exists().where(same), ~exists().where(of_job))


def _jobs(scope: Scope, runs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the job of each of these computations (cluster, id) that has one."""
    key = (computation.c.cluster, computation.c.id)
    # Not with "job IS NOT NULL": SQLite would read all computations that have a job.
    query = among(scope.select(computation, *key, computation.c.job), key, runs)
    return {(row[0], row[1]): row[2] for row in scope.connection.execute(query) if row[2]}


def _in_force(scope: Scope, *conditions: ColumnElement[bool]) -> list[Item]:
    query = scope.select(mute, *_COLUMNS).where(mute.c.until > scope.now, *conditions)
    return scope.items(query.order_by(mute.c.until, mute.c.id))


def _shown(row: Item) -> Item:
    return {name: row[name] for name in _SHOWN}
