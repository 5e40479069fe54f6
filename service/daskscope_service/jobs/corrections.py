"""What people correct about jobs: they merge, split and name them, and undo that.

The namer applies merges and splits to each run. It gives the runs of a job that a correction
changes their jobs anew, in the background.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.schema import computation, job
from daskscope_service.db.schema import job_correction as table
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.corrections import (
    Kind,
    SplitBy,
    Step,
    ends_of,
    is_part,
    merge_in_words,
    name_in_words,
    part_of,
    split_in_words,
    undo_in_words,
    whole_jobs,
)
from daskscope_service.insight.jobs.identity import part_key
from daskscope_service.insight.views import JobView
from daskscope_service.insight.wording import plural
from daskscope_service.jobs.traits import MOST_CALLS, OF_TRAITS, traits_of, with_groups
from daskscope_service.queries.job_corrections import list_corrections, steps_of, turns_of
from daskscope_service.queries.job_runs import MOST_COUNTED, assign_runs_anew
from daskscope_service.queries.jobs import jobs_of
from daskscope_service.web.fields import Missing, Name, Unfit, check

#: The most corrections of a workspace.
MOST = 1_000
#: How many of the newest runs a preview of a split divides.
_PREVIEWED = 100
#: What runs of a level have in common already, or cannot be split by.
_NO_SPLIT = {
    (
        "code",
        "code",
    ): "The runs of this job have the same code and user already. Split it by shape.",
    ("shape", "shape"): "The runs of this job have the same shape and user already.",
    ("shape", "code"): "No code is known of the runs of this job, so it cannot be split by code.",
}


class TooManyCorrections(ValueError):
    """The workspace has as many corrections as it may have."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction that a user asks for. Exactly one of the fields after ``job`` has a value.

    ``merge_into`` is the id of another job, ``split_by`` code or shape, ``name`` the job's name.
    """

    job: str
    merge_into: str = ""
    split_by: str = ""
    name: str = ""

    @property
    def kind(self) -> Kind:
        """What is to be done."""
        return "merge" if self.merge_into else "split" if self.split_by else "name"

    @property
    def value(self) -> str:
        """The id of the other job, code or shape, or the name."""
        return self.merge_into or self.split_by or self.name


def preview(scope: Scope, requested: Correction) -> str:
    """Return what a correction would do, in words. Raises as :func:`correct`."""
    subject, other = _checked(scope, requested)
    title = _quoted(subject)
    if other is not None:
        into, there = _quoted(other), _runs(other)
        if title == into:
            title, into = f"{title} ({subject.id})", f"{into} ({other.id})"
        return merge_in_words(title, f"All {_runs(subject)}", into, there)
    if requested.kind == "name":
        return name_in_words(title, f"“{requested.name}”")
    by: SplitBy = "code" if requested.split_by == "code" else "shape"
    return split_in_words(by, _parts(scope, requested.job, by))


def correct(change: Change, requested: Correction) -> str:
    """Store a correction; return its id. A new name takes the place of the one before.

    Raises
    ------
    Unfit
        Not exactly one thing is to be done, or it makes no sense: a job is merged into itself,
        split by what its runs have in common, or merged or split already.
    Missing
        There is no such job.
    TooManyCorrections
        The workspace has :data:`MOST` corrections.
    """
    take_turns(change.connection, turns_of(change.workspace))
    _checked(_scope(change), requested)
    connection, mine = change.connection, table.c.workspace == change.workspace
    same = (table.c.job == requested.job) & (table.c.kind == requested.kind)
    connection.execute(delete(table).where(mine, same))
    if (connection.execute(select(func.count()).where(mine)).scalar() or 0) >= MOST:
        raise TooManyCorrections(
            f"This workspace has {MOST:,} corrections of jobs, as many as it may. Undo some first."
        )
    id = secrets.token_hex(8)
    values = {"id": id, "job": requested.job, "kind": requested.kind, "value": requested.value}
    connection.execute(insert(table).values(workspace=change.workspace, **values, **change.stamp))
    if requested.kind != "name":
        assign_runs_anew(connection, change.workspace, [requested.job])
    change.log("job corrected", _detail(requested.job, requested.kind, requested.value))
    return id


def undo(change: Change, id: str) -> Item:
    """Remove a correction, and those of the jobs that a split made; return it. Raises Missing."""
    take_turns(change.connection, turns_of(change.workspace))
    scope = _scope(change)
    rows = list_corrections(scope)
    row = next((one for one in rows if one["id"] == id), None)
    if row is None:
        raise Missing("correction of a job", id)
    ended = [row, *_with_it(rows, row)]
    connection, mine = change.connection, table.c.workspace == change.workspace
    if row["kind"] != "name":
        assign_runs_anew(connection, change.workspace, _with_runs_of(scope, row["job"]))
    ids = [one["id"] for one in ended]
    connection.execute(delete(table).where(mine, table.c.id.in_(ids)))
    for one in ended:
        change.log("job correction undone", _detail(one["job"], one["kind"], one["value"]))
    return row


def undo_preview(scope: Scope, id: str) -> tuple[Item, str]:
    """Return a correction, and what undoing it would do, in words. Raises Missing."""
    rows = list_corrections(scope)
    row = next((one for one in rows if one["id"] == id), None)
    if row is None:
        raise Missing("correction of a job", id)
    return row, undo_in_words(row["kind"], row["value"], len(_with_it(rows, row)))


def _scope(change: Change) -> Scope:
    # The last number says which clusters are silent: nothing here depends on it.
    return Scope(change.connection, change.workspace, time.time(), 0.0)


def _with_it(rows: list[Item], row: Item) -> list[Item]:
    """Return the other corrections that end with ``row``: those of the parts of a split job."""
    if row["kind"] != "split":
        return []
    of = row["job"]
    return [
        one
        for one in rows
        if is_part(one["job"], of) or (one["kind"] == "merge" and is_part(one["value"], of))
    ]


def _with_runs_of(scope: Scope, id: str) -> set[str]:
    """Return the ids of the jobs that may have runs that ``id`` would have without corrections."""
    steps = steps_of(scope)
    named = {id, *steps, *(step.value for step in steps.values() if step.kind == "merge")}
    reached = ends_of(id, steps, named)
    split = {one for one in reached if one in steps and steps[one].kind == "split"}
    query = scope.select(job, job.c.id)
    # One query for each, and no range of ids: a usual locale of PostgreSQL sorts "-" and "~" before
    # digits, and SQLite limits how deep a condition is.
    wheres = [job.c.id.startswith(part_of(one, ""), autoescape=True) for one in sorted(split)]
    jobs: set[str] = set()
    for where in (job.c.id.in_(reached), *wheres):
        jobs |= set(scope.connection.execute(query.where(where)).scalars())
    return jobs


def _checked(scope: Scope, requested: Correction) -> tuple[JobView, JobView | None]:
    """Return the job, and the one that it is to be merged into; raise as :func:`correct`."""
    if sum(map(bool, (requested.merge_into, requested.split_by, requested.name))) != 1:
        raise Unfit(
            "job", "Say one of these: the job to merge it into, what to split it by, or its name."
        )
    steps = steps_of(scope)
    subject = _job(scope, steps, requested.job, "job")
    if requested.kind == "name":
        check(
            Name,
            requested.name,
            "name",
            "Write a name of 1 to 80 characters, without invisible ones.",
        )
        return subject, None
    if requested.kind == "merge":
        if requested.merge_into == requested.job:
            raise Unfit("merge_into", "A job cannot be merged into itself. Name another job.")
        return subject, _job(scope, steps, requested.merge_into, "merge_into")
    if requested.split_by not in ("code", "shape"):
        raise Unfit(
            "split_by", f"A job is split by code or by shape, not by {requested.split_by!r}."
        )
    splits = {steps[id].value for id in whole_jobs(requested.job) if id in steps}
    gathers = any(step.kind == "merge" and step.value == requested.job for step in steps.values())
    if requested.split_by in splits and not gathers:
        raise Unfit(
            "split_by",
            f"This job is already one of those that a split by {requested.split_by} made.",
        )
    if (why := _NO_SPLIT.get((subject.level, requested.split_by))) and not gathers:
        raise Unfit("split_by", why)
    return subject, None


def _job(scope: Scope, steps: dict[str, Step], id: str, field: str) -> JobView:
    step = steps.get(id)
    if step is not None:
        done = f"merged into job {step.value}" if step.kind == "merge" else "split"
        instead = "Name that job" if step.kind == "merge" else "Name one of its parts"
        raise Unfit(field, f"Job {id} is already {done}. {instead}, or undo that first.")
    matches = jobs_of(scope, [id])
    if not matches:
        raise Missing("job", id)
    return matches[0]


def _parts(scope: Scope, id: str, by: SplitBy) -> list[int]:
    """Return how many of the newest runs each part of a job would have."""
    query = scope.select(computation, *OF_TRAITS).where(computation.c.job == id)
    query = query.order_by(computation.c.started_at.desc(), computation.c.id.desc())
    rows, _ = scope.first_items(query, _PREVIEWED)
    rows = [row | {"frames": (row["frames"] or [])[-MOST_CALLS:]} for row in rows]
    known = traits_of(scope, rows)
    if by == "shape":
        known = (with_groups(scope, one) for one in known)
    return list(Counter(part_key(one.traits, by) for one in known).values())


def _runs(view: JobView) -> str:
    more = " or more" if view.runs >= MOST_COUNTED else ""
    return plural(view.runs, "run") + more


def _quoted(view: JobView) -> str:
    return f"“{view.title}”" if view.title else f"job {view.id}"


def _detail(id: str, kind: str, value: str) -> str:
    words = {"merge": "merged into job", "split": "split by", "name": "named"}
    return f"job {id} {words[kind]} {value}"
