"""The pages of jobs: the list, one job, the comparison of two of its runs, and repeated work."""

from __future__ import annotations

import time

from flask import Blueprint, g, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import may_act, signed_in
from daskscope_service.accounts.first_run import first_run, has_clusters
from daskscope_service.db.scope import Item, Page, Scope, Selection, reading
from daskscope_service.insight.flame import merge
from daskscope_service.insight.views import JobView
from daskscope_service.jobs.dots import MEASURES, dots
from daskscope_service.jobs.flame_difference import Side, difference_graph, paired
from daskscope_service.jobs.parameters import SORT, asked_repeats, asked_runs, asked_sort
from daskscope_service.jobs.repeats import LEAST_SECONDS
from daskscope_service.jobs.steps import waterfall_bars
from daskscope_service.queries.comparison import compare_runs
from daskscope_service.queries.job_corrections import are_applied
from daskscope_service.queries.jobs import Sort, jobs_of, list_jobs, one_job, titles_of
from daskscope_service.queries.profiles import Profiles, newest_profiles
from daskscope_service.queries.repeats import list_repeats
from daskscope_service.web.downloads import csv_list, make_columns
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import ROWS_SHOWN, one_of, refuse_unknown, selection

blueprint = Blueprint("jobs_page", __name__)

#: Whose time the flame graph of a comparison shows as width: of the second run, or the first.
_SIDES: tuple[Side, ...] = ("after", "before")
#: How many of the newest runs the table of a job shows.
_MOST_SHOWN = 50

_CSV = make_columns(
    "id level name title given_name call user status",
    "first_at last_at last_cluster last_computation runs",
    "usual_seconds=duration spread_share=spread usual_task_seconds=task_seconds",
    "cost_of_30_days_estimate=cost currency price_source change",
    {
        "saves_most": lambda job: job["saves_most"] and job["saves_most"]["rule"],
        "saves_most_thread_seconds": lambda job: job["saves_most"] and job["saves_most"]["seconds"],
    },
)


_REPEATS_CSV = make_columns(
    "name title steps runs users people clusters thread_seconds_again=seconds_again",
    "cost_again_estimate=cost_again currency first_at last_at last_cluster last_computation",
    "output_bytes instead advice",
)


@blueprint.get("/jobs")
@signed_in
def jobs() -> ResponseReturnValue:
    """Show the jobs that the address asks for, in the order it asks for."""
    if tidy := tidied():
        return redirect(tidy)
    which, sort = _asked_for()
    with reading() as scope:
        if not has_clusters(scope):
            return first_run()
        page = list_jobs(scope, which, sort)
    return render_template(
        "jobs.html", now=time.time(), page=page, which=which, sort=sort, moving=False
    )


@blueprint.get("/jobs.csv")
@signed_in
def jobs_csv() -> ResponseReturnValue:
    """Answer with the jobs that the address asks for, as CSV."""
    which, sort = _asked_for()

    def read(scope: Scope, some: Selection) -> Page[JobView]:
        return list_jobs(scope, some, sort)

    return csv_list(_CSV, read, which, "jobs")


@blueprint.get("/repeats")
@signed_in
def repeats() -> ResponseReturnValue:
    """Show work that ran more than once on the same inputs."""
    which = asked_repeats(ROWS_SHOWN)
    with reading() as scope:
        if not has_clusters(scope):
            return first_run()
        page = list_repeats(scope, which)
    return render_template(
        "repeats.html", now=time.time(), page=page, least=LEAST_SECONDS, moving=False
    )


@blueprint.get("/repeats.csv")
@signed_in
def repeats_csv() -> ResponseReturnValue:
    """Answer with work that ran more than once on the same inputs, as CSV."""
    return csv_list(_REPEATS_CSV, list_repeats, asked_repeats(), "repeats")


@blueprint.get("/jobs/<job_id>")
@signed_in
def job(job_id: str) -> ResponseReturnValue:
    """Show one job: its usual run, when it changed, and its runs over time."""
    refuse_unknown("measure")
    with reading() as scope:
        detail = one_job(scope, job_id)
        titles = titles_of(scope, detail.corrections)
        applied = are_applied(scope)
    if detail.id != job_id:  # it was merged into that one
        return redirect(url_for(".job", job_id=detail.id), code=303)
    measure = one_of("measure", tuple(MEASURES))
    return render_template(
        "job.html",
        now=time.time(),
        job=detail,
        runs=detail.run_list[: -_MOST_SHOWN - 1 : -1],
        measure=measure,
        measures=MEASURES,
        drawn=dots(detail, measure),
        titles=titles,
        applied=applied,
        may_change=may_act(g.session, "member"),
        moving=False,
    )


@blueprint.get("/comparisons")
@signed_in
def comparison() -> ResponseReturnValue:
    """Show how one run differs from another."""
    a, b = asked_runs("width")
    side = one_of("width", _SIDES)
    with reading() as scope:
        compared = compare_runs(scope, a, b)
        profiles = [_profiles(scope, compared[run]) for run in ("a", "b")]
        jobs = jobs_of(scope, [compared["b"]["job"]]) if compared["b"]["job"] else []
    graph = None
    # A graph of some of the profiles would show changes that nobody made.
    whole = not any(read.more or read.unreadable or read.misfits for read in profiles)
    if whole and all(read.items for read in profiles):
        tops = [merge(read.items).top for read in profiles]
        if any(top.seconds for top in tops):
            graph = difference_graph(paired(*tops), side)
    return render_template(
        "comparison.html",
        now=time.time(),
        c=compared,
        job=jobs[0] if jobs else None,
        fall=waterfall_bars(compared),
        graph=graph,
        width=side,
        profiles=profiles,
        shared=bool(graph) and {*map(_key, profiles[0].items)} & {*map(_key, profiles[1].items)},
        moving=False,
    )


def _profiles(scope: Scope, run: Item) -> Profiles:
    """Return the profiles that overlap the time of a run on its cluster, the newest of them."""
    until = run["started_at"] + run["duration"]
    which = Selection(since=run["started_at"], until=until, cluster=run["cluster"])
    return newest_profiles(scope, which)


def _key(profile: Item) -> tuple[str, str]:
    return profile["cluster"], profile["id"]


def _asked_for() -> tuple[Selection, Sort]:
    return selection(cluster="", beside=(SORT.name,), rows=ROWS_SHOWN), asked_sort()
