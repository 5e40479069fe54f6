"""Notes which task groups ran in which computations, and adds up those that ran more than once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, delete

from daskscope_service.db.engine import writing_again
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import computation, group_run, repeat, task_group
from daskscope_service.db.scope import Item, Scope
from daskscope_service.db.statements import Upsert
from daskscope_service.insight.jobs.repeats import MOST_RUNS, GroupRun, repeat_of
from daskscope_service.insight.views import JobRun
from daskscope_service.queries.among import among
from daskscope_service.queries.computations import MOST_GROUPS
from daskscope_service.queries.job_runs import some_runs

#: Thread-seconds of a group in one run below which nobody pays for it noticeably.
LEAST_SECONDS = 1.0
#: The most groups of a computation that are noted: those that took the most.
MOST_NOTED = 50
#: How many groups one transaction adds up: that takes some milliseconds each, and others wait.
_SUMMED_TOGETHER = 20
#: Over how many seconds before its newest run a group's runs are added up.
_MONTH = 30 * 86_400.0

_OF_GROUP = [
    task_group.c[name]
    for name in (
        *("name", "prefix", "tasks", "completed", "seconds", "output_bytes", "started_at"),
        "tokenized",
    )
]
_OF_RUN = [group_run.c[field.name] for field in fields(GroupRun)]


class Repeats:
    """Writes which groups ran in ended computations, and what runs of equal groups come to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        key = {column.name for column in group_run.primary_key}
        self._note = Upsert(
            engine,
            group_run,
            replace=[column.name for column in group_run.c if column.name not in key],
        )
        of_repeat = {column.name for column in repeat.primary_key}
        self._store = Upsert(
            engine,
            repeat,
            replace=[column.name for column in repeat.c if column.name not in of_repeat],
        )

    def repeated_in(self, scope: Scope, rows: Sequence[Item]) -> list[Item]:
        """Return the groups that computations, of ``rows``, ran to their ends."""
        ended = [(row["cluster"], row["id"]) for row in rows if row["stopped_at"] is not None]
        of_run = {key: list(_whole_groups(scope, *key)) for key in ended}
        keys = [key for key, groups in of_run.items() if groups]
        runs = some_runs(scope, keys, compared=False) if keys else []
        return [
            _row(scope.workspace, run, group, seconds)
            for run in runs
            for group, seconds in of_run[run.cluster, run.id]
        ]

    def write(self, workspace: str, groups: Sequence[Item]) -> None:
        """Store groups that :meth:`repeated_in` returned, and add up those that ran before."""
        if not groups:
            return
        names = writing_again(self._engine, partial(self._noted, workspace, groups))
        for first in range(0, len(names), _SUMMED_TOGETHER):
            some = names[first : first + _SUMMED_TOGETHER]
            writing_again(self._engine, partial(self._sum_up, workspace, some))

    def _noted(self, workspace: str, repeated: Sequence[Item], connection: Connection) -> list[str]:
        """Store the groups whose computations were not removed meanwhile; return their names."""
        key = (computation.c.cluster, computation.c.id)
        query = among(select_in(workspace, computation, *key), key, {*map(_run_of, repeated)})
        # Locked: what removes a computation removes its groups, too.
        locked = query.order_by(*key).with_for_update(of=computation)
        there = {(row[0], row[1]) for row in connection.execute(locked)}
        groups = [group for group in repeated if _run_of(group) in there]
        self._note.run(connection, _in_order(self._note, groups))
        return sorted({group["name"] for group in groups})

    def _sum_up(self, workspace: str, names: Sequence[str], connection: Connection) -> None:
        summed = {name: self._sum(connection, workspace, name) for name in names}
        self._store.run(connection, _in_order(self._store, [row for row in summed.values() if row]))
        once = [name for name, row in summed.items() if row is None]
        connection.execute(
            delete(repeat).where(repeat.c.workspace == workspace, repeat.c.name.in_(once))
        )

    @staticmethod
    def _sum(connection: Connection, workspace: str, name: str) -> Item | None:
        query = select_in(workspace, group_run, *_OF_RUN).where(group_run.c.name == name)
        newest = query.order_by(group_run.c.at.desc(), group_run.c.computation).limit(MOST_RUNS)
        # Locked: the removal of one of them then removes what they come to.
        newest = newest.with_for_update(read=True)
        runs = [GroupRun(**row) for row in connection.execute(newest).mappings()]
        since = runs[0].at - _MONTH if runs else 0.0
        summed = repeat_of([run for run in reversed(runs) if run.at >= since])
        if summed is None:
            return None
        users = msgspec.json.encode(summed.users).decode()
        return {"workspace": workspace, "name": name, **asdict(summed), "users": users}


def _run_of(group: Item) -> tuple[str, str]:
    return group["cluster"], group["computation"]


def _row(workspace: str, run: JobRun, group: Item, seconds: float) -> Item:
    """Return the row of a group that took so many thread-seconds in ``run``."""
    # What the run cost for each second of a thread, whether that was busy or idle.
    is_priced = run.cost is not None and run.thread_seconds
    return {
        "workspace": workspace,
        "name": group["name"],
        "cluster": run.cluster,
        "computation": run.id,
        "user": run.user,
        "at": run.started_at,
        "ended_at": run.started_at + run.duration,
        "prefix": group["prefix"],
        "tasks": group["tasks"],
        "seconds": seconds,
        # A sender may report less time for the run than for the group, or almost none.
        "cost": (run.cost or 0.0) * min(seconds / (run.thread_seconds or 1.0), 1.0)
        if is_priced
        else None,
        "currency": run.currency if is_priced else None,
        "output_bytes": group["output_bytes"],
        "began": group["started_at"],
    }


def _whole_groups(scope: Scope, cluster: str, id: str) -> Iterator[tuple[Item, float]]:
    """Yield the groups of a computation that ran all their tasks, with their thread-seconds."""
    query = scope.select(task_group, *_OF_GROUP).where(
        task_group.c.cluster == cluster,
        task_group.c.computation == id,
        task_group.c.tokenized.is_(True),
        task_group.c.completed >= task_group.c.tasks,
        task_group.c.started_at.is_not(None),
    )
    groups, _ = scope.first_items(query, MOST_GROUPS)
    took = [(group, sum(group["seconds"].values())) for group in groups if group["tasks"]]
    took.sort(key=lambda one: (-one[1], one[0]["name"]))
    yield from [one for one in took if one[1] >= LEAST_SECONDS][:MOST_NOTED]


def _in_order(upsert: Upsert, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in upsert.columns) for row in rows]
