"""Work that ran more than once on the same inputs: a list of it, and what a computation repeats."""

from __future__ import annotations

from sqlalchemy import and_

from daskscope_service.db.schema import group_run, repeat
from daskscope_service.db.scope import Page, Scope, Selection
from daskscope_service.insight.jobs.repeats import joined
from daskscope_service.insight.views import RepeatView

#: How many groups, those with the most repeated thread time, a list is made of.
_MOST_GROUPS = 1_000

_COLUMNS = [column for column in repeat.c if column.name != "workspace"]


def list_repeats(scope: Scope, which: Selection) -> Page[RepeatView]:
    """Return the work that ran again in the time of ``which``, the most thread time first.

    Counted are the runs of the 30 days before the newest.
    """
    query = scope.select(repeat, *_COLUMNS)
    if which.kept_since is not None:
        query = query.where(repeat.c.last_at >= which.kept_since)
    query = query.order_by(repeat.c.seconds_again.desc(), repeat.c.name).limit(_MOST_GROUPS)
    return Page(joined(scope.items(query), scope.now, which.limit), None)


def repeated_in(scope: Scope, cluster: str, computation: str) -> RepeatView | None:
    """Return the work of a computation that ran again and took the most; None without any.

    Only what counts this computation, too: see ``insight.jobs.repeats.repeat_of``.
    """
    newest = group_run.alias("newest")
    query = (
        scope.select(repeat, *_COLUMNS)
        .join(
            group_run,
            and_(group_run.c.workspace == repeat.c.workspace, group_run.c.name == repeat.c.name),
        )
        .join(
            newest,
            and_(
                newest.c.workspace == repeat.c.workspace,
                newest.c.cluster == repeat.c.last_cluster,
                newest.c.computation == repeat.c.last_computation,
                newest.c.name == repeat.c.name,
            ),
        )
        .where(
            group_run.c.cluster == cluster,
            group_run.c.computation == computation,
            group_run.c.at >= repeat.c.first_at,
            group_run.c.tasks == newest.c.tasks,
        )
    )
    groups = joined(scope.items(query), scope.now)
    return groups[0] if groups else None
