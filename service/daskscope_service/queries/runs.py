"""Reads one run, with the usual run of its job to compare it with."""

from __future__ import annotations

from dataclasses import asdict

from daskscope_service.db.schema import computation, job, task_group
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.expected import Expected, expected_of, share_done
from daskscope_service.insight.jobs.summary import has_passed
from daskscope_service.insight.jobs.usual import Usual, usual_of
from daskscope_service.insight.progress import done_in
from daskscope_service.insight.views import JobRun
from daskscope_service.queries.computations import MOST_GROUPS, headings_by_key
from daskscope_service.queries.job_corrections import current_job
from daskscope_service.queries.job_runs import OF_RUN, newest_runs, some_runs
from daskscope_service.web.fields import Missing

_OF_GROUP = ("prefix", "tasks", "completed", "erred", "seconds", "states")


def one_run(scope: Scope, id: str, cluster: str | None = None) -> Item:
    """Return the run with the id of a computation, or the newest ended run of the job with that id.

    ``cluster`` is the id of the computation's cluster, if that is known. Raises Missing.
    """
    key: tuple[str, str] | None = None if cluster is None else (cluster, id)
    key = key or _computation(scope, id) or _newest_ended(scope, id)
    rows = [] if key is None else some_runs(scope, [key])
    if key is None or not rows:
        raise Missing("computation or job", id)
    [row] = rows
    heading = headings_by_key(scope, [key]).get(key)
    runs = runs_before(scope, row)
    usual = usual_of(runs)
    expected = None if usual is None else _expected(scope, row, runs, usual)
    return {name: row[name] for name in OF_RUN} | {
        "computation": row.id,
        "title": "" if heading is None else heading.title,
        "peak_worker_memory": None if row.on is None else row.on["peak_worker_memory"],
        "usual": None if usual is None else asdict(usual),
        "expected": None
        if expected is None or usual is None
        else asdict(expected)
        | {
            "currency": row.currency or usual.currency,
            "price_source": row.price_source or usual.price_source,
        },
    }


def runs_before(scope: Scope, run: JobRun) -> list[JobRun]:
    """Return the newest runs of the same job that began before ``run``, oldest first."""
    if run.job is None:
        return []
    return newest_runs(scope, run.job, before=(run.started_at, run.id))


def _expected(scope: Scope, run: JobRun, runs: list[JobRun], usual: Usual) -> Expected | None:
    if run.status != "running":
        return None
    last = [one for one in runs if has_passed(one)][-1]
    groups = [group | {"done": done_in(group, "running")} for group in _groups(scope, run)]
    return expected_of(run, usual, share_done(groups, _groups(scope, last)), scope.now)


def _groups(scope: Scope, run: JobRun) -> list[Item]:
    query = scope.select(task_group, *(task_group.c[name] for name in _OF_GROUP)).where(
        task_group.c.cluster == run.cluster, task_group.c.computation == run.id
    )
    return scope.first_items(query.order_by(task_group.c.name), MOST_GROUPS)[0]


def _computation(scope: Scope, id: str) -> tuple[str, str] | None:
    query = scope.select(computation, computation.c.cluster).where(computation.c.id == id)
    cluster = scope.connection.execute(query.limit(1)).scalar()
    return None if cluster is None else (cluster, id)


def _newest_ended(scope: Scope, id: str) -> tuple[str, str] | None:
    id = current_job(scope, id)
    if not scope.items(scope.select(job, job.c.id).where(job.c.id == id)):
        return None
    ended = [run for run in newest_runs(scope, id) if run.status != "running"]
    return (ended[-1].cluster, ended[-1].id) if ended else None
