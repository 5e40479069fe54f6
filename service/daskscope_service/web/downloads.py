"""Files that pages offer for download: their names, and tables as CSV for spreadsheets.

Times are ISO 8601 in UTC, a cell for None is empty, and lists and dictionaries are JSON. Names of
columns contain the unit.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flask import Response, g, request

from daskscope_service.db.row_values import Row
from daskscope_service.db.scope import (
    MOST_ROWS,
    Item,
    Page,
    Position,
    Scope,
    Selection,
    encode_cursor,
    reading,
)
from daskscope_service.db.wire import fields_of
from daskscope_service.web.representation import as_item, represent
from daskscope_service.web.template_filters import address

#: How many reads of MOST_ROWS rows a file takes at most, so that nobody waits for long.
MOST_READS = 10

#: After this many bytes, a file reads no more rows: one row may have half a megabyte.
MOST_BYTES_OF_FILE = 16 * 1024 * 1024

#: After this many characters, the lines of CSV so far are encoded.
_PART = 256 * 1024

#: The columns of a table by name: each is a field of its rows, or a function that makes the cell.
CsvColumns = Mapping[str, str | Callable[[Item], object]]

#: A spreadsheet takes a cell that begins with one of these for a formula. East Asian programs
#: accept the full-width signs, too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

#: In a text, where a formula may begin for a program that separates cells by semicolons or tabs,
#: or to which a line end in quotes ends a row.
_CELL_BEGINS = re.compile(r'([;\t\r\n])(?="*[' + re.escape("".join(_FORMULA)) + "])")

#: The most characters of an address in the header ``Link``: nginx accepts 4 KiB of an answer's
#: headers, and answers 502 otherwise.
_LONGEST_NEXT = 2_000

#: The most characters of one part of a file's name; a cluster's id is not longer.
_LONGEST = 80


def make_columns(*parts: str | CsvColumns, of: type | None = None, without: str = "") -> CsvColumns:
    """Return the columns that ``parts`` name: ``COLUMN=FIELD``, or ``FIELD`` alone.

    ``of`` is a row type of the protocol. Its fields that are neither in ``parts`` nor ``without``
    are added at the end, so that a new field of the protocol needs no change here.
    """
    columns: dict[str, str | Callable[[Item], object]] = {}
    for part in parts:
        if isinstance(part, str):
            pairs = [word.partition("=") for word in part.split()]
            part = {name: field or name for name, _, field in pairs}
        columns |= part
    known = {*columns.values(), *without.split()}
    new = [name for name in fields_of(of) if name not in known] if of else []
    return columns | dict(zip(new, new, strict=True))


def csv_answer(columns: Sequence[str], rows: Iterable[Sequence[object]], *parts: str) -> Response:
    """Return the rows as a CSV file named ``parts[0]-workspace-…``, one line per row.

    Text that a spreadsheet would take for a formula begins with an apostrophe, also the part of a
    text that some spreadsheet would take for another cell.
    """
    text = _Text()
    text.add([columns])
    text.add([_cell(value) for value in row] for row in rows)
    return _as_file(text, *parts)


def csv_table(columns: CsvColumns, items: Iterable[Item | Row], *parts: str) -> Response:
    """Return ``items`` as a CSV file with a name made of ``parts``."""
    return csv_answer(tuple(columns), (_row(columns, item) for item in items), *parts)


def csv_list(
    columns: CsvColumns,
    read: Callable[[Scope, Selection], Page[Any]],
    which: Selection,
    *parts: str,
) -> Response:
    """Return a list as a CSV file: all of it, or its first rows.

    The file holds what :data:`MOST_READS` calls of ``read`` return, about
    :data:`MOST_BYTES_OF_FILE`, and no more rows than the parameter ``limit`` allows. If there are
    more rows, the file's name ends with ``first-COUNT``, and the header ``Link`` has the address at
    which the list continues, unless that is too long for proxies.
    """
    text, count = _Text(), 0
    text.add([tuple(columns)])
    after: Position | None = which.after
    limited = "limit" in request.args
    with reading() as scope:
        for _ in range(1 if limited else MOST_READS):
            limit = which.limit if limited else MOST_ROWS
            page = read(scope, replace(which, after=after, limit=limit))
            text.add([_cell(value) for value in _row(columns, item)] for item in page.items)
            count += len(page.items)
            after = page.next
            if after is None or text.size > MOST_BYTES_OF_FILE:
                break
    parts = (*parts, which.cluster or "")
    if after is None:
        return _as_file(text, *parts)
    response = _as_file(text, *parts, f"first-{count}")
    lead_on(response, after)
    return response


def lead_on(response: Response, after: Position) -> None:
    """Lead to what comes ``after`` by a header of ``response``, unless the address is too long."""
    following = address(cursor=encode_cursor(after))
    if len(following) <= _LONGEST_NEXT:
        response.headers["Link"] = f'<{following}>; rel="next"'


class _Text:
    """Lines of CSV, encoded in parts while they are added. ``size`` is the number of bytes so far.

    A single str would need four times as much memory as soon as one character is not in the basic
    multilingual plane, and no other thread could run while Python copies it.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        """Add a line for each of ``rows``."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        for row in rows:
            writer.writerow(row)
            if text.tell() > _PART:
                self._take(text)
        self._take(text)

    def _take(self, text: io.StringIO) -> None:
        self._parts.append(text.getvalue().encode())
        self.size += len(self._parts[-1])
        text.seek(0)
        text.truncate()

    def whole(self) -> bytes:
        """Return all lines."""
        return b"".join(self._parts)


def _as_file(text: _Text, name: str, *more: str) -> Response:
    response = Response(text.whole(), mimetype="text/csv")
    return attach(response, name, g.workspace, *more, ending="csv")


def _row(columns: CsvColumns, row: Item | Row) -> list[object]:
    item = as_item(row)
    unreadable: dict[str, str] = item.get("unreadable", {})
    represented = represent(item)
    cells: list[object] = []
    for field in columns.values():
        if not isinstance(field, str):
            cells.append(field(represented))
        elif field in unreadable:
            cells.append(f"[cannot be read: it is {unreadable[field]}]")
        else:
            cells.append(represented.get(field))
    return cells


def _cell(value: object) -> object:
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False) if value else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        value = _CELL_BEGINS.sub(r"\1'", value)
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value


def attach(response: Response, *parts: str, ending: str) -> Response:
    """Make browsers save ``response`` as the file ``part-part.ending``; return it."""
    plain = (re.sub("[^A-Za-z0-9._]+", "-", part)[:_LONGEST].strip("-.") for part in parts)
    name = "-".join(part for part in plain if part)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.{ending}"'
    return response
