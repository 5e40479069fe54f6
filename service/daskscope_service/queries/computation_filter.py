"""Finds the computations that a reader asks for, in the requested order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    TextClause,
    and_,
    case,
    func,
    not_,
    or_,
    type_coerce,
)

from daskscope_service.db.schema import NOT_FINISHED, cluster, computation
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.queries.cluster_filter import is_silent

Status = Literal["running", "lost", "erred", "cancelled", "finished"]
#: All statuses, in the order in which a list sorted by status has them.
STATUSES: tuple[Status, ...] = get_args(Status)

Sort = Literal["started", "status"]
SORTS: tuple[Sort, ...] = get_args(Sort)


@dataclass(frozen=True, slots=True)
class ComputationFilter:
    """Which computations to list, in addition to a :class:`Selection`.

    ``status`` is that of the verdict: "lost" ones ran when their cluster went away. ``finding`` is
    the rule of a finding that they have. ``sort`` is one of :data:`SORTS`.
    """

    status: Status | None = None
    finding: str | None = None
    sort: Sort = "started"


#: All of them, the newest first.
ALL = ComputationFilter()


def page_of(
    scope: Scope,
    query: Select[Any],
    selection: Selection,
    which: ComputationFilter,
    at: ColumnElement[Any],
) -> Page[Item]:
    """Return a page of ``query``, of computations and their clusters, as ``which`` says.

    Sorted by start, the newest ``at`` comes first. Sorted by status, the page has the order of
    :data:`STATUSES`, with the newest first in each.
    """

    def of(status: Status | None, some: Selection) -> Page[Item]:
        wanted = query if status is None else query.where(*_has(status, scope))
        return page(scope, wanted, some, at, "id", "cluster")

    if which.sort == "status" and which.status is None:
        return _one_after_another(of, selection)
    return of(which.status, selection)


def _one_after_another(
    of: Callable[[Status | None, Selection], Page[Item]], selection: Selection
) -> Page[Item]:
    """Return a page of the lists of all statuses, one after another.

    In its positions, the status precedes the id.
    """
    left = list(STATUSES)
    after = None
    if selection.after is not None:
        at, named, its_cluster = selection.after
        status, _, id = named.partition(" ")
        if status in left:
            left = left[left.index(status) :]
            after = (at, id, its_cluster)
    items: list[Item] = []
    last = None
    while left:
        status, rest = left[0], selection.limit - len(items)
        listed = of(status, replace(selection, limit=max(rest, 1), after=after))
        if not rest:
            if not listed.items:
                left, after = left[1:], None
                continue
            return Page(items, last)
        items += listed.items
        if listed.items:
            end = listed.items[-1]
            last = end["started_at"], f"{status} {end['id']}", end["cluster"]
        if listed.next is not None:
            return Page(items, last)
        left, after = left[1:], None
    return Page(items, None)


def _has(status: Status, scope: Scope) -> list[ColumnElement[bool] | TextClause]:
    """Return the conditions for a status, as ``insight.verdict.computation_status`` gives it."""
    own = computation.c.status
    if status in ("erred", "cancelled"):
        return [own == status, NOT_FINISHED]
    gone = or_(cluster.c.stopped_at.is_not(None), is_silent(scope))
    if status == "running":
        return [own == "running", NOT_FINISHED, not_(gone)]
    if status == "lost":
        return [own == "running", NOT_FINISHED, gone, not_(_all_done())]
    # Most have finished: an index by status would be slower than reading in the order of start.
    unindexed = type_coerce(own.concat(""), String)
    return [or_(unindexed == "finished", and_(unindexed == "running", gone, _all_done()))]


def _all_done() -> ColumnElement[bool]:
    """Return the condition that all tasks of a running computation are done.

    It is ``protocol.tasks_done`` in SQL.
    """

    def count(state: str) -> ColumnElement[float]:
        return func.coalesce(computation.c.states[state].as_float(), 0.0)

    tasks, completed = computation.c.tasks, computation.c.completed
    erred = computation.c.erred - count("erred")
    left = count("released") + count("forgotten") - computation.c.cancelled
    left = left - case((erred > 0, erred), else_=0.0)
    in_memory = count("memory")
    return and_(
        tasks > 0,
        or_(in_memory >= tasks, and_(completed >= tasks, in_memory + left >= tasks)),
    )
