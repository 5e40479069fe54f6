"""Reads what is known of computations, to find their jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from daskscope_service.db.schema import cluster, computation, task_group
from daskscope_service.db.scope import Item, Scope
from daskscope_service.insight.jobs.identity import Call, Traits, needs_groups
from daskscope_service.queries.computations import MOST_GROUPS
from daskscope_service.queries.statements import statements_at

#: The most calls, the innermost, by which a computation's job is found.
MOST_CALLS = 20
#: The columns of a computation that are read to find its job.
OF_TRAITS = tuple(
    computation.c[name]
    for name in (
        *("cluster", "id", "user", "status", "started_at", "stopped_at", "frames", "spans"),
        *("annotations", "job"),
    )
)


@dataclass(frozen=True, slots=True)
class Known:
    """A computation with its traits. ``waits_for_code``: some of its code has not arrived."""

    row: Item
    traits: Traits
    waits_for_code: bool


def traits_of(scope: Scope, rows: Sequence[Item]) -> Iterator[Known]:
    """Yield the computations of ``rows`` with their traits."""
    ids = sorted({row["cluster"] for row in rows})
    columns = (cluster.c.id, cluster.c.tags, cluster.c.deployment)
    query = scope.select(cluster, *columns).where(cluster.c.id.in_(ids))
    clusters = {row["id"]: row for row in scope.items(query)}
    statements = statements_at(scope, [frame for row in rows for frame in row["frames"]])
    for row in rows:
        calls = [
            Call(frame["file"], statements.get((frame["code"], frame["line"])))
            for frame in row["frames"]
        ]
        traits = Traits(
            user=row["user"],
            spans=row["spans"],
            annotations=row["annotations"],
            tags=clusters.get(row["cluster"], {}).get("tags"),
            deployment=clusters.get(row["cluster"], {}).get("deployment"),
            calls=calls,
        )
        waits = any(
            frame["code"] is not None and call.statement is None
            for frame, call in zip(row["frames"], calls, strict=True)
        )
        yield _with_shape(scope, Known(row, traits, waits))


def _with_shape(scope: Scope, one: Known) -> Known:
    """Add the task groups if the computation has ended and its job depends on them."""
    if not one.row["stopped_at"] or not needs_groups(one.traits):
        return one
    return with_groups(scope, one)


def with_groups(scope: Scope, one: Known) -> Known:
    """Return the computation with the task groups that are stored, if there are any."""
    if one.traits.groups is not None:
        return one
    columns = [task_group.c[name] for name in ("name", "prefix", "dependencies")]
    query = scope.select(task_group, *columns).where(
        task_group.c.cluster == one.row["cluster"], task_group.c.computation == one.row["id"]
    )
    groups, _ = scope.first_items(query.order_by(task_group.c.name), MOST_GROUPS)
    if not groups:
        return one
    traits = replace(
        one.traits,
        groups={group["name"]: group["prefix"] for group in groups},
        edges=[(group["name"], other) for group in groups for other in group["dependencies"]],
    )
    return replace(one, traits=traits)
