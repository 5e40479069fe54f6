"""Rows that were read from tables, as frozen values of a class with fields for columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from msgspec import Struct
from sqlalchemy import Column, Table


class Row(Struct, frozen=True, gc=False):
    """The base of values for rows: :func:`msgspec.structs.asdict` has their fields by name.

    With dataclasses, a list of a thousand rows took a fifth longer to answer.
    """

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return a row with its fields from ``values``, which may have more."""
        # By position: to match many names to fields takes msgspec longer than all else.
        return cls(*[values[name] for name in cls.__struct_fields__])

    def __getitem__(self, name: str, /) -> Any:
        return getattr(self, name)


def columns_in(table: Table, kind: type[Row]) -> list[Column[Any]]:
    """Return the columns of ``table`` that have fields of their names in ``kind``."""
    return [column for column in table.c if column.name in kind.__struct_fields__]
