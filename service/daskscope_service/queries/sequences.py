"""Finds what came one after another on a cluster: computations of one line of code, and workers."""

from __future__ import annotations

from itertools import groupby, pairwise
from statistics import median
from typing import Any

from daskscope.names import LOSS_CLOSED, LOSS_RETIRED, LOSS_TERMINATED
from daskscope_service.db import schema
from daskscope_service.db.last_entry import last_entry
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.findings.evidence import Loop, WorkerChurn
from daskscope_service.insight.wording import file_name

#: The most computations, and the most workers, that are read: the newest.
_MOST_COMPUTATIONS, _MOST_WORKERS = 300, 1_000
#: Seconds by which a computation may begin before the previous one is known to have ended.
_OVERLAP = 0.1


def loops(scope: Scope, cluster_id: str) -> list[Loop]:
    """Return the loops: consecutive computations of one user from the same line of code."""
    table = schema.computation
    columns = ("user", "started_at", "stopped_at", "ended_at", "worker_seconds")
    frame = last_entry(table.c.frames).label("frame")
    query = (
        scope.select(table, *(table.c[name] for name in columns), frame)
        .where(table.c.cluster == cluster_id)
        .order_by(table.c.started_at.desc())
    )
    newest, _ = scope.first_items(query, _MOST_COMPUTATIONS)
    rows = [row for row in reversed(newest) if _end(row) is not None]
    loops_of_lines = []
    for (line, _), some in groupby(rows, lambda row: (_line(row), row["user"])):
        if line is not None and (loop := _loop(line, [*some])) is not None:
            loops_of_lines.append(loop)
    return loops_of_lines


def _loop(line: str, rows: list[Item]) -> Loop | None:
    pauses = [then["started_at"] - _ended(before) for before, then in pairwise(rows)]
    # Computations that overlapped are no loop.
    if not pauses or min(pauses) < -_OVERLAP:
        return None
    took = sum(max(_ended(row) - row["started_at"], 0.0) for row in rows)
    threads = sum(sum(row["worker_seconds"].values()) for row in rows)
    idle = sum(row["worker_seconds"].get("idle", 0.0) for row in rows)
    seconds = _ended(rows[-1]) - rows[0]["started_at"]
    if took <= 0 or not threads:
        return None
    return Loop(
        line=line,
        times=len(rows),
        seconds=seconds,
        between=sum(max(pause, 0.0) for pause in pauses),
        pause=median(pauses),
        thread_seconds=threads / took * seconds,
        busy=threads - idle,
    )


def _line(row: Item) -> str | None:
    """Return the user's line of code that started a computation, as ``file:line``."""
    frame = row["frame"]
    return None if frame is None else f"{file_name(frame['file'])}:{frame['line']}"


def _end(row: Item) -> Any:
    return row["ended_at"] if row["ended_at"] is not None else row["stopped_at"]


def _ended(row: Item) -> float:
    return float(_end(row))


def worker_churn(scope: Scope, cluster_id: str) -> WorkerChurn:
    """Return counts and times of the workers that left on request before the last worker came."""
    table = schema.worker_loss
    query = (
        scope.select(table, table.c.at, table.c.lifetime)
        .where(table.c.cluster == cluster_id, table.c.expected.is_(True))
        .where(table.c.reason.in_((LOSS_CLOSED, LOSS_RETIRED, LOSS_TERMINATED)))
        .order_by(table.c.at.desc())
        .limit(_MOST_WORKERS)
    )
    rows = scope.connection.execute(query).all()
    last_came = max((at - lifetime for at, lifetime in rows), default=0.0)
    # Workers that left later left because the cluster or the work ended.
    left = [(at, lifetime) for at, lifetime in rows if at < last_came]
    if not left:
        return WorkerChurn(0, 0.0, 0.0)
    began = min(at - lifetime for at, lifetime in left)
    return WorkerChurn(len(left), median(lifetime for _, lifetime in left), last_came - began)
