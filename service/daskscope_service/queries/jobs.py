"""Jobs: lists of them, as they were last summed up, and one with its newest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Literal

from sqlalchemy import and_, func, tuple_

from daskscope_service.db.schema import computation, finding, job
from daskscope_service.db.scope import Item, Page, Scope, Selection, first_page
from daskscope_service.insight.jobs.differences import of_runs
from daskscope_service.insight.jobs.receipt import receipt_of, sides
from daskscope_service.insight.jobs.summary import Summary, has_passed, summed_up
from daskscope_service.queries.causes import among
from daskscope_service.queries.computations import headings_by_key
from daskscope_service.queries.job_runs import newest_runs
from daskscope_service.web.fields import Missing

Sort = Literal["last", "cost", "change"]

#: Runs of which findings are counted.
_OF_FINDINGS = 50

#: What a list is in the order of, the largest first.
_ORDERS: dict[str, Any] = {
    "last": job.c.last_at,
    "cost": func.coalesce(job.c.cost, 0.0),
    "change": func.coalesce(job.c.change_at, 0.0),
}


def list_jobs(scope: Scope, selection: Selection, sort: Sort = "last") -> Page[Item]:
    """Return jobs of which a run began in the time, in the order of ``sort``.

    A user's are those whose newest run is theirs.
    """
    order = _ORDERS[sort].label("position")
    query = scope.select(job, *job.c, order)
    if selection.kept_since is not None:
        query = query.where(job.c.last_at >= selection.kept_since)
    if selection.kept_until is not None:
        query = query.where(job.c.last_at < selection.kept_until)
    if selection.user is not None:
        newest = and_(
            computation.c.workspace == job.c.workspace,
            computation.c.cluster == job.c.last_cluster,
            computation.c.id == job.c.last_computation,
        )
        query = query.join(computation, newest).where(computation.c.user == selection.user)
    if selection.after is not None:
        after = selection.after[:2]
        query = query.where(tuple_(_ORDERS[sort], job.c.id) < tuple_(*after))
    query = query.order_by(order.desc(), job.c.id.desc())
    found = first_page(scope, query, selection.limit, "position", "id")
    return Page(_told(scope, found.items), found.next)


def one_job(scope: Scope, id: str) -> Item:
    """Return one job with its newest runs, oldest first. Raises Missing.

    What its list has as it was last summed up is made of these runs.
    """
    items = scope.items(scope.select(job).where(job.c.id == id))
    if not items:
        raise Missing("job", id)
    item = _told(scope, items)[0]
    runs = newest_runs(scope, id, compared=True)
    summary = summed_up(runs)
    item["passed"] = summary.passed
    item["sentence"] = summary.sentence
    item["duration"], item["spread"] = summary.duration, summary.spread
    item["task_seconds"] = summary.task_seconds
    item["changes"] = [
        {
            "at": one.at,
            "cluster": one.cluster,
            "computation": one.computation,
            "before": one.change.before,
            "after": one.change.after,
            "runs_before": one.change.runs_before,
            "runs_after": one.change.runs_after,
            "chance": one.change.chance,
            "run_before": one.run_before,
        }
        for one in summary.changes
    ]
    item["change"] = item["changes"][-1] if item["changes"] else None
    differ: list[list[str]] = [[]] if runs else []
    differ += [of_runs(before, after) for before, after in pairwise(runs)]
    first = {(one.cluster, one.computation) for one in summary.changes}
    item["run_list"] = [
        {
            **{name: run[name] for name in _OF_RUN},
            "computation": run["id"],
            "passed": has_passed(run),
            "differs": words,
            "changed": (run["cluster"], run["id"]) in first,
        }
        for run, words in zip(runs, differ, strict=True)
    ]
    users = Counter(run["user"] for run in runs)
    item["users"] = [{"user": user, "runs": count} for user, count in users.most_common()]
    item["findings"] = _findings(scope, runs[-_OF_FINDINGS:])
    receipt = receipt_of(runs, summary, _of_both_sides(scope, runs, summary))
    item["receipt"] = None if receipt is None else asdict(receipt)
    return item


#: What a job says of each of its runs.
_OF_RUN = (
    *("cluster", "cluster_name", "user", "status", "started_at", "duration", "task_seconds"),
    *("thread_seconds", "cost", "currency", "price_source", "tasks", "workers"),
    *("spilled_bytes", "transferred_bytes", "largest_output"),
)


def _told(scope: Scope, items: list[Item]) -> list[Item]:
    """Return jobs with the title, the user and the status of their newest run."""
    keys = [(item["last_cluster"], item["last_computation"]) for item in items]
    newest = headings_by_key(scope, keys)
    for item, key in zip(items, keys, strict=True):
        run = newest.get(key)  # None: it was removed, and the job is not yet summed up anew
        item["title"] = item["name"] or ("" if run is None else run.title)
        item["user"] = None if run is None else run.user
        item["status"] = None if run is None else run.status
        if (change := item["change"]) is not None:
            change.pop("earlier", None)
            item["change"] = change | {"at": item["change_at"]}
    return items


def _of_both_sides(
    scope: Scope, runs: list[Item], summary: Summary
) -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Return rules and savings of the causes that runs around the last change had, by run."""
    before, since = sides(runs, summary)
    pairs = [(run["cluster"], run["id"]) for run in (*before, *since)]
    key = (finding.c.cluster, finding.c.computation)
    query = among(scope.select(finding, *key, finding.c.rule, finding.c.saving), key, pairs)
    found: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for row in scope.items(query.where(finding.c.suppressed_by.is_(None))):
        found.setdefault((row["cluster"], row["computation"]), []).append(
            (row["rule"], row["saving"])
        )
    return found


def _findings(scope: Scope, runs: Iterable[Item]) -> list[Item]:
    """Return the causes that stood out in ``runs``, by rule, those of most runs first."""
    pairs = [(run["cluster"], run["id"]) for run in runs]
    key = (finding.c.cluster, finding.c.computation)
    query = among(scope.select(finding, finding.c.rule, func.count()), key, pairs)
    query = query.where(finding.c.suppressed_by.is_(None), finding.c.severity != "notice")
    found = scope.connection.execute(query.group_by(finding.c.rule)).all()
    return [
        {"rule": rule, "runs": count}
        for rule, count in sorted(found, key=lambda row: (-row[1], row[0]))
    ]
