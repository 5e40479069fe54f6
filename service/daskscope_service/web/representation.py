"""Represents rows as JSON: names as in ``daskscope.protocol``, times as ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from flask import url_for
from msgspec import structs

from daskscope.protocol import is_time
from daskscope_service.db.row_values import Row
from daskscope_service.db.scope import Item, Page, encode_cursor
from daskscope_service.settings import Settings
from daskscope_service.telemetry.store import Unavailable
from daskscope_service.web.problems import Problem

#: Seconds since the Unix epoch. Times from here on may round to the year 10000, which datetime and
#: ISO 8601 cannot write.
_YEAR_10000 = 253_402_300_799


def iso(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31T12:00:00.250000Z``."""
    text = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def represent(value: Any) -> Any:
    """Return ``value`` with the times in it (``at``, ``…_at``) as ISO 8601."""
    if isinstance(value, dict):
        return {
            name: iso(field)
            if is_time(name)
            and isinstance(field, (int, float))
            and 0 <= field < _YEAR_10000  # a field inside JSON may have such a name but be no time
            else represent(field)
            for name, field in value.items()
        }
    if isinstance(value, list):
        return [represent(part) for part in value]
    return value


def as_item(row: Item | Row) -> Item:
    """Return a row, an Item or a Row, as a dictionary; leave out ``unreadable`` if it is empty."""
    if not isinstance(row, Row):
        return row
    item = structs.asdict(row)
    if item.get("unreadable") == {}:
        del item["unreadable"]
    return item


def page_answer(page: Page[Any], url: Callable[[Any], str] | None = None) -> Item:
    """Return a page of a list as the API answers it, with times still as seconds.

    If ``url`` is given, each item gets the address of its page, which ``url`` returns.
    """
    items = [
        as_item(item) if url is None else as_item(item) | {"url": url(item)} for item in page.items
    ]
    return {"items": items, "next": None if page.next is None else encode_cursor(page.next)}


def page_url(settings: Settings, endpoint: str, **values: Any) -> str:
    """Return the full address of a page of this service."""
    return settings.url + url_for(f"pages.{endpoint}", **values)


def away(what: str, error: Unavailable) -> Problem:
    """Return the problem 503: InfluxDB, which stores ``what``, is unavailable because of ``error``.

    ``what`` is a plural, such as "log records".
    """
    return Problem(
        503,
        f"{what.capitalize()} are stored in InfluxDB, which is unavailable: {error}. "
        "Everything else works.",
        title=f"No {what}",
        headers={"Retry-After": "10"},
    )
