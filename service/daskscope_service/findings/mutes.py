"""Stores and removes mutes, which fold the findings of a rule until a time, for a reason."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from sqlalchemy import delete, func, insert, or_, select

from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import take_turns
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, computation, job
from daskscope_service.db.schema import mute as table
from daskscope_service.findings.rule_parameter import RULE_NAMES
from daskscope_service.queries.job_runs import sum_up_jobs
from daskscope_service.web.fields import Missing, Name, Unfit, check

#: The most mutes of a workspace, and the longest time of one in seconds.
MOST = 1_000
_LONGEST = 366 * 86400.0

Id = Annotated[str, Meta(min_length=1, max_length=256)]


class TooManyMutes(ValueError):
    """The workspace has as many mutes as it may have."""


@dataclass(frozen=True, slots=True)
class NewMute:
    """A mute that a user asks for: pages fold findings of ``rule`` ``until`` a time.

    It covers the ``computation`` or, if that is "", the ``cluster`` and all computations on it; or
    all runs of the ``job``: then the other two are "".
    """

    rule: str
    cluster: str
    computation: str
    reason: str
    until: float
    job: str = ""


def mute(change: Change, requested: NewMute) -> str:
    """Store a mute, in place of one of the same rule and subject; return its id.

    Raises
    ------
    Unfit
        It has no reason, an unknown rule, or an end that is past or too far away; or both or
        neither of a cluster and a job.
    Missing
        There is no such cluster, no such computation on it, or no such job.
    TooManyMutes
        The workspace has :data:`MOST` mutes.
    """
    if requested.rule not in RULE_NAMES:
        raise Unfit(
            "rule",
            f"There is no rule {requested.rule!r}. GET /api/v1/findings names the rule of each.",
        )
    if bool(requested.cluster) == bool(requested.job) or (requested.job and requested.computation):
        raise Unfit("job", "Name either a job, or a cluster and perhaps a computation on it.")
    check(Name, requested.reason, "reason", "Write a reason of 1 to 80 characters.")
    now = time.time()
    if not now < requested.until <= now + _LONGEST:
        raise Unfit("until_at", "The end must be in the future, and within a year.")
    _find(change, requested)
    take_turns(change.connection, f"mutes of {change.workspace}")
    connection, mine = change.connection, table.c.workspace == change.workspace
    same = (table.c.rule == requested.rule) & (table.c.cluster == requested.cluster)
    same &= (table.c.computation == requested.computation) & (table.c.job == requested.job)
    connection.execute(delete(table).where(mine, or_(table.c.until <= now, same)))
    if (connection.execute(select(func.count()).where(mine)).scalar() or 0) >= MOST:
        raise TooManyMutes(f"This workspace has {MOST:,} mutes, as many as it may. End some first.")
    id = secrets.token_hex(8)
    connection.execute(
        insert(table).values(
            workspace=change.workspace,
            id=id,
            rule=requested.rule,
            cluster=requested.cluster,
            computation=requested.computation,
            job=requested.job,
            reason=requested.reason,
            until=requested.until,
            **change.stamp,
        )
    )
    _sum_up_jobs(change, requested, now)
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(requested.until))
    change.log("finding muted", f"{_subject(requested)} until {day} UTC: {requested.reason}")
    return id


def unmute(change: Change, id: str) -> NewMute:
    """Remove a mute and return it. Raises Missing."""
    names = ("rule", "cluster", "computation", "reason", "until", "job")
    query = select_in(change.workspace, table, *(table.c[name] for name in names))
    row = change.connection.execute(query.where(table.c.id == id)).first()
    if row is None:
        raise Missing("mute", id)
    change.connection.execute(
        delete(table).where(table.c.workspace == change.workspace, table.c.id == id)
    )
    ended = NewMute(*row)
    _sum_up_jobs(change, ended, time.time())
    change.log("finding unmuted", _subject(ended))
    return ended


def _sum_up_jobs(change: Change, muted: NewMute, now: float) -> None:
    """Have the jobs that a mute covers summarised again: what would save most leaves it out."""
    jobs = [muted.job]
    if not muted.job:
        query = select_in(change.workspace, computation, computation.c.job).distinct()
        query = query.where(computation.c.cluster == muted.cluster)
        if muted.computation:
            query = query.where(computation.c.id == muted.computation)
        jobs = [id for id in change.connection.execute(query).scalars() if id is not None]
    sum_up_jobs(change.connection, change.workspace, jobs, now)


def _subject(muted: NewMute) -> str:
    if muted.job:
        return f"{muted.rule} of job {muted.job}"
    on = f"computation {muted.computation} on " if muted.computation else ""
    return f"{muted.rule} of {on}cluster {muted.cluster}"


def _find(change: Change, requested: NewMute) -> None:
    if requested.job:
        query = select_in(change.workspace, job, job.c.id).where(job.c.id == requested.job)
        if change.connection.execute(query).first() is None:
            raise Missing("job", requested.job)
        return
    query = select_in(change.workspace, cluster, cluster.c.id).where(
        cluster.c.id == requested.cluster
    )
    if change.connection.execute(query).first() is None:
        raise Missing("cluster", requested.cluster)
    if requested.computation:
        query = select_in(change.workspace, computation, computation.c.id).where(
            computation.c.cluster == requested.cluster, computation.c.id == requested.computation
        )
        if change.connection.execute(query).first() is None:
            raise Missing("computation", requested.computation)
