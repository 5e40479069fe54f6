"""Who reads, and which rows of a list: what every read function takes."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from flask import current_app, g, request
from sqlalchemy import (
    BigInteger,
    Connection,
    FromClause,
    Row,
    Select,
    cast,
    func,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from daskscope_service.db.engine import current_engine
from daskscope_service.db.rows import select_in
from daskscope_service.db.sealing import Sealed, SealedJSON, Unreadable

#: Rows of a list that one request gets at most.
MOST_ROWS = 1000

#: Of the columns that are encrypted, those without users' code in them.
_NO_CODE = frozenset({"message"})
_LEFT_OUT = Unreadable("left out of this report")

Item = dict[str, Any]
#: Of a row in a list: its time, its id, and where ids are a cluster's own, that cluster's id.
Position = tuple[float, str, str]


@dataclass(frozen=True, slots=True)
class Scope:
    """One reader: a connection, the workspace that it may see, and what tells silence."""

    connection: Connection
    workspace: str
    now: float
    silent_after: float
    without_code: bool = False

    def select(self, table: FromClause, *columns: Any) -> Select[Any]:
        """Return a query of ``columns`` (default: all) in this reader's workspace."""
        return select_in(self.workspace, table, *columns)

    def items(self, query: Select[Any]) -> list[Item]:
        """Return the rows of ``query`` as dictionaries, without the workspace and ``seq``.

        What cannot be decrypted is None, and then the row has ``unreadable``: by column, what it
        is in place of readable, in words. So it is with what may be code, ``without_code``.
        """
        hidden = _sealed(query) - _NO_CODE if self.without_code else frozenset()
        rows = self.connection.execute(query)
        names = list(map(str, rows.keys()))  # SQLAlchemy's are a kind of str of its own
        # All at once: SQLAlchemy takes half as long again for rows that are fetched one by one.
        return [_item(names, row, hidden) for row in rows.all()]


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
    """Open a read for the workspace of the request, without users' code where it says so."""
    settings = current_app.config["SETTINGS"]
    with current_engine().connect() as connection:
        yield Scope(
            connection,
            g.workspace,
            time.time(),
            settings.silent_after,
            g.get("without_code", False),
        )


#: Half of what a time in an answer is rounded to, in seconds.
_ROUNDED_OFF = 0.5e-6


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a list, newest first. Times are seconds since the Unix epoch.

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
        """The bound that times are held against as they are kept.

        Answers round them to microseconds: what was told with a time is found since that time.
        """
        return None if self.since is None else self.since - _ROUNDED_OFF

    @property
    def kept_until(self) -> float | None:
        """The other bound, likewise."""
        return None if self.until is None else self.until - _ROUNDED_OFF


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a list, and the position after which it goes on, or None at its end."""

    items: list[Item]
    next: Position | None


def page(
    scope: Scope,
    query: Select[Any],
    selection: Selection,
    at: ColumnElement[Any],
    id: str,
    cluster: str | None = None,
) -> Page:
    """Return a page of ``query``, newest first by ``at``, then by the columns ``id``, ``cluster``.

    ``query`` must select them under the names of their columns. Together they tell any two rows
    apart, so that no row is missing between two pages, whatever comes in meanwhile.
    """
    columns = [at, *(query.selected_columns[name] for name in (id, cluster) if name is not None)]
    if selection.kept_since is not None:
        query = query.where(at >= selection.kept_since)
    if selection.kept_until is not None:
        query = query.where(at < selection.kept_until)
    if selection.after is not None:
        query = query.where(tuple_(*columns) < tuple_(*selection.after[: len(columns)]))
    query = query.order_by(*(column.desc() for column in columns)).limit(selection.limit + 1)
    return cut(scope.items(query), selection.limit, at.key or "", id, cluster)


def cut(items: list[Item], limit: int, at: str, id: str, cluster: str | None = None) -> Page:
    """Return the first ``limit`` of ``items``, of which one more was asked for."""
    if len(items) <= limit:
        return Page(items, None)
    last = items[limit - 1]
    return Page(items[:limit], (last[at], last[id], "" if cluster is None else last[cluster]))


def total(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return the sum of a column of whole numbers: PostgreSQL would make it a decimal."""
    return cast(func.sum(column), BigInteger)


def encode_cursor(position: Position) -> str:
    """Return ``position`` as text for an address: of the request's own list, and no other."""
    content = msgspec.json.encode((request.endpoint, *position))
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def decode_cursor(text: str) -> Position:
    """Return the position in ``text``. Raises ValueError if it is none in the request's list."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        endpoint, at, id, cluster = msgspec.json.decode(content, type=tuple[str, float, str, str])
    except (ValueError, msgspec.DecodeError) as error:
        raise ValueError(f"not a cursor: {text!r}") from error
    if endpoint != request.endpoint or "\0" in id + cluster:
        raise ValueError(f"not a cursor of this list: {text!r}")
    return at, id, cluster
