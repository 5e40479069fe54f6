"""The scope of a reader and the selection of rows of a list: what every query function takes."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from flask import current_app, g, request
from sqlalchemy import (
    Connection,
    Dialect,
    Float,
    FromClause,
    Row,
    Select,
    TypeDecorator,
    cast,
    func,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.sql.elements import ColumnElement

from daskscope_service.db.readable import Item as Item
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster
from daskscope_service.db.sealing import Sealed, SealedJSON
from daskscope_service.db.unreadable import Unreadable
from daskscope_service.services import services

#: The most rows of a list that one request gets.
MOST_ROWS = 1000

#: The most clusters of one name that a list is about, if it is chosen by name.
MOST_OF_A_NAME = 100

#: After so many bytes of rows, as JSON, no more rows are read.
MOST_BYTES = 4 * 1024 * 1024
#: How many rows are read and measured together: one may have a megabyte. The number doubles, up to
#: the second one, while they have less than so many bytes.
_AT_ONCE, _MOST_AT_ONCE, _LIGHT = 8, 64, 256 * 1024
#: From this number of rows on, PostgreSQL sends them in parts, which takes more messages.
_MANY = 101
_weighed = msgspec.json.Encoder(enc_hook=str).encode

#: The encrypted columns that contain no code of users.
_NO_CODE = frozenset({"message"})
_LEFT_OUT = Unreadable("left out of this report")

Key = TypeVar("Key")
#: The position of a row in a list: its time, its id and, if ids are unique only within a cluster,
#: the cluster's id.
Position = tuple[float, str, str]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """One reader: a connection, the workspace that it may see, and when a cluster is silent."""

    connection: Connection
    workspace: str
    now: float
    silent_after: float
    without_code: bool = False

    def select(self, table: FromClause, *columns: Any) -> Select[Any]:
        """Return a query of ``columns`` (default: all) in this reader's workspace."""
        return select_in(self.workspace, table, *columns)

    def is_of(self, asked: str | None, column: ColumnElement[str]) -> ColumnElement[bool]:
        """Return the condition that ``column`` is the id of a cluster that a reader asks for.

        ``asked`` is an id or a name, as for :meth:`called`; None is any cluster.
        """
        if asked is None:
            return true()
        ids = self.called(asked)
        return column == ids[0] if len(ids) == 1 else column.in_(ids)

    def called(self, asked: str) -> tuple[str, ...]:
        """Return the ids of the clusters that have the id or the name ``asked``.

        For a name, these are the newest :data:`MOST_OF_A_NAME`. If there is no such cluster, return
        ``asked``: there may be spans or log records of it.
        """
        query = self.select(cluster, cluster.c.id)
        if self.connection.execute(query.where(cluster.c.id == asked)).first() is not None:
            return (asked,)
        newest = query.where(cluster.c.name == asked).order_by(cluster.c.started_at.desc())
        ids = self.connection.execute(newest.limit(MOST_OF_A_NAME)).scalars()
        return tuple(ids) or (asked,)

    def items(self, query: Select[Any]) -> list[Item]:
        """Return the rows of ``query`` as dictionaries, without the workspace and ``seq``.

        A value that cannot be decrypted is None. The row then has ``unreadable``, a dictionary that
        says why, by column. With ``without_code``, columns that may contain code are treated the
        same.
        """
        hidden = _sealed(query) - _NO_CODE if self.without_code else frozenset()
        rows = self.connection.execute(query)
        names = list(map(str, rows.keys()))  # SQLAlchemy's are a kind of str of its own
        # All at once: SQLAlchemy takes half as long again if rows are fetched one by one.
        return [_item(names, row, hidden) for row in rows.all()]

    def first_items(self, query: Select[Any], limit: int) -> tuple[list[Item], bool]:
        """Return the first ``limit`` rows of ``query``, and whether there are more.

        They are fewer if they take more than :data:`MOST_BYTES`: rows may be large, and a reader
        may ask for a thousand of them.
        """
        hidden = _sealed(query) - _NO_CODE if self.without_code else frozenset()
        query = query.limit(limit + 1)
        if limit >= _MANY:  # else PostgreSQL's driver would fetch all before the first is seen
            query = query.execution_options(stream_results=True, max_row_buffer=_MOST_AT_ONCE)
        rows = self.connection.execute(query)
        names = list(map(str, rows.keys()))
        items: list[Item] = []
        size, count = 0, _AT_ONCE
        while some := rows.fetchmany(count):
            items += [_item(names, row, hidden) for row in some]
            if len(some) < count or len(items) > limit:
                break
            of_these = sum(map(weight, items[-count:]))
            size, count = size + of_these, _next_count(count, of_these)
            if size > MOST_BYTES:
                more = rows.fetchone() is not None
                rows.close()
                return items, more
        return items[:limit], len(items) > limit


