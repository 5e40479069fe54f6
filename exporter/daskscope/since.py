"""How far back a question goes, as users write it: ``"7 days"``, a timedelta, date or datetime."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from dask.utils import parse_timedelta

from daskscope.errors import ConfigurationError

#: How far back: "7 days", a timedelta, a datetime or a date (as text too), or None for all that is
#: kept. A time without a zone is local, and a date its midnight. Those of pandas and NumPy will do.
Since = str | timedelta | datetime | date | None


def moment_of(since: Any) -> datetime | None:
    """Return a time with its zone, or None for all there is."""
    if since is None:
        return None
    found = _read(since) if isinstance(since, str) else _plain(since)
    if isinstance(found, timedelta) and found >= timedelta(0):
        try:
            return datetime.now(UTC) - found
        except OverflowError:  # before all calendars
            return None
    if not isinstance(found, datetime):
        raise ConfigurationError(
            f'since is {since!r}; it must be a duration such as "7 days", a timedelta, a date, or '
            'a datetime, such as "2026-01-31 12:00"'
        )
    if found.tzinfo is not None:
        return found
    try:
        return found.astimezone()
    except (ValueError, OverflowError):  # at either end of all calendars
        return found.replace(tzinfo=UTC)


def _plain(since: Any) -> timedelta | datetime | None:
    """Return what says when as a type of Python's own, or None where it does not say so.

    Those of pandas are Python's and have finer fields, which the service does not know.
    """
    kind = type(since)
    if kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64"):
        if "[" not in str(since.dtype):
            return None  # a number of no unit
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
