"""Filters and functions of the templates: how values look."""

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


#: The last second that a time on a page can be of; and what is said of others.
_LAST = 253_402_300_799.0
_NO_TIME = "at no time that there is"


def moment(time: float) -> datetime:
    """Return seconds since the Unix epoch as a time in UTC: the nearest that there is."""
    return datetime.fromtimestamp(min(max(time, 0.0), _LAST), UTC)


def iso(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31T12:00:00Z``, for ``<time datetime>``."""
    return moment(time).strftime("%Y-%m-%dT%H:%M:%SZ")


def entered(time: float) -> str:
    """Return seconds since the Unix epoch as people enter them: ``2026-01-31T12:00:00.5``, UTC."""
    return f"{moment(time):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".")


def exact(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31 12:00:00 UTC``."""
    return moment(time).strftime("%Y-%m-%d %H:%M:%S UTC") if 0 <= time < _LAST else _NO_TIME


def day(time: float) -> str:
    """Return the day of seconds since the Unix epoch as ``31 Jan``, in UTC."""
    return f"{moment(time):%-d %b}"


def ago(time: float, now: float) -> str:
    """Return how long before ``now`` it was, with one unit: ``3 min ago``."""
    seconds = now - time
    if seconds < 5:
        return "just now"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def middle(text: str, most: int = 36) -> str:
    """Return ``text`` in ``most`` characters or fewer, cut where ids say least: in the middle."""
    if len(text) <= most:
        return text
    head = (most - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def breakable(text: str) -> Markup:
    """Return ``text`` so that a narrow column breaks it after a dot or the like, not in a word."""
    return Markup("<wbr>").join(re.split(r"(?<=[.@_/\\-])(?=\w)", text))


def asset(name: str) -> str:
    """Return the address of a static file; it changes with the file, so it may be kept for good."""
    return url_for("pages.static", filename=name, v=_digest(name))


def address(**changes: object) -> str:
    """Return the address of this page with other parameters; None takes one away."""
    parameters = {**request.args.to_dict(), **changes}
    kept = {name: value for name, value in parameters.items() if value is not None}
    return request.path + (f"?{urlencode(kept)}" if kept else "")


def listed(path: str, **changes: object) -> str:
    """Return the address at ``path`` of all that this page lists a part of, by the same filters."""
    dropped: dict[str, object] = {"cursor": None, "limit": None}
    return path + address(**dropped | changes).removeprefix(request.path)


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((_STATIC / name).read_bytes()).hexdigest()[:12]


def install(blueprint: Blueprint) -> None:
    """Give the filters to the templates of the application that gets ``blueprint``."""
    functions: tuple[Callable[..., Any], ...] = (
        *(number, size, duration, hours, money, estimate, percent, plural),
        *(iso, entered, exact, day, ago, middle, breakable, own_frames),
        *(in_words, saving_in_words, reached_time_limit),
    )
    for function in functions:
        blueprint.add_app_template_filter(function)
    blueprint.add_app_template_global(asset)
    blueprint.add_app_template_global(address)
    blueprint.add_app_template_global(listed)
    blueprint.add_app_template_global(against)
    blueprint.add_app_template_global(in_currencies)
