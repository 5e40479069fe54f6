"""The period that charts show, read from the address, and links to other periods.

``?span=hour`` is the last hour of the cluster's life; while the cluster runs, it moves with the
clock. ``?from=`` and ``?to=`` are a fixed period. With ``from`` alone, its end moves.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from flask import request

from daskscope_service.insight.verdict import last_known
from daskscope_service.insight.views import ClusterView
from daskscope_service.web.parameters import bad, instant, one_of
from daskscope_service.web.template_filters import exact, iso

#: For each value of ``span``: its length in seconds (None: everything) and the link's text.
SPANS: dict[str, tuple[float | None, str]] = {
    "quarter": (900.0, "last 15 min"),
    "hour": (3600.0, "last hour"),
    "day": (86400.0, "last day"),
    "life": (None, "whole life"),
}

#: The shortest period that "zoom in" leads to, in seconds.
SHORTEST = 10.0


@dataclass(frozen=True, slots=True)
class Period:
    """The period from ``since`` to ``until``, in seconds since the Unix epoch.

    The cluster's life began at ``began`` and is known up to ``end``. ``live``: ``until`` moves with
    the clock. ``span`` is the key in :data:`SPANS`, None for another period.
    """

    since: float
    until: float
    began: float
    end: float
    live: bool
    span: str | None

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class PeriodLink:
    """A link to another period. ``query`` is None if there is no such period."""

    words: str
    query: str | None
    current: bool = False


def period_of(cluster: ClusterView, default: str | None = None) -> Period:
    """Return the period of ``cluster`` that the request asks for.

    If it asks for none, return the span ``default``; without a default, the last hour of a running
    cluster, or the whole life of another.
    """
    running = cluster.status == "running"
    began = cluster.started_at
    end = max(time.time() if running else last_known(cluster), began + 1)
    since, until = instant("from"), instant("to")
    if since is None and until is None:
        default = default or ("hour" if running else "life")
        span = one_of("span", tuple(sorted(SPANS, key=lambda word: word != default)))
        back, _ = SPANS[span]
        since = began if back is None else max(began, end - back)
        return Period(since, end, began, end, running, span)
    live = running and until is None
    since = began if since is None else since
    until = end if until is None else until
    if since >= until:
        raise bad("to", "must be later than from, and from earlier than the end of the cluster")
    return Period(since, max(until, since + 1), began, end, live, None)


def links(period: Period) -> tuple[list[PeriodLink], list[PeriodLink]]:
    """Return the links to the spans, and the links that zoom and move the period."""
    spans = [
        PeriodLink(words, _query(span=word), current=word == period.span)
        for word, (_, words) in SPANS.items()
    ]
    quarter, half = period.seconds / 4, period.seconds / 2
    inward = (period.since + quarter, period.until - quarter) if half >= SHORTEST else None
    outward = (period.since - half, period.until + half)
    if period.since <= period.began and period.until >= period.end:
        outer = None
    elif outward[0] <= period.began and outward[1] >= period.end:
        outer = _query(span="life")
    else:
        outer = _held(max(outward[0], period.began), min(outward[1], period.end))
    back = min(half, period.since - period.began)
    on = min(half, period.end - period.until)
    return spans, [
        PeriodLink("zoom in", _held(*inward) if inward else None),
        PeriodLink("zoom out", outer),
        PeriodLink(
            "earlier", _held(period.since - back, period.until - back) if back >= 1 else None
        ),
        PeriodLink("later", _held(period.since + on, period.until + on) if on >= 1 else None),
    ]


def _held(since: float, until: float) -> str:
    return _query(**{"from": iso(math.floor(since)), "to": iso(math.ceil(until))})


def _query(**parameters: str) -> str:
    # The span stays in the address, because a double click on a chart returns to it.
    if "from" in parameters and "span" in request.args:
        parameters = {"span": request.args["span"], **parameters}
    return f"?{urlencode(parameters, safe=':')}"


def in_words(period: Period) -> str:
    """Return the beginning and end of ``period`` in words, naming a common day once."""
    since, until = exact(period.since), exact(period.until)
    day = since[: since.index(" ")]
    return f"{since.removesuffix(' UTC')} to {until.removeprefix(f'{day} ')}"


def as_data(link: PeriodLink) -> dict[str, Any]:
    """Return a link as JSON data for the page's script."""
    return {"words": link.words, "query": link.query, "current": link.current}
