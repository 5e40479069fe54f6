"""Takes their job from runs whose job may be another one by now, as a correction has changed.

The namer then finds their jobs anew. It is done in the background and in parts: a job may have a
million runs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, Select, tuple_, update

from daskscope_service.db.engine import writing_again
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import NOT_FINISHED, computation, job
from daskscope_service.queries.job_runs import ALL_RUNS, lock_jobs

#: Runs that lose their job in one transaction.
_TOGETHER = 500
#: How many of the newest runs of a job are judged again when the job has changed.
_JUDGED = 20


def to_assign(workspace: Any) -> Select[Any]:
    """Return the query of the jobs whose runs get their jobs anew: id, and before which time."""
    query = select_in(workspace, job, job.c.id, job.c.assign_before)
    return query.where(job.c.assign_before.is_not(None))


def unassign(engine: Engine, workspace: str, now: float) -> bool:
    """Take their job from some runs, the newest first; return whether there were any to take.

    A correction that is made meanwhile begins from the newest run.
    """
    with engine.connect() as connection:
        row = connection.execute(to_assign(workspace).order_by(job.c.id).limit(1)).first()
    if row is None:
        return False
    id, before = row
    these = (computation.c.workspace == workspace, computation.c.job == id)

    def write(connection: Connection) -> None:
        lock_jobs(connection, workspace, [id])
        begun = select_in(workspace, computation, computation.c.started_at)
        begun = begun.where(*these, computation.c.started_at < before)
        begun = begun.order_by(computation.c.started_at.desc()).limit(_TOGETHER)
        times = list(connection.execute(begun).scalars())
        if before == ALL_RUNS:
            _look_again(connection, workspace)
        if times:
            if before == ALL_RUNS:
                judge_newest(connection, workspace, id, now)
            connection.execute(
                update(computation)
                .where(*these, computation.c.started_at.between(times[-1], times[0]))
                .values(job=None, job_due_at=0.0)
            )
        more = len(times) == _TOGETHER
        connection.execute(
            update(job)
            .where(job.c.workspace == workspace, job.c.id == id, job.c.assign_before == before)
            .values(assign_before=times[-1] if more else None, due_at=now)
        )

    writing_again(engine, write)
    return True


def _look_again(connection: Connection, workspace: str) -> None:
    """Have the namer look again at runs that have not ended and have no job.

    A split by shape took their job from those whose cluster was lost: their shape is never known.
    """
    connection.execute(
        update(computation)
        .where(computation.c.workspace == workspace, NOT_FINISHED)
        .where(computation.c.stopped_at.is_(None))
        .where(computation.c.job.is_(None), computation.c.job_due_at.is_(None))
        .values(job_due_at=0.0)
    )


def judge_newest(connection: Connection, workspace: str, id: str, now: float) -> None:
    """Have the findings of the newest runs of a job made anew."""
    key = (computation.c.cluster, computation.c.id)
    newest = select_in(workspace, computation, *key).where(computation.c.job == id)
    newest = newest.order_by(computation.c.started_at.desc()).limit(_JUDGED)
    pairs = [tuple(row) for row in connection.execute(newest)]
    connection.execute(
        update(computation)
        .where(computation.c.workspace == workspace, tuple_(*key).in_(pairs))
        # Running computations are due anyway.
        .where(computation.c.judge_at.is_(None))
        .values(judge_at=now)
    )
