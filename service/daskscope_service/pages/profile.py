"""The page of profiles: a flame graph and a table of lines of code, by cluster, user and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from operator import attrgetter

from flask import Blueprint, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.db.scope import reading
from daskscope_service.insight.flame import (
    Call,
    CodeLine,
    lines_of,
    merge,
    origin_of,
    own_seconds_by_origin,
    path_to,
    seconds_matching,
)
from daskscope_service.insight.wording import duration
from daskscope_service.pages.bars import Segment
from daskscope_service.pages.flame_graph import ORIGINS, flame_graph
from daskscope_service.queries.clusters import cluster_of
from daskscope_service.queries.profiles import Profiles, newest_profiles
from daskscope_service.web.downloads import csv_answer
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import one_of, selection

blueprint = Blueprint("profile", __name__)

#: How many lines of code the table shows.
MOST_LINES = 60

_SORTS = {"self": attrgetter("self_seconds", "seconds"), "total": attrgetter("seconds")}


_CSV = (
    *("self_seconds_estimate", "self_samples", "seconds_estimate", "samples"),
    *("text", "function", "file", "line", "whose_code"),
)


@dataclass(frozen=True, slots=True)
class _Span:
    """Which profiles were merged: how many, from how many clusters, and from which time.

    ``cut``: a scheduler left out calls of at least one profile.
    """

    profiles: int
    clusters: int
    since: float
    until: float
    cut: bool


@blueprint.get("/profile")
@signed_in
def page() -> ResponseReturnValue:
    """Show in which code the workers' threads spent their time."""
    if tidy := tidied():
        return redirect(tidy)
    which = selection(beside=("find", "zoom", "sort"))
    sort = one_of("sort", tuple(_SORTS))
    find = (request.args.get("find") or "").strip().lower()
    with reading() as scope:
        cluster = cluster_of(scope, which)
        read = newest_profiles(scope, which)
    merged = merge(read.items) if read.items else None
    values = {
        "which": which,
        "cluster": cluster,
        "sort": sort,
        "find": find,
        "read": read,
        "merged": merged,
    }
    if merged is None or not merged.top.samples:
        return render_template("profile.html", now=time.time(), graph=None, **values)
    zoom = request.args.get("zoom")
    path = path_to(merged.top, zoom) if zoom else []
    here = path[-1][1] if path else merged.top
    lines = sorted(lines_of(merged, here), key=_SORTS[sort], reverse=True)
    return render_template(
        "profile.html",
        now=time.time(),
        graph=flame_graph(merged.top, path, find),
        top=merged.top,
        here=here,
        zoomed=bool(path),
        gone=bool(zoom) and not path,
        lines=lines[:MOST_LINES],
        all_lines=len(lines),
        origin_of=origin_of,
        origins=ORIGINS,
        by_origin=_by_origin(here),
        matching_seconds=seconds_matching(here, find) if find else 0.0,
        span=_span(read),
        **values,
    )


@blueprint.get("/profile.csv")
@signed_in
def lines_csv() -> ResponseReturnValue:
    """Answer with all lines of code as CSV, those that took the most time first."""
    which = selection(beside=("zoom", "sort"))
    sort = one_of("sort", tuple(_SORTS))
    with reading() as scope:
        read = newest_profiles(scope, which)
    lines: list[CodeLine] = []
    if read.items:
        merged = merge(read.items)
        path = path_to(merged.top, request.args["zoom"]) if "zoom" in request.args else []
        lines = lines_of(merged, path[-1][1] if path else merged.top)
    rows = [_csv_row(line) for line in sorted(lines, key=_SORTS[sort], reverse=True)]
    return csv_answer(_CSV, rows, "profile", which.cluster or "")


def _csv_row(line: CodeLine) -> list[object]:
    return [
        *(round(line.self_seconds, 3), line.self_samples, round(line.seconds, 3), line.samples),
        *(line.text, line.function, line.file, line.line, origin_of(line.file)),
    ]


def _span(read: Profiles) -> _Span:
    items = read.items
    return _Span(
        profiles=len(items),
        clusters=len({item["cluster"] for item in items}),
        since=min(item["started_at"] for item in items),
        until=max(item["stopped_at"] for item in items),
        cut=any(item["cut"] for item in items),
    )


def _by_origin(call: Call) -> list[Segment]:
    """Return a bar of the time by the origin of the code: the user's, a library's, Dask's, …"""
    seconds = own_seconds_by_origin(call)
    whole = sum(seconds.values())
    segments: list[Segment] = []
    start = 0.0
    for origin, value in seconds.items():
        if value > 0:
            share = 100 * value / whole
            amount = f"{share:.0f} %, about {duration(value)}"
            segments.append(Segment(ORIGINS[origin], amount, f"flame-{origin}", start, share))
            start += share
    return segments
