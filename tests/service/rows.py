"""How many rows a workspace has of what clusters send."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import Engine, Select, String, bindparam, func, select, true

from daskscope_service.db import points, schema
from daskscope_service.db.rows import select_in

#: Where heartbeats and OTLP go; notices, findings and sums are written by the service itself too.
TABLES = [
    table
    for table in schema.metadata.sorted_tables
    if "workspace" in table.columns
    and table.name not in ("token", "session", "sign_in_link", "notice", "finding", "usage_sum")
]


#: Points of all series, wherever they rest.
POINTS = points.where(lambda _: true()).subquery("every_point")


def _counted() -> Select[Any]:
    """Return a query for the rows of the workspace that is its parameter."""
    workspace: Any = bindparam("workspace", type_=String)
    counts = [select_in(workspace, table, func.count()).scalar_subquery() for table in TABLES]
    points = (
        select(func.count())
        .select_from(POINTS)
        .join(schema.series, schema.series.c.id == POINTS.c.series)
        .where(schema.series.c.workspace == workspace)
    )
    return select(reduce(add, counts) + points.scalar_subquery())


_COUNTED = _counted()


def count_rows(engine: Engine, workspace: str) -> int:
    """Return how many rows ``workspace`` has."""
    with engine.connect() as connection:
        return int(connection.execute(_COUNTED, {"workspace": workspace}).scalar_one())
