"""Columns and rows of what heartbeats bring, as ``daskscope.protocol`` declares it.

Each field of a row of the protocol is a column, whose name and type follow from the field's. So a
new field needs no line in the tables, nor where rows are written: only a revision that adds it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, String, Table, Text

from daskscope.protocol import MAX_TEXT, Encrypted, Key, Length
from daskscope_service.db.sealing import Sealed, SealedJSON

#: What one row of the protocol's is made to, in the order of the table's columns.
Row = tuple[Any, ...]

_PLAIN: dict[Any, Any] = {str: String, int: BigInteger, float: Float, bool: Boolean}

_encode = msgspec.json.Encoder().encode


def to_json(value: Any) -> str:
    """Return ``value`` as JSON text."""
    return _encode(value).decode()


@cache
def fields_of(kind: type) -> Mapping[str, Any]:
    """Return the fields of a class of the protocol: their types by name, with their notes."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def notes_in(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type that ``kind`` annotates, and its notes: bounds and the like."""
    if typing.get_origin(kind) is not Annotated:
        return kind, ()
    inner, *notes = typing.get_args(kind)
    return inner, tuple(notes)


def columns_of(kind: type, owner: str = "", **instead: Column[Any] | None) -> Iterator[Column[Any]]:
    """Yield a column for each field of ``kind``, a class of the protocol.

    What is no text, number or truth is JSON, in which null says None. ``owner`` is the field of a
    heartbeat that holds ``kind``, for a row that is made of the heartbeat. Fields that ``instead``
    names have that column, or none.
    """
    for name, hint in fields_of(kind).items():
        column = instead[name] if name in instead else _column(name, hint)
        if column is not None:
            column.info["field"] = f"{owner}.{name}" if owner else name
            yield column


def _column(name: str, hint: Any) -> Column[Any]:
    inner, notes = notes_in(hint)
    optional = typing.get_origin(inner) in (types.UnionType, typing.Union)
    if optional:
        [inner] = (one for one in typing.get_args(inner) if one is not type(None))
        inner, more = notes_in(inner)
        notes += more
    encrypted = Encrypted() in notes
    plain = _PLAIN.get(str if typing.get_origin(inner) is typing.Literal else inner)
    if plain is None:
        return Column(name, SealedJSON if encrypted else JSON, nullable=False)
    if plain is String and Length(MAX_TEXT) in notes:
        plain = Sealed if encrypted else Text
    key = Key() in notes
    return Column(name, plain, primary_key=key, nullable=optional and not key)


class RowMaker:
    """Makes rows of a table whose columns, some of the first and the last aside, are fields.

    ``convert`` are functions by column, for what is not stored as it was sent.
    """

    def __init__(self, table: Table, **convert: Callable[[Any], Any]) -> None:
        columns = list(table.columns)
        of_fields = [index for index, column in enumerate(columns) if "field" in column.info]
        first, last = of_fields[0], of_fields[-1] + 1
        self._before = [column.name for column in columns[:first]]
        self._after = [column.name for column in columns[last:]]
        self._values = attrgetter(*(column.info["field"] for column in columns[first:last]))
        self._conversions = [
            (index, conversion)
            for index, column in enumerate(columns[first:last])
            if (conversion := convert.get(column.name, _conversion(column))) is not None
        ]

    def rows(self, sent: Iterable[Any], given: Mapping[str, Any]) -> list[Row]:
        """Return the rows of what was ``sent``. ``given`` are the columns that are no fields."""
        before = [given[name] for name in self._before]
        after = [given[name] for name in self._after]
        made = []
        for one in sent:
            values = list(self._values(one))
            for index, conversion in self._conversions:
                values[index] = conversion(values[index])
            made.append((*before, *values, *after))
        return made


def _conversion(column: Column[Any]) -> Callable[[Any], Any] | None:
    if isinstance(column.type, JSON) and column.type.none_as_null:
        return lambda value: None if value is None else to_json(value)
    return to_json if isinstance(column.type, JSON | SealedJSON) else None
