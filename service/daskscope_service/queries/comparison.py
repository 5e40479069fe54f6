"""Reads two runs and compares them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from daskscope_service.db.schema import code, computation, task_group
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.comparison import ComparedRun, compare
from daskscope_service.insight.jobs.usual import differ_by
from daskscope_service.insight.views import JobRun
from daskscope_service.queries.computations import MOST_GROUPS, headings_by_key
from daskscope_service.queries.job_runs import OF_RUN, newest_runs, some_runs
from daskscope_service.web.fields import Missing

_OF_GROUP = (
    *("prefix", "tasks", "completed", "erred", "retried"),
    *("seconds", "output_bytes", "longest"),
)


def compare_runs(scope: Scope, a: str, b: str) -> Item:
    """Return how the computation with id ``b`` differs from that with id ``a``. Raises Missing."""
    keys = [_key(scope, a), _key(scope, b)]
    rows = {(row.cluster, row.id): row for row in some_runs(scope, list(dict.fromkeys(keys)))}
    for key, id in zip(keys, (a, b), strict=True):
        if key not in rows:  # it was removed a moment ago
            raise Missing("computation", id)
    headings = headings_by_key(scope, keys)
    first, second = (rows[key] for key in keys)
    compared = compare(_run(scope, first), _run(scope, second), _usual(scope, first, second))
    a_and_b = [
        {field: row[field] for field in OF_RUN}
        | {"computation": row.id, "title": headings[key].title if key in headings else ""}
        for row, key in zip((first, second), keys, strict=True)
    ]
    return asdict(compared) | {
        "candidates": [asdict(one) | {"words": one.words} for one in compared.candidates],
        "a": a_and_b[0],
        "b": a_and_b[1],
        "same_job": first.job is not None and first.job == second.job,
    }


def _key(scope: Scope, id: str) -> tuple[str, str]:
    query = scope.select(computation, computation.c.cluster).where(computation.c.id == id)
    cluster = scope.connection.execute(query.limit(1)).scalar()
    if cluster is None:
        raise Missing("computation", id)
    return cluster, id


def _usual(scope: Scope, a: JobRun, b: JobRun) -> float | None:
    """Return by how many seconds equal runs of their job may differ; None if that is unknown."""
    if a.job is None or a.job != b.job:
        return None
    return differ_by(newest_runs(scope, a.job), a.id, b.id)


def _run(scope: Scope, row: JobRun) -> ComparedRun:
    query = scope.select(task_group, *(task_group.c[name] for name in _OF_GROUP)).where(
        task_group.c.cluster == row.cluster, task_group.c.computation == row.id
    )
    groups, _ = scope.first_items(query.order_by(task_group.c.name), MOST_GROUPS)
    frames: list[Any] = row.frames or []
    hashes = {frame["code"] for frame in frames} - {None}
    texts = {
        one["hash"]: one["text"]
        for one in scope.items(scope.select(code).where(code.c.hash.in_(hashes)))
    }
    return ComparedRun(row, groups, [(frame["file"], texts.get(frame["code"])) for frame in frames])
