"""Finds in the background which job each computation is a run of, and summarises the jobs.

A computation is stored before its code and its task groups have arrived; ``job_due_at`` says when
to look for its job. The groups of those that have ended are noted, too: ``repeats.py``. If several
processes share a database, one at a time does this work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    Float,
    Select,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    literal,
    select,
    update,
)

from daskscope_service.db.engine import take_turns, writing, writing_again
from daskscope_service.db.key_register import hasher
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import computation, job, workspace
from daskscope_service.db.scope import Item, Scope, read_in_parts
from daskscope_service.db.statements import Upsert
from daskscope_service.insight.jobs.corrections import SplitBy, Step, corrected
from daskscope_service.insight.jobs.identity import (
    Identity,
    identity_of,
    needs_groups,
    part_key,
)
from daskscope_service.insight.jobs.summary import Changed, summed_up
from daskscope_service.jobs.reassignment import judge_newest, to_assign, unassign
from daskscope_service.jobs.repeats import Repeats
from daskscope_service.jobs.traits import MOST_CALLS, OF_TRAITS, Known, traits_of, with_groups
from daskscope_service.periodic import Lease, in_each, together_or_alone
from daskscope_service.queries.among import among
from daskscope_service.queries.causes import costliest_cause_of_runs
from daskscope_service.queries.job_corrections import steps_of, turns_of
from daskscope_service.queries.job_runs import (
    count_runs,
    first_run_at,
    lock_jobs,
    newest_runs,
)

logger = logging.getLogger(__name__)

#: The name of the lease.
WORK = "jobs"
#: Seconds between two rounds.
ROUND_SECONDS = 5.0

#: Computations of a workspace that are read together; the most jobs summarised in one round.
_TOGETHER, _SUMMED = 20, 50
#: Seconds of a round for one workspace after which the rest waits for the next round.
_MOST_SECONDS = 4.0
#: Seconds until missing code is looked for again, and for how many seconds it may still arrive.
_AGAIN, _ARRIVES = 10.0, 60.0
#: Seconds of a month, over which costs are summed up; seconds after which that is done again.
MONTH, _DAY = 30 * 86_400.0, 86_400.0
#: Hexadecimal digits of a job's id: 64 bits suffice for the jobs of one workspace. And of what is
#: added for the part of a split one.
_DIGITS, _PART_DIGITS = 16, 12


@dataclass(frozen=True, slots=True)
class _JobOfRun:
    """The job of a computation, None if it has none yet, and when to look again."""

    row: Item
    identity: Identity | None
    job: str | None
    next_at: float | None


class Namer:
    """Finds and summarises the jobs of all workspaces, in rounds."""

    def __init__(self, engine: Engine, silent_after: float) -> None:
        self._engine = engine
        self._silent_after = silent_after
        self._lease = Lease(engine, WORK)
        # A job that is there is locked, so that it is not deleted as one without runs meanwhile.
        self._insert = Upsert(engine, job, replace=("due_at",))
        self._repeats = Repeats(engine)
        with engine.connect() as connection:
            self._keyed = hasher(connection)

    def round(self) -> int:
        """Process the computations and jobs that are due; return how many they were."""
        now = time.time()
        with self._engine.connect() as connection:
            # In one statement: there may be hundreds of workspaces, most of them with nothing due.
            any_due = exists(_due(workspace.c.id, now)) | exists(_to_sum(workspace.c.id, now))
            any_due |= exists(to_assign(workspace.c.id))
            due = list(connection.execute(select(workspace.c.id).where(any_due)).scalars())
        if not due or not self._lease.take():
            return 0
        try:
            return in_each(due, lambda name: self._workspace(name, now))
        finally:
            self._lease.give_back(done=False)

    def _workspace(self, name: str, now: float) -> int:
        done, until = 0, time.monotonic() + _MOST_SECONDS
        while unassign(self._engine, name, now):
            self._lease.renew()
            if time.monotonic() > until:
                break
        while named := self._named(name, now):
            done += named
            self._lease.renew()
            if time.monotonic() > until:
                break
        return done + self._summed(name, now)

    def _named(self, name: str, now: float) -> int:
        """Find the jobs of some computations that are due; return how many these were."""
        # New computations come before those that earlier versions stored: there may be a million.
        query = _due(name, now).order_by(computation.c.job_due_at.desc()).limit(_TOGETHER)
        with self._engine.connect() as connection:
            keys = [(row[0], row[1]) for row in connection.execute(query)]
        for _, rows in read_in_parts(keys, lambda some: self._rows(name, some, now)):
            if rows:  # else the computations were just removed
                together_or_alone(
                    rows,
                    lambda some: self._name(name, some, now),
                    lambda row, error: self._failed(name, row, error),
                )
        return len(keys)

    def _rows(self, name: str, keys: Sequence[tuple[str, str]], now: float) -> list[Item]:
        key = (computation.c.cluster, computation.c.id)
        with self._engine.connect() as connection:
            scope = Scope(connection, name, now, self._silent_after)
            rows = scope.items(among(scope.select(computation, *OF_TRAITS), key, keys))
        # Only some frames are kept in memory: they may be large.
        return [row | {"frames": (row["frames"] or [])[-MOST_CALLS:]} for row in rows]

    def _failed(self, name: str, row: Item, error: str) -> None:
        logger.error(
            "no job can be found of computation %s of cluster %s in workspace %s: %s",
            *(row["id"], row["cluster"], name, error),
        )
        this = (computation.c.workspace == name, computation.c.cluster == row["cluster"])
        with writing(self._engine) as connection:
            connection.execute(
                update(computation)
                .where(*this, computation.c.id == row["id"])
                .values(job_due_at=None)  # due again once it ends or more of it arrives
            )

    def _name(self, name: str, rows: Sequence[Item], now: float) -> None:
        with self._engine.connect() as connection:
            scope = Scope(connection, name, now, self._silent_after)
            steps = steps_of(scope)
            looks = [self._look(scope, one, steps) for one in traits_of(scope, rows)]
            groups = self._repeats.repeated_in(scope, rows)
        new = {
            one.job: _new(name, one.job, one.identity, one.row, now)
            for one in looks
            if one.job is not None and one.identity is not None
        }
        touched = sorted({one.job for one in looks if one.job is not None})
        changed = [
            {
                "of_cluster": one.row["cluster"],
                "of_id": one.row["id"],
                "of_status": one.row["status"],
                "now_job": one.job,
                "next_at": one.next_at,
                "judged_at": None if one.job is None else now,
            }
            for one in looks
        ]
        # Some findings are by the runs of the job. What earlier versions stored, or a correction
        # took from its job, is due at 0: of that, the newest runs are judged again alone.
        # Cast: PostgreSQL takes a missing value for text.
        at = cast(bindparam("judged_at", type_=Float), Float)
        judged_at = case((computation.c.job_due_at > 0.0, at))

        def write(connection: Connection) -> None:
            # No correction is made while this is written. If one was made since the steps were
            # read, these computations stay due.
            take_turns(connection, turns_of(name))
            if steps_of(Scope(connection, name, now, self._silent_after)) != steps:
                return
            lock_jobs(connection, name, touched)
            self._insert.run(connection, [new[id] for id in sorted(new)])
            connection.execute(
                update(computation)
                .where(computation.c.workspace == name)
                .where(computation.c.cluster == bindparam("of_cluster"))
                .where(computation.c.id == bindparam("of_id"))
                # If it has ended meanwhile, it is due again already.
                .where(computation.c.status == bindparam("of_status"))
                .values(
                    job=bindparam("now_job"),
                    job_due_at=bindparam("next_at"),
                    judge_at=func.coalesce(computation.c.judge_at, judged_at),
                ),
                changed,
            )
            connection.execute(
                update(job).where(job.c.workspace == name, job.c.id.in_(touched)).values(due_at=now)
            )

        self._repeats.write(name, groups)  # first: else a computation would not be due any more
        writing_again(self._engine, write)

    def _look(self, scope: Scope, one: Known, steps: Mapping[str, Step]) -> _JobOfRun:
        """Return which job a computation is a run of, and when to look again, if ever."""
        row, traits, now = one.row, one.traits, scope.now
        ended = row["stopped_at"] is not None
        if row["job"] is not None:
            return _JobOfRun(row, None, row["job"], None)
        since = row["stopped_at"] if ended else row["started_at"]
        if one.waits_for_code and abs(now - since) < _ARRIVES:
            return _JobOfRun(row, None, None, now + _AGAIN)
        if not ended and (one.waits_for_code or needs_groups(traits)):
            return _JobOfRun(row, None, None, None)  # due again once it ends
        identity = identity_of(traits)
        if identity is None:
            return _JobOfRun(row, None, None, None)

        def key_of(by: SplitBy) -> str | None:
            if by == "shape" and not ended:
                return None  # due again once it ends
            whole = with_groups(scope, one).traits if by == "shape" else traits
            return self._keyed(part_key(whole, by))[:_PART_DIGITS]

        # Anyone who reads a hash without a key could test guesses of the code.
        id = self._keyed(identity.key)[:_DIGITS]
        return _JobOfRun(row, identity, corrected(id, steps, key_of), None)

    def _summed(self, name: str, now: float) -> int:
        """Summarise the jobs that are due; return how many they were."""
        query = _to_sum(name, now).order_by(job.c.due_at).limit(_SUMMED)
        with self._engine.connect() as connection:
            ids = list(connection.execute(query).scalars())
        if ids:
            together_or_alone(
                ids,
                lambda some: self._sum_up(name, some, now),
                lambda id, error: self._not_summed(name, id, error, now),
            )
        return len(ids)

    def _not_summed(self, name: str, id: str, error: str, now: float) -> None:
        logger.error("job %s in workspace %s cannot be summed up: %s", id, name, error)
        with writing(self._engine) as connection:
            this = (job.c.workspace == name, job.c.id == id)
            connection.execute(update(job).where(*this).values(due_at=now + _DAY))

    def _sum_up(self, name: str, ids: Sequence[str], now: float) -> None:
        with self._engine.connect() as connection:
            scope = Scope(connection, name, now, self._silent_after)
            query = scope.select(job, job.c.id, job.c.change, job.c.due_at).where(job.c.id.in_(ids))
            before = {row["id"]: row for row in scope.items(query)}
            values = {id: _values(scope, id) for id in sorted(before)}

        def write(connection: Connection) -> None:
            lock_jobs(connection, name, list(values))
            for id, new in values.items():
                this = (job.c.workspace == name, job.c.id == id)
                if new is None:
                    connection.execute(delete(job).where(*this))
                    continue
                # One that was marked meanwhile stays due.
                same = job.c.due_at == before[id]["due_at"]
                due_at = case((same, literal(new["due_at"], Float)), else_=job.c.due_at)
                connection.execute(update(job).where(*this).values(new | {"due_at": due_at}))
                if _is_other(before[id]["change"], new["change"]):
                    _judge_anew(connection, name, id, before[id]["change"], new, now)

        writing_again(self._engine, write)


def _is_other(one: Item | None, other: Item | None) -> bool:
    """Return whether two values of a job's last change are different changes.

    ``earlier`` changes are not compared: they move only when runs are removed.
    """
    if one is None or other is None:
        return one is not other
    return any(one[name] != other[name] for name in ("cluster", "computation", "run_before"))


def _judge_anew(
    connection: Connection, name: str, id: str, before: Item | None, new: Item, now: float
) -> None:
    """Have the newest runs of a job judged again if the old or the new change made runs slower."""
    if not any(one is not None and one["after"] > one["before"] for one in (before, new["change"])):
        return
    judge_newest(connection, name, id, now)


def _due(name: Any, now: float) -> Select[Any]:
    key = (computation.c.cluster, computation.c.id)
    return select_in(name, computation, *key).where(computation.c.job_due_at <= now)


def _to_sum(name: Any, now: float) -> Select[Any]:
    return select_in(name, job, job.c.id).where(job.c.due_at <= now)


def _new(name: str, id: str, identity: Identity, row: Item, now: float) -> tuple[Any, ...]:
    """Return the row of a job that may be new, in the order of its columns."""
    values = {
        "workspace": name,
        "id": id,
        "level": identity.level,
        "name": identity.name,
        "first_at": row["started_at"],
        "last_at": row["started_at"],
        "last_cluster": row["cluster"],
        "last_computation": row["id"],
        "runs": 0,
        "due_at": now,
    }
    return tuple(values.get(column.name) for column in job.columns)


def _values(scope: Scope, id: str) -> Item | None:
    """Return the new values of a job's columns, or None if it has no run left."""
    runs = newest_runs(scope, id)
    if not runs:
        return None
    summary = summed_up(runs)
    last, change = runs[-1], summary.changes[-1] if summary.changes else None
    since = scope.now - MONTH
    of_month = [run for run in runs if run["started_at"] >= since]
    # There may be more runs of this month than were read: what they cost is extrapolated.
    times = max(count_runs(scope, id, since) / len(of_month), 1.0) if of_month else 1.0
    keys = [(run["cluster"], run["id"]) for run in of_month]
    cause = costliest_cause_of_runs(scope, keys, since, times)
    priced = [run for run in of_month if run["cost"] is not None]
    cost = currency = source = None
    if priced:
        currency, source = priced[-1]["currency"], priced[-1]["price_source"]
        same = [run["cost"] for run in priced if run["currency"] == currency]
        cost = sum(same) * times
    return {
        "first_at": first_run_at(scope, id) or last["started_at"],
        "last_at": last["started_at"],
        "last_cluster": last["cluster"],
        "last_computation": last["id"],
        "runs": count_runs(scope, id),
        "duration": summary.duration,
        "spread": summary.spread,
        "task_seconds": summary.task_seconds,
        "cost": cost,
        "currency": currency,
        "price_source": source,
        "change": None
        if change is None
        else _as_stored(change) | {"earlier": [_as_stored(one) for one in summary.changes[:-1]]},
        "change_at": None if change is None else change.at,
        "saves_most": cause,
        "saves_most_seconds": None if cause is None else cause["seconds"],
        # Runs leave the month and mutes end, so what these cost must be summed up again.
        "due_at": scope.now + _DAY if of_month else None,
    }


def _as_stored(change: Changed) -> Item:
    return asdict(change.change) | {
        "at": change.at,
        "cluster": change.cluster,
        "computation": change.computation,
        "run_before": change.run_before,
    }
