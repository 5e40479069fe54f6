"""The part of a computation's row that a later heartbeat does not change."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, literal_column, not_, or_

from daskscope_service.db.statements import Columns

#: What a computation's row says of its end.
END = ("status", "stopped_at", "tasks", "erred", "retried", "cancelled")


def has_ended(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that a computation has ended by its row, and so does not end anew.

    Older exporters report that it runs again where lost results are computed again. But one that
    erred does go on where a failed task is retried: by the count of those, or, where none of its
    own tasks raised, unseen.
    """
    retried = or_(new["retried"] > old["retried"], old["erred"] == literal_column("0"))
    erred = and_(old["status"] == literal_column("'erred'"), not_(retried))
    for_good = [old["status"] == literal_column(f"'{one}'") for one in ("finished", "cancelled")]
    return or_(*for_good, erred)


def is_due(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that a computation runs, and that its findings will be made anyway."""
    running = new["status"] == literal_column("'running'")
    return and_(running, old["judge_at"].is_not(None))


def runs(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that it runs: what its job is to know of it is there once it has ended.

    When it began, its job was due already.
    """
    running: ColumnElement[bool] = new["status"] == literal_column("'running'")
    return running
