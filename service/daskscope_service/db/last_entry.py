"""The last entry of a JSON array, taken out by the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class last_entry(FunctionElement[Any]):  # noqa: N801, as SQLAlchemy names what is in a query
    """The last entry of a column's array, None if there is none. The others are never sent."""

    type = JSON()
    inherit_cache = True

    def __init__(self, column: Column[Any]) -> None:
        super().__init__(column)


@compiles(last_entry, "sqlite")
def _of_sqlite(element: last_entry, compiler: Any, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)}, '$[#-1]')"


@compiles(last_entry, "postgresql")
def _of_postgresql(element: last_entry, compiler: Any, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} -> -1)"
