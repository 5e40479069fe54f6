"""``/api/v1/jobs`` and ``/api/v1/comparisons``: the same work over time, and two of its runs."""

from __future__ import annotations

from flask import Blueprint, current_app, url_for

from daskscope import api_types as types
from daskscope_service.accounts.access import require
from daskscope_service.db.scope import Item, reading
from daskscope_service.insight.views import RepeatView
from daskscope_service.jobs.parameters import RUNS, SORT, asked_repeats, asked_runs, asked_sort
from daskscope_service.queries.comparison import compare_runs
from daskscope_service.queries.jobs import list_jobs, one_job
from daskscope_service.queries.repeats import list_repeats
from daskscope_service.queries.runs import one_run
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import LIMIT, OF_CLUSTER, SINCE, selection
from daskscope_service.web.representation import as_item, page_answer, page_url

blueprint = Blueprint("jobs", __name__, url_prefix="/api/v1")


@blueprint.get("/jobs")
@require("read")
@answers(types.Page[types.Job], *OF_CLUSTER, SORT)
def jobs() -> Item:
    """Answer with the jobs whose newest run began in the given time, in the order ``sort``.

    ``user`` selects the jobs whose newest run belongs to that user. The service finds the job of a
    computation, and updates the job, some seconds after the computation has ended.
    """
    which, sort = selection(cluster="", beside=(SORT.name,)), asked_sort()
    with reading() as scope:
        page = list_jobs(scope, which, sort)
    return page_answer(page, lambda job: _url(job.id))


@blueprint.get("/jobs/<job_id>")
@require("read")
@answers(types.JobDetail)
def job(job_id: str) -> Item:
    """Answer with one job: its newest runs, oldest first, and when it changed.

    For a job that was merged into another, the answer is that one.
    """
    with reading() as scope:
        detail = one_job(scope, job_id)
    return as_item(detail) | {"url": _url(detail.id)}


@blueprint.get("/repeats")
@require("read")
@answers(types.Page[types.Repeat], SINCE, LIMIT)
def repeats() -> Item:
    """Answer with work that ran more than once on the same inputs, the most thread time first.

    ``since`` selects work whose newest run began at or after that time. ``next`` is always null.
    """
    which = asked_repeats()
    with reading() as scope:
        page = list_repeats(scope, which)
    return page_answer(page, _url_of_repeat)


@blueprint.get("/runs/<run_id>")
@require("read")
@answers(types.Run)
def run(run_id: str) -> Item:
    """Answer with one computation and the usual run of its job.

    ``run_id`` is the id of the computation, or of a job: then the answer is the job's newest run
    that has ended.
    """
    with reading() as scope:
        view = one_run(scope, run_id)
    url = page_url(
        current_app.config["SETTINGS"],
        "computation",
        cluster_id=view["cluster"],
        computation_id=view["computation"],
    )
    return view | {"url": url}


@blueprint.get("/comparisons")
@require("read")
@answers(types.Comparison, *RUNS, problems=(404,))
def comparison() -> Item:
    """Compare two computations: why one took longer, and what else differs."""
    a, b = asked_runs()
    with reading() as scope:
        compared = compare_runs(scope, a, b)
    address: str = current_app.config["SETTINGS"].url
    return compared | {"url": address + url_for("jobs_page.comparison", a=a, b=b)}


def _url_of_repeat(work: RepeatView) -> str:
    return page_url(
        current_app.config["SETTINGS"],
        "computation",
        cluster_id=work.last_cluster,
        computation_id=work.last_computation,
    )


def _url(id: str) -> str:
    address: str = current_app.config["SETTINGS"].url
    return address + url_for("jobs_page.job", job_id=id)
