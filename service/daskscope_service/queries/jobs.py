"""Jobs: lists of them, as they were last summarised, and one job with its newest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Literal

from msgspec import structs
from sqlalchemy import and_, func, tuple_

from daskscope_service.db.row_values import columns_in
from daskscope_service.db.schema import computation, finding, job
from daskscope_service.db.scope import Item, Page, Scope, Selection, first_page
from daskscope_service.insight.findings.headline import saving_in_words
from daskscope_service.insight.jobs.differences import changes_in_words
from daskscope_service.insight.jobs.receipt import receipt_of, sides
from daskscope_service.insight.jobs.sizing import Sizing, sizing_of
from daskscope_service.insight.jobs.summary import Summary, has_passed, summed_up
from daskscope_service.insight.views import JobDetail, JobRun, JobView
from daskscope_service.insight.wording import estimate
from daskscope_service.queries.among import among
from daskscope_service.queries.computations import Heading, headings_by_key
from daskscope_service.queries.job_corrections import corrections_of, current_job, names_of
from daskscope_service.queries.job_runs import newest_runs
from daskscope_service.queries.thresholds import thresholds_of
from daskscope_service.web.fields import Missing

Sort = Literal["last", "cost", "change", "saving"]

#: How many of the newest runs' findings are counted.
_OF_FINDINGS = 50

_OF_JOB = [*columns_in(job, JobView), job.c.change_at]

#: The columns by which a list can be sorted, the largest first.
_ORDERS: dict[str, Any] = {
    "last": job.c.last_at,
    "cost": func.coalesce(job.c.cost, 0.0),
    "change": func.coalesce(job.c.change_at, 0.0),
    # A cause may cost no threads' time: it comes before none.
    "saving": func.coalesce(job.c.saves_most_seconds, -1.0),
}


def list_jobs(scope: Scope, selection: Selection, sort: Sort = "last") -> Page[JobView]:
    """Return jobs whose newest run began in the time of ``selection``, in the order of ``sort``.

    ``selection.user`` selects jobs whose newest run is that user's.
    """
    order = _ORDERS[sort].label("position")
    query = scope.select(job, *_OF_JOB, order)
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
    listed = first_page(scope, query, selection.limit, "position", "id")
    return Page(_views(scope, listed.items), listed.next)


def one_job(scope: Scope, id: str) -> JobDetail:
    """Return one job with its newest runs, oldest first. Raises Missing.

    Its summary is made from these runs, while lists show the stored one. A job that was merged
    into another is that one.
    """
    id = current_job(scope, id)
    rows = scope.items(scope.select(job, *_OF_JOB).where(job.c.id == id))
    if not rows:
        raise Missing("job", id)
    runs = newest_runs(scope, id, compared=True)
    summary = summed_up(runs)
    changes = [
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
    differ: list[list[str]] = [[]] if runs else []
    differ += [changes_in_words(before, after) for before, after in pairwise(runs)]
    first = {(one.cluster, one.computation) for one in summary.changes}
    run_list = [
        {
            **{name: run[name] for name in _OF_RUN},
            "computation": run.id,
            "passed": has_passed(run),
            "differs": words,
            "changed": (run.cluster, run.id) in first,
        }
        for run, words in zip(runs, differ, strict=True)
    ]
    users = Counter(run.user for run in runs)
    receipt = receipt_of(runs, summary, _of_both_sides(scope, runs, summary))
    made = {
        "passed": summary.passed,
        "sentence": summary.sentence,
        "duration": summary.duration,
        "spread": summary.spread,
        "task_seconds": summary.task_seconds,
        "changes": changes,
        "change": changes[-1] if changes else None,
        "run_list": run_list,
        "users": [{"user": user, "runs": count} for user, count in users.most_common()],
        "findings": _findings(scope, runs[-_OF_FINDINGS:]),
        "receipt": None if receipt is None else asdict(receipt),
        "corrections": corrections_of(scope, id),
        "sizing": _sizing(sizing_of(runs, thresholds_of(scope.connection, scope.workspace)), runs),
    }
    [view] = _views(scope, rows)
    return JobDetail.of(structs.asdict(view) | made)


#: The fields of each run in an answer about a job.
_OF_RUN = (
    *("cluster", "cluster_name", "user", "status", "started_at", "duration", "task_seconds"),
    *("thread_seconds", "cost", "currency", "price_source", "tasks", "workers"),
    *("spilled_bytes", "transferred_bytes", "largest_output"),
)


def _sizing(sizing: Sizing, runs: Sequence[JobRun]) -> Item:
    item = asdict(sizing)
    for proposal, made in zip(item["proposals"], sizing.proposals, strict=True):
        if made.saving is not None:
            words = saving_in_words(made.saving)
            proposal["saving"]["text"] = f"{words} ({estimate([runs[-1].price_source])})"
    return item


def jobs_of(scope: Scope, ids: Sequence[str]) -> list[JobView]:
    """Return those of the jobs with these ids that there are."""
    return _views(scope, scope.items(scope.select(job, *_OF_JOB).where(job.c.id.in_(ids))))


def titles_of(scope: Scope, corrections: Sequence[Item]) -> dict[str, str]:
    """Return the titles of the jobs that others were merged into, by id."""
    ids = {one["value"] for one in corrections if one["kind"] == "merge"}
    return {one.id: one.title for one in jobs_of(scope, sorted(ids))}


def _views(scope: Scope, rows: list[Item]) -> list[JobView]:
    keys = [(row["last_cluster"], row["last_computation"]) for row in rows]
    newest = headings_by_key(scope, keys)
    given = names_of(scope, [row["id"] for row in rows])
    return [
        _view(row, newest.get(key), given.get(row["id"]))
        for row, key in zip(rows, keys, strict=True)
    ]


def _view(row: Item, newest: Heading | None, given: str | None) -> JobView:
    change = row["change"]
    if change is not None:
        shown = {name: change[name] for name in change if name != "earlier"}
        change = shown | {"at": row["change_at"]}
    # None if the run was removed and the job has not yet been summarised again.
    user, status = (None, None) if newest is None else (newest.user, newest.status)
    call = "" if newest is None else newest.title
    title = given or row["name"] or call
    made = {"title": title, "given_name": given, "call": call, "change": change}
    return JobView.of(row | made | {"user": user, "status": status})


def _of_both_sides(
    scope: Scope, runs: list[JobRun], summary: Summary
) -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Return rules and savings of the findings of runs before and after the last change, by run."""
    before, since = sides(runs, summary)
    pairs = [(run["cluster"], run["id"]) for run in (*before, *since)]
    key = (finding.c.cluster, finding.c.computation)
    query = among(scope.select(finding, *key, finding.c.rule, finding.c.saving), key, pairs)
    by_run: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for row in scope.items(query.where(finding.c.suppressed_by.is_(None))):
        by_run.setdefault((row["cluster"], row["computation"]), []).append(
            (row["rule"], row["saving"])
        )
    return by_run


def _findings(scope: Scope, runs: Iterable[JobRun]) -> list[Item]:
    """Return by rule how many of ``runs`` have a finding; the most frequent first.

    Notices, and findings that another one explains, are left out.
    """
    pairs = [(run.cluster, run.id) for run in runs]
    key = (finding.c.cluster, finding.c.computation)
    query = among(scope.select(finding, finding.c.rule, func.count()), key, pairs)
    query = query.where(finding.c.suppressed_by.is_(None), finding.c.severity != "notice")
    counts = scope.connection.execute(query.group_by(finding.c.rule)).all()
    return [
        {"rule": rule, "runs": count}
        for rule, count in sorted(counts, key=lambda row: (-row[1], row[0]))
    ]
