"""Reads the query parameters of a request; raises the problem 400 for invalid ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from flask import request

from daskscope_service.db.scope import MOST_OF_A_NAME, MOST_ROWS, Position, Selection, decode_cursor
from daskscope_service.web.problems import Problem

Choice = TypeVar("Choice", bound=str)

#: The years 1 to 9999 in seconds since the Unix epoch: other times cannot be shown as a date.
_FIRST, _END = -62_135_596_800, 253_402_300_800


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter: its name, its description and its JSON schema."""

    name: str
    description: str
    schema: Mapping[str, Any]
    required: bool = False

    def whole_number(self, default: int | None = None) -> int:
        """Return the number in the request, which must be within the bounds of the schema.

        If the request has none, return ``default``, or the default of the schema.
        """
        least, most = self.schema["minimum"], self.schema["maximum"]
        text = request.args.get(self.name) or str(default or self.schema["default"])
        if not re.fullmatch("[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise bad(self.name, f"must be a whole number from {least} to {most}")
        return int(text)


_TIME = {
    "anyOf": [
        {"type": "string", "format": "date-time"},
        {"type": "number", "minimum": _FIRST, "exclusiveMaximum": _END},
    ]
}
#: A text without the character NUL, because no stored text contains it.
TEXT = {"type": "string", "minLength": 1, "pattern": r"^[^\u0000]+$"}

SINCE = Parameter(
    "since",
    "Only items at or after this time: ISO 8601, or seconds since 1970-01-01 UTC.",
    _TIME,
)
UNTIL = Parameter("until", "Only items before this time, in the same format.", _TIME)
USER = Parameter("user", "Only items of this user's clusters or computations.", TEXT)
CLUSTER = Parameter(
    "cluster",
    "Only items of this cluster: its id or its name. A name selects the newest "
    f"{MOST_OF_A_NAME} clusters with that name.",
    TEXT,
)
#: The default number of rows in one answer of the API, and on one page, where people read them.
ROWS, ROWS_SHOWN = Selection().limit, 50

LIMIT = Parameter(
    "limit",
    "The most items to return.",
    {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS},
)
CURSOR = Parameter(
    "cursor",
    "Where to continue the list: the `next` of the previous response to the same request.",
    {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
)

#: The parameters of every list. The path of a cluster's list names the cluster.
OF_CLUSTER = (SINCE, UNTIL, USER, LIMIT, CURSOR)
LIST = (*OF_CLUSTER, CLUSTER)


def refuse_unknown(*names: str) -> None:
    """Raise a problem for a parameter that is not in ``names``, is empty or appears twice.

    If a misspelled parameter were ignored, the client would get an answer to another question.
    """
    for name, values in request.args.lists():
        if name not in names:
            others = f"the parameters are: {', '.join(names)}" if names else "there are none"
            raise bad(
                name, f"is not a parameter of this request; {others}", reason="unknown parameter"
            )
        if len(values) > 1:
            raise bad(name, "appears more than once; use it once")
        if not values[0]:
            raise bad(name, "is empty; leave it out, or give a value")
        if "\0" in values[0]:
            raise bad(name, "contains the character NUL; leave it out")


def selection(
    *, cluster: str | None = None, beside: tuple[str, ...] = (), rows: int = ROWS
) -> Selection:
    """Return which rows of a list the request asks for; ``rows`` is the default limit.

    ``cluster`` comes from the path. ``beside`` are the names of other parameters, which the caller
    reads.
    """
    known = LIST if cluster is None else OF_CLUSTER
    refuse_unknown(*(one.name for one in known), *beside)
    since, until = period()
    limit, after = part(rows)
    return Selection(
        since=since,
        until=until,
        user=request.args.get("user"),
        cluster=request.args.get("cluster") if cluster is None else cluster,
        limit=limit,
        after=after,
    )


def part(rows: int = ROWS) -> tuple[int, Position | None]:
    """Return the ``limit`` of the request (default: ``rows``) and the position of its cursor."""
    limit = LIMIT.whole_number(rows)
    after = None
    if cursor := request.args.get("cursor"):
        try:
            after = decode_cursor(cursor)
        except ValueError:
            raise bad("cursor", "must be the `next` of a response to the same request") from None
    return limit, after


def period() -> tuple[float | None, float | None]:
    """Return since and until in seconds since the Unix epoch; None for a missing parameter."""
    since, until = instant("since"), instant("until")
    if since is not None and until is not None and since >= until:
        raise bad("until", "must be later than since")
    return since, until


def instant(name: str) -> float | None:
    """Return a time parameter in seconds since the Unix epoch; None if it is missing."""
    text = request.args.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        try:
            # In a query string, a plus sign that was not escaped means a space.
            time = datetime.fromisoformat(text.replace(" ", "+"))
            value = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            value = math.nan
    if not _FIRST <= value < _END:
        raise bad(
            name, "must be a time: ISO 8601 (2026-01-31T12:00:00Z) or seconds since 1970-01-01 UTC"
        )
    return value


def number(name: str, default: float) -> float:
    """Return a parameter that must be a finite number."""
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


def one_of(name: str, choices: tuple[Choice, ...]) -> Choice:
    """Return a parameter that must be one of ``choices``; the first choice if it is missing."""
    text = request.args.get(name) or choices[0]
    for choice in choices:
        if text == choice:
            return choice
    raise bad(name, f"must be one of {', '.join(choices)}")


def optional(name: str, choices: tuple[Choice, ...]) -> Choice | None:
    """Return a parameter that must be one of ``choices``; None if it is missing."""
    return one_of(name, choices) if name in request.args else None


def required(name: str, what: str) -> str:
    """Return a parameter that must not be missing; ``what`` describes it in the error message."""
    text = request.args.get(name)
    if not text:
        raise bad(name, f"is missing; it must be {what}")
    return text


def bad(name: str, what: str, **members: Any) -> Problem:
    """Return the problem 400 about the parameter ``name``; ``what`` says what is wrong with it."""
    return Problem(
        400, f"The parameter {name} {what}.", title="Bad parameter", parameter=name, **members
    )
