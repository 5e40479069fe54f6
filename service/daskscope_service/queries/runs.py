"""One run beside the usual run of its job."""

from __future__ import annotations

from dataclasses import asdict

from daskscope_service.db.schema import computation, job
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.usual import Usual, usual_of
from daskscope_service.queries.computations import computations_by_key
from daskscope_service.queries.job_runs import OF_RUN, newest_runs, some_runs
from daskscope_service.web.fields import Missing


def one_run(scope: Scope, id: str) -> Item:
    """Return a run: the computation of this id, or of a job the newest that has ended.

    Raises Missing.
    """
    key = _computation(scope, id) or _newest_ended(scope, id)
    rows = [] if key is None else some_runs(scope, [key])
    if key is None or not rows:
        raise Missing("computation or job", id)
    [row] = rows
    title = computations_by_key(scope, [key]).get(key, {}).get("title", "")
    usual = usual_before(scope, row)
    return {name: row[name] for name in OF_RUN} | {
        "computation": row["id"],
        "title": title,
        "peak_worker_memory": row["on"]["peak_worker_memory"],
        "usual": None if usual is None else asdict(usual),
    }


def usual_before(scope: Scope, run: Item) -> Usual | None:
    """Return what runs of the same job before ``run`` usually took, None where nobody can say."""
    if run["job"] is None:
        return None
    return usual_of(newest_runs(scope, run["job"], before=(run["started_at"], run["id"])))


def _computation(scope: Scope, id: str) -> tuple[str, str] | None:
    query = scope.select(computation, computation.c.cluster).where(computation.c.id == id)
    cluster = scope.connection.execute(query.limit(1)).scalar()
    return None if cluster is None else (cluster, id)


def _newest_ended(scope: Scope, id: str) -> tuple[str, str] | None:
    if not scope.items(scope.select(job, job.c.id).where(job.c.id == id)):
        return None
    ended = [run for run in newest_runs(scope, id) if run["status"] != "running"]
    return (ended[-1]["cluster"], ended[-1]["id"]) if ended else None
