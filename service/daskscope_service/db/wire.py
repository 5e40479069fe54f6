"""Columns and rows of data that heartbeats carry, as ``daskscope.protocol`` declares it.

Each field of a row of the protocol is a column, whose name and type follow from the field's. So a
new field needs no line in the tables, nor where rows are written: only a revision that adds it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, String, Table, Text

from daskscope.protocol import MAX_TEXT, Encrypted, Length, PartOfKey
from daskscope_service.db.sealing import Sealed, SealedJSON

#: A row of the protocol, in the order of the table's columns.
Row = tuple[Any, ...]

_PLAIN: dict[Any, Any] = {str: String, int: BigInteger, float: Float, bool: Boolean}

_encode = msgspec.json.Encoder().encode


def to_json(value: Any) -> str:
    """Return ``value`` as JSON text."""
    return _encode(value).decode()


@cache
def fields_of(kind: type) -> Mapping[str, Any]:
    """Return the types of the fields of a class of the protocol, by name, with annotations."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def notes_in(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type that ``kind`` annotates, and its annotations: bounds and the like."""
    if typing.get_origin(kind) is not Annotated:
        return kind, ()
    inner, *notes = typing.get_args(kind)
    return inner, tuple(notes)


def columns_of(kind: type, owner: str = "", **instead: Column[Any] | None) -> Iterator[Column[Any]]:
    """Yield a column for each field of ``kind``, a class of the protocol.

    A type other than text, number or bool is stored as JSON, in which null means None. ``owner`` is
    the field of a heartbeat that holds ``kind``, if rows are made of the whole heartbeat.
    ``instead`` replaces the column of a field, or leaves it out if None.
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
    key = PartOfKey() in notes
    return Column(name, plain, primary_key=key, nullable=optional and not key)


class RowMaker:
    """Makes rows of a table: columns of fields from what was sent, and others from given values.

    ``convert``: functions by column, for values that are not stored as they were sent.
    """

    def __init__(self, table: Table, **convert: Callable[[Any], Any]) -> None:
        self._given = [column.name for column in table.columns if "field" not in column.info]
        names: dict[str, Callable[[Any], Any]] = {}
        values = []
        for column in table.columns:
            value = f"row.{column.info['field']}" if "field" in column.info else column.name
            if conversion := convert.get(column.name, _conversion(column)):
                names[f"convert_{column.name}"] = conversion
                value = f"convert_{column.name}({value})"
            values.append(value)
        # Rows are made for each heartbeat, and a loop over the columns takes twice as long. As in
        # dataclasses, the function is compiled from text, which contains only names of fields.
        rows = f"[({', '.join(values)}) for row in sent]"
        self._rows: Callable[..., list[Row]] = eval(  # noqa: S307
            f"lambda sent, {', '.join(self._given)}: {rows}", names
        )

    def rows(self, sent: Iterable[Any], given: Mapping[str, Any]) -> list[Row]:
        """Return the rows of ``sent``. ``given``: values of the columns that are no fields."""
        return self._rows(sent, *[given[name] for name in self._given])


def _conversion(column: Column[Any]) -> Callable[[Any], Any] | None:
    if isinstance(column.type, JSON) and column.type.none_as_null:
        return lambda value: None if value is None else to_json(value)
    return to_json if isinstance(column.type, JSON | SealedJSON) else None
