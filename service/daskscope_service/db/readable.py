"""Rows that were read from tables: dictionaries, or values of a class with fields for columns."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct
from sqlalchemy import Column, Table

Item = dict[str, Any]


class Readable(Protocol):
    """A row of either kind, read by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the value of one column."""


class Row(Struct, frozen=True):
    """The base of values for rows: :func:`msgspec.structs.asdict` has their fields by name.

    Of a thousand rows, dataclasses would take several times as long to make and to take apart.
    """

    def __getitem__(self, name: str, /) -> Any:
        return getattr(self, name)


def columns_in(table: Table, kind: type[Row]) -> list[Column[Any]]:
    """Return the columns of ``table`` that have fields of their names in ``kind``."""
    return [column for column in table.c if column.name in kind.__struct_fields__]
