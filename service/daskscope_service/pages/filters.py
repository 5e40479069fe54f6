"""How values look in templates: the filters and functions that Jinja gets."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from flask import Blueprint, url_for

from daskscope_service.insight.wording import duration, money, number, plural, size

_STATIC = Path(__file__).with_name("static")


def iso(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31T12:00:00Z``, for ``<time datetime>``."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact(time: float) -> str:
    """Return seconds since the Unix epoch as ``2026-01-31 12:00:00 UTC``."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


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
    """Return ``text`` in ``most`` characters or fewer, cut where ids tell least: in the middle."""
    if len(text) <= most:
        return text
    head = (most - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def asset(name: str) -> str:
    """Return the address of a static file; it changes with the file, so it may be kept for good."""
    return url_for("pages.static", filename=name, v=_digest(name))


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((_STATIC / name).read_bytes()).hexdigest()[:12]


def install(blueprint: Blueprint) -> None:
    """Give the filters to the templates of the application that gets ``blueprint``."""
    for function in (number, size, duration, money, plural, iso, exact, ago, middle):
        blueprint.add_app_template_filter(function)
    blueprint.add_app_template_global(asset)