def read_in_parts(
    keys: Sequence[Key], read: Callable[[Sequence[Key]], list[Item]]
) -> Iterator[tuple[Sequence[Key], list[Item]]]:
    """Yield some of ``keys`` with the rows that ``read`` returns of them, until all were read.

    They are fewer at a time if the rows are large. A caller that keeps little of each row needs
    little memory, however large they are.
    """
    done, count = 0, _AT_ONCE
    while some := keys[done : done + count]:
        items = read(some)
        done, count = done + len(some), _next_count(count, sum(map(weight, items)))
        yield some, items


def rows_in_order(
    scope: Scope, query: Select[Any], id: str, places: Sequence[tuple[float, str]], limit: int
) -> Page[Item]:
    """Return the rows of ``query`` at ``places``, each a time or other number and an id, as a page.

    ``id`` is the name of the column of the ids. There is one place more than ``limit`` if the list
    goes on. The caller has sorted the places, so that the database need not sort whole rows in
    memory.
    """
    items: list[Item] = []
    size, read, count = 0, 0, _AT_ONCE
    wanted = places[:limit]
    while ids := [one for _, one in wanted[read : read + count]]:
        rows = scope.items(query.where(query.selected_columns[id].in_(ids)))
        by_id = {item[id]: item for item in rows}
        items += [by_id[one] for one in ids if one in by_id]  # others were just removed
        of_these = sum(map(weight, rows))
        size, read, count = size + of_these, read + len(ids), _next_count(count, of_these)
        if size > MOST_BYTES and read < len(places):
            return Page(items, (*wanted[read - 1], ""))
    return Page(items, (*wanted[-1], "") if len(places) > limit else None)


def _next_count(count: int, size: int) -> int:
    """Return how many rows to read next, after ``count`` rows that had ``size`` bytes."""
    return min(2 * count, _MOST_AT_ONCE) if size < _LIGHT else _AT_ONCE


def weight(item: Item) -> int:
    """Return the size of ``item`` as JSON, in bytes."""
    return len(_weighed(item))


def _sealed(query: Select[Any]) -> frozenset[str]:
    columns = query.selected_columns
    return frozenset(
        str(column.key) for column in columns if isinstance(column.type, (Sealed, SealedJSON))
    )


def _item(names: Sequence[str], row: Row[Any], hidden: frozenset[str]) -> Item:
    item = dict(zip(names, row, strict=True))
    item.pop("workspace", None)
    item.pop("seq", None)
    for key in hidden:
        if item[key] is not None:
            item[key] = _LEFT_OUT
    if Unreadable not in map(type, item.values()):
        return item
    unreadable = {key: str(why) for key, why in item.items() if isinstance(why, Unreadable)}
    return item | dict.fromkeys(unreadable) | {"unreadable": unreadable}


@contextmanager
def reading() -> Iterator[Scope]:
    """Open a read of the request's workspace; without users' code if the request says so."""
    settings = current_app.config["SETTINGS"]
    with services().engine.connect() as connection:
        yield Scope(
            connection,
            g.workspace,
            time.time(),
            settings.silent_after,
            g.get("without_code", False),
        )


