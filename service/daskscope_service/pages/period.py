"""The time that charts show, read from the address, and links to other times.

``?span=`` goes back from the end of the cluster's life, and goes on with it while it runs.
``?from=`` and ``?to=`` hold still; ``from`` alone goes on.
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

#: Seconds back from the end, by the word in the address, and what the link says.
SPANS: dict[str, tuple[float | None, str]] = {
    "quarter": (900.0, "last 15 min"),
    "hour": (3600.0, "last hour"),
    "day": (86400.0, "last day"),
    "life": (None, "whole life"),
}

#: The shortest time that is shown, in seconds.
SHORTEST = 10.0


@dataclass(frozen=True, slots=True)
class Period:
    """From ``since`` to ``until``, out of a life that began at ``began`` and is known to ``end``.

    ``live``: ``until`` goes on with the clock. ``span`` is the word that it is called by, if any.
    """

    since: float
    until: float
    began: float
    end: float
    live: bool
    span: str | None

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class PeriodLink:
    """A link to another time. ``query`` is None where there is no such time."""

    words: str
    query: str | None
    current: bool = False


def period_of(cluster: ClusterView, default: str | None = None) -> Period:
    """Return the time that the request asks for, of a cluster of ``reads.clusters``.

    Where it does not say, that is the span ``default``; None: the last hour of one that runs, the
    whole life of another.
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
    """Return the links to the spans, and those that zoom and move."""
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
    # The span that was left stays in the address: it is where a double click goes back to.
    if "from" in parameters and "span" in request.args:
        parameters = {"span": request.args["span"], **parameters}
    return f"?{urlencode(parameters, safe=':')}"


def in_words(period: Period) -> str:
    """Return from when to when it is."""
    since, until = exact(period.since), exact(period.until)
    day = since[: since.index(" ")]
    return f"{since.removesuffix(' UTC')} to {until.removeprefix(f'{day} ')}"


def as_data(link: PeriodLink) -> dict[str, Any]:
    """Return a link for the script."""
    return {"words": link.words, "query": link.query, "current": link.current}
