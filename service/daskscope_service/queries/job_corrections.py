"""Reads what people have corrected about jobs: jobs/corrections.py."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import or_

from daskscope_service.db import schema
from daskscope_service.db.schema import job_correction as table
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.corrections import Step, merged_into, whole_jobs

_COLUMNS = (
    *(table.c.id, table.c.job, table.c.kind, table.c.value),
    *(table.c.changed_at.label("at"), table.c.changed_by.label("by")),
)


def turns_of(workspace: str) -> str:
    """Return for what those take turns that correct jobs, or apply what is corrected."""
    return f"corrections of jobs of {workspace}"


def list_corrections(scope: Scope) -> list[Item]:
    """Return the corrections of the workspace, the newest first."""
    query = scope.select(table, *_COLUMNS).order_by(table.c.changed_at.desc(), table.c.id)
    return scope.items(query)


def corrections_of(scope: Scope, job: str) -> list[Item]:
    """Return the corrections that a job is as it is by, the newest first.

    These are its name, the splits that it is a part of, and merges into it and into what was split.
    """
    steps = steps_of(scope)
    split = [id for id in whole_jobs(job) if id in steps]
    into = [
        id
        for id, step in steps.items()
        if step.kind == "merge" and merged_into(id, steps) in (job, *split)
    ]
    these = or_(table.c.job.in_([*into, *split]), (table.c.job == job) & (table.c.kind == "name"))
    query = scope.select(table, *_COLUMNS).where(these)
    return scope.items(query.order_by(table.c.changed_at.desc(), table.c.id))


def steps_of(scope: Scope) -> dict[str, Step]:
    """Return the merges and splits of the workspace by the job that they are of."""
    query = scope.select(table, table.c.job, table.c.kind, table.c.value)
    rows = scope.connection.execute(query.where(table.c.kind != "name"))
    return {job: Step(kind, value) for job, kind, value in rows}


def are_applied(scope: Scope) -> bool:
    """Return whether all runs of the workspace have the jobs that corrections give them."""
    job, run = schema.job, schema.computation
    marked = scope.select(job, job.c.id).where(job.c.assign_before.is_not(None))
    # At 0 is due what a correction took its job from.
    waiting = scope.select(run, run.c.id).where(run.c.job_due_at == 0.0)
    return not any(scope.connection.execute(one.limit(1)).first() for one in (marked, waiting))


def names_of(scope: Scope, jobs: Collection[str]) -> dict[str, str]:
    """Return the names that people gave to these jobs, by id."""
    query = scope.select(table, table.c.job, table.c.value)
    query = query.where(table.c.kind == "name", table.c.job.in_(jobs))
    return {row[0]: row[1] for row in scope.connection.execute(query)}


def current_job(scope: Scope, id: str) -> str:
    """Return the id of the job that the job ``id`` was merged into, else ``id``."""
    return merged_into(id, steps_of(scope))
