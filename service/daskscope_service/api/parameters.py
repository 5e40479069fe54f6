"""What a request asks for, read out of its address. What makes no sense is answered with 400."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from flask import request

from daskscope_service.problems import Problem
from daskscope_service.reads.scope import MOST_ROWS, Selection, decode_cursor

_LIST = ("since", "until", "user", "cluster", "limit", "cursor")


def selection(*, cluster: str | None = None) -> Selection:
    """Return which rows of a list the request asks for. ``cluster`` comes from the path."""
    known = _LIST if cluster is None else tuple(name for name in _LIST if name != "cluster")
    refuse_unknown(*known)
    since, until = instant("since"), instant("until")
    if since is not None and until is not None and since >= until:
        raise bad("until", "must be later than since")
    limit = number("limit", Selection().limit)
    if not (1 <= limit <= MOST_ROWS and limit == int(limit)):
        raise bad("limit", f"must be a whole number from 1 to {MOST_ROWS}")
    after = None
    if cursor := request.args.get("cursor"):
        try:
            after = decode_cursor(cursor)
        except ValueError:
            raise bad("cursor", "must be the `next` of an answer to the same request") from None
    return Selection(
        since=since,
        until=until,
        user=request.args.get("user"),
        cluster=request.args.get("cluster") if cluster is None else cluster,
        limit=int(limit),
        after=after,
    )


def instant(name: str) -> float | None:
    """Return a time parameter in seconds since the Unix epoch, or None where it is not given."""
    text = request.args.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        try:
            # A plus sign that was not escaped arrives as a space.
            time = datetime.fromisoformat(text.replace(" ", "+"))
            value = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            value = math.nan
    # Also refuses what no calendar has, so that it can be given back as a date.
    if not 0 <= value < 253402300800:
        raise bad(
            name, "must be a time: ISO 8601 (2026-01-31T12:00:00Z) or seconds since 1970-01-01 UTC"
        )
    return value


def number(name: str, default: float) -> float:
    """Return a parameter that is a finite number."""
    text = request.args.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad(name, "must be a number")
    return value


def one_of(name: str, choices: tuple[str, ...]) -> str:
    """Return a parameter that is one of ``choices``; the first where it is not given."""
    text = request.args.get(name) or choices[0]
    if text not in choices:
        raise bad(name, f"must be one of {', '.join(choices)}")
    return text


def required(name: str, what: str) -> str:
    """Return a parameter that must be there; ``what`` says what it should be."""
    text = request.args.get(name)
    if not text:
        raise bad(name, f"is missing; it must be {what}")
    return text


def refuse_unknown(*known: str) -> None:
    """Refuse a parameter that would be ignored: a slip in its name would change the answer."""
    for name in request.args:
        if name not in known:
            raise bad(name, f"is not a parameter here; there are {', '.join(known)}")


def bad(name: str, what: str) -> Problem:
    """Return the problem with the parameter ``name``."""
    return Problem(400, f"The parameter {name} {what}.", title="Bad parameter", parameter=name)
