"""The one place where the workspace filter is put on: no query of user data goes around it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import FromClause, Select, select


def select_in(workspace: Any, table: FromClause, *columns: Any) -> Select[Any]:
    """Return a SELECT of ``columns`` (all, if none is named) of the rows of one workspace.

    ``workspace`` is its id, or a bind parameter for it in a statement that is made once.
    Add conditions, order and limit to it. A table joined to it needs its own condition on
    ``workspace``, or a key that holds it.
    """
    statement = select(*columns) if columns else select(table)
    return statement.select_from(table).where(table.c.workspace == workspace)