#: Half of the unit to which answers round times, in seconds.
_ROUNDED_OFF = 0.5e-6


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a list to read, newest first. Times are seconds since the Unix epoch.

    ``after`` is the position of the last row that the reader has.
    """

    since: float | None = None
    until: float | None = None
    user: str | None = None
    cluster: str | None = None
    limit: int = 100
    after: Position | None = None

    @property
    def kept_since(self) -> float | None:
        """The lower bound for times as they are stored.

        Answers round times to microseconds. A row must be found by the time in its answer.
        """
        return None if self.since is None else self.since - _ROUNDED_OFF

    @property
    def kept_until(self) -> float | None:
        """The upper bound for times as they are stored."""
        return None if self.until is None else self.until - _ROUNDED_OFF


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list, and the position after which it goes on, or None at its end."""

    items: list[T]
    next: Position | None


def page(
    scope: Scope,
    query: Select[Any],
    selection: Selection,
    at: ColumnElement[Any],
    id: str,
    cluster: str | None = None,
) -> Page[Item]:
    """Return a page of ``query``, newest first by ``at``, then by the columns ``id``, ``cluster``.

    ``query`` must select them under the names of their columns. Together they identify each row, so
    that no row is missing between two pages, even if others arrive meanwhile.
    """
    columns = [at, *(query.selected_columns[name] for name in (id, cluster) if name is not None)]
    if selection.kept_since is not None:
        query = query.where(at >= selection.kept_since)
    if selection.kept_until is not None:
        query = query.where(at < selection.kept_until)
    if selection.after is not None:
        query = query.where(tuple_(*columns) < tuple_(*selection.after[: len(columns)]))
    query = query.order_by(*(column.desc() for column in columns))
    return first_page(scope, query, selection.limit, at.key or "", id, cluster)


def first_page(
    scope: Scope, query: Select[Any], limit: int, at: str, id: str, cluster: str | None = None
) -> Page[Item]:
    """Return the first rows of ``query``, ``limit`` at most, and where the list goes on.

    ``at``, ``id`` and ``cluster`` are the names of the columns by which ``query`` is sorted.
    """
    items, more = scope.first_items(query, limit)
    return Page(items, _position(items[-1], at, id, cluster) if more else None)


def cut(items: list[Item], limit: int, at: str, id: str) -> Page[Item]:
    """Return the first ``limit`` of ``items``, of which the caller has queried one more."""
    if len(items) <= limit:
        return Page(items, None)
    return Page(items[:limit], _position(items[limit - 1], at, id, None))


def _position(item: Item, at: str, id: str, cluster: str | None) -> Position:
    return item[at], item[id], "" if cluster is None else item[cluster]


class _Whole(TypeDecorator[int]):
    """A whole number that the database returns as a float."""

    impl = Float
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


def total(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return the sum of a column of whole numbers.

    It may exceed 64 bits, which both databases refuse. As a float it is exact up to 2**53, and
    beyond that in its first fifteen digits.
    """
    return type_coerce(func.sum(cast(column, Float)), _Whole())


def encode_cursor(position: Position) -> str:
    """Return ``position`` as text for an address. It is valid in the request's own list only."""
    content = msgspec.json.encode((request.endpoint, *position))
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def decode_cursor(text: str) -> Position:
    """Return the position in ``text``. Raises ValueError if it is none of the request's list."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        endpoint, at, id, cluster = msgspec.json.decode(content, type=tuple[str, float, str, str])
    except (ValueError, msgspec.DecodeError) as error:
        raise ValueError(f"not a cursor: {text!r}") from error
    if endpoint != request.endpoint or "\0" in id + cluster:
        raise ValueError(f"not a cursor of this list: {text!r}")
    return at, id, cluster
