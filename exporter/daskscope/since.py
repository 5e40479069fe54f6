"""Reads how far back a query goes: ``"7 days"``, a timedelta, a date or a datetime."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from dask.utils import parse_timedelta

from daskscope.errors import ConfigurationError

#: How far back: "7 days", a timedelta, a datetime or a date (also as text), or None for all stored
#: data. A time without a zone is local, and a date means its midnight. Types of pandas and NumPy
#: are accepted.
Since = str | timedelta | datetime | date | None


def moment_of(since: Any) -> datetime | None:
    """Return a timezone-aware datetime, or None for all stored data."""
    if since is None:
        return None
    value = _read(since) if isinstance(since, str) else _plain(since)
    if isinstance(value, timedelta) and value >= timedelta(0):
        try:
            return datetime.now(UTC) - value
        except OverflowError:  # before the first datetime
            return None
    if not isinstance(value, datetime):
        raise ConfigurationError(
            f'since is {since!r}; it must be a duration such as "7 days", a timedelta, a date, or '
            'a datetime, such as "2026-01-31 12:00"'
        )
    if value.tzinfo is not None:
        return value
    try:
        return value.astimezone()
    except (ValueError, OverflowError):  # too close to the first or last datetime
        return value.replace(tzinfo=UTC)


def _plain(since: Any) -> timedelta | datetime | None:
    """Return ``since`` as a type of Python's own; None if it is no time or duration.

    pandas' types are subclasses of Python's with nanoseconds, which the service does not know.
    """
    kind = type(since)
    if kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64"):
        if "[" not in str(since.dtype):
            return None  # a number without a unit
        since = since.astype(f"{kind.__name__}[us]").item()
    if isinstance(since, timedelta):
        return timedelta(since.days, since.seconds, since.microseconds)
    if isinstance(since, datetime):
        is_time = since == since  # unlike pandas' NaT
        return datetime.combine(since.date(), since.timetz()) if is_time else None
    return datetime.combine(since, time()) if isinstance(since, date) else None


def _read(text: str) -> timedelta | datetime | None:
    readings: tuple[Callable[[str], timedelta | datetime], ...] = (
        _read_duration,
        datetime.fromisoformat,
    )
    for read in readings:
        try:
            return read(text)
        except (ValueError, LookupError, TypeError, OverflowError):
            continue
    return None


def _read_duration(text: str) -> timedelta:
    try:
        float(text)
    except ValueError:
        return timedelta(seconds=float(parse_timedelta(text)))
    raise ValueError("of no unit: it may be meant as a date")
