"""The parts of a computation's row that a later heartbeat must not change."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, literal_column, not_, or_

from daskscope_service.db.statements import Columns

#: The columns about the end of a computation.
END = ("status", "stopped_at", "tasks", "erred", "retried", "cancelled")


def has_ended(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that a stored computation has ended, so that its end stays as it is.

    Older exporters report that it runs again when lost results are computed again. But an erred
    computation does go on if a failed task is retried: the number of retries shows this, unless
    none of its own tasks raised.
    """
    retried = or_(new["retried"] > old["retried"], old["erred"] == literal_column("0"))
    erred = and_(old["status"] == literal_column("'erred'"), not_(retried))
    for_good = [old["status"] == literal_column(f"'{one}'") for one in ("finished", "cancelled")]
    return or_(*for_good, erred)


def is_due(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that a computation runs, and that its findings are due anyway."""
    running = new["status"] == literal_column("'running'")
    return and_(running, old["judge_at"].is_not(None))


def runs(old: Columns, new: Columns) -> ColumnElement[bool]:
    """Return the condition that it runs. Its job needs what is known once it has ended.

    Its job became due when it began.
    """
    running: ColumnElement[bool] = new["status"] == literal_column("'running'")
    return running
