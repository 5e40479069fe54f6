"""The one place that filters by workspace: no query of user data goes around it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import FromClause, Select, exists, select

from daskscope_service.db.schema import workspace as workspaces


def select_in(workspace: Any, table: FromClause, *columns: Any) -> Select[Any]:
    """Return a SELECT of ``columns`` (all, if none is named) of the rows of one workspace.

    ``workspace`` is its id, or a bind parameter for it in a statement that is built once. Add
    conditions, order and limit to it. A table joined to it needs its own condition on
    ``workspace``, or a key that contains it.
    """
    statement = select(*columns) if columns else select(table)
    return statement.select_from(table).where(table.c.workspace == workspace)


def only_in(workspace: str, table: FromClause, ids: Collection[str]) -> Select[Any]:
    """Return a SELECT of those of ``ids`` that rows of one workspace have, and no other's rows.

    It reveals nothing else about other workspaces.
    """
    other = table.alias()
    elsewhere = exists().where(
        workspaces.c.id != workspace,
        other.c.workspace == workspaces.c.id,  # so each workspace needs one lookup of a key
        other.c.id == table.c.id,
    )
    return select_in(workspace, table, table.c.id).where(table.c.id.in_(ids), ~elsewhere)
