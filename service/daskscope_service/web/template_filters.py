"""The templates' filters and functions, which format values and build addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, request, url_for
from markupsafe import Markup

from daskscope_service.insight.findings.headline import in_words, saving_in_words
from daskscope_service.insight.job_time import reached_time_limit
from daskscope_service.insight.repetition import joined
from daskscope_service.insight.traceback import own_frames
from daskscope_service.insight.wording import (
    against,
    duration,
    estimate,
    hours,
    in_currencies,
    money,
    number,
    percent,
    plural,
    size,
)

_STATIC = Path(__file__).parents[1] / "pages" / "static"


#: The last time that can be shown, the end of the year 9999; and what is shown for other times.
_LAST = 253_402_300_799.0
_NO_TIME = "at an invalid time"


def moment(time: float) -> datetime:
    """Return seconds since the Unix epoch as a time in UTC, from 1970 to the year 9999."""
    return datetime.fromtimestamp(min(max(time, 0.0), _LAST), UTC)


def iso(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31T12:00:00Z``, for ``<time datetime>``."""
    return moment(time).strftime("%Y-%m-%dT%H:%M:%SZ")


def entered(time: float) -> str:
    """Return seconds since the Unix epoch for a form's field: ``2026-01-31T12:00:00.5``, in UTC."""
    return f"{moment(time):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".")


def exact(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31 12:00:00 UTC``."""
    return moment(time).strftime("%Y-%m-%d %H:%M:%S UTC") if 0 <= time < _LAST else _NO_TIME


def day(time: float) -> str:
    """Return the day of seconds since the Unix epoch as ``31 Jan``, in UTC."""
    return f"{moment(time):%-d %b}"


def ago(time: float, now: float) -> str:
    """Return how long before ``now`` the time was, in one unit: ``3 min ago``."""
    seconds = now - time
    if seconds < 5:
        return "just now"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def shorten_middle(text: str, most: int = 36) -> str:
    """Return ``text``, its middle cut to ``most`` characters in all: ids differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def breakable(text: str) -> Markup:
    """Return ``text`` as HTML that may wrap after a dot, slash and the like, not within a word."""
    return Markup("<wbr>").join(re.split(r"(?<=[.@_/\\-])(?=\w)", text))


def asset(name: str) -> str:
    """Return the address of a static file. It contains the file's hash: browsers may cache it."""
    return url_for("pages.static", filename=name, v=_digest(name))


def address(**changes: object) -> str:
    """Return the address of this page with changed parameters; None removes a parameter."""
    parameters = {**request.args.to_dict(), **changes}
    kept = {name: value for name, value in parameters.items() if value is not None}
    return request.path + (f"?{urlencode(kept)}" if kept else "")


def whole_list_address(path: str, **changes: object) -> str:
    """Return the address of ``path`` with this page's filters, for the whole list."""
    dropped: dict[str, object] = {"cursor": None, "limit": None}
    return path + address(**dropped | changes).removeprefix(request.path)


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((_STATIC / name).read_bytes()).hexdigest()[:12]


def install(blueprint: Blueprint) -> None:
    """Make the filters available to all templates of the app that registers ``blueprint``."""
    functions: tuple[Callable[..., Any], ...] = (
        *(number, size, duration, hours, money, estimate, percent, plural),
        *(iso, entered, exact, day, ago, shorten_middle, breakable, own_frames),
        *(in_words, saving_in_words, reached_time_limit, joined),
    )
    for function in functions:
        blueprint.add_app_template_filter(function)
    blueprint.add_app_template_global(asset)
    blueprint.add_app_template_global(address)
    blueprint.add_app_template_global(whole_list_address)
    blueprint.add_app_template_global(against)
    blueprint.add_app_template_global(in_currencies)
