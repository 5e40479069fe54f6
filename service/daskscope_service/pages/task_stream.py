"""The page of a cluster's task stream: which worker ran what, and when.

The page has the runs added up, as a table. Its script asks for the runs as they are stored, packed,
and draws them: to merge a million runs for each width of a window would take the service seconds.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass

from flask import Blueprint, jsonify, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.db.scope import Item, encode_cursor, reading
from daskscope_service.insight.task_stream import Chosen, Work, WorkDone, added_up
from daskscope_service.insight.views import ClusterView
from daskscope_service.insight.wording import duration, number, plural
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.task_streams import (
    all_packed_streams,
    newest_streamed,
    packed_streams,
)
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import optional, part, period, refuse_unknown
from daskscope_service.web.template_filters import address, entered

blueprint = Blueprint("task_stream", __name__)

#: How many entries the table adds up, the newest: it takes some 50 ms. How many rows it has, and
#: how many prefixes the legend names.
MOST_ADDED, MOST_ROWS, MOST_NAMED = 8_000, 100, 24
#: How many characters of packed columns and of names one answer to the script has, and a row more.
MOST_SENT = 1_000_000
#: The shortest time that "zoom in" leads to, in seconds.
SHORTEST = 0.01

#: Hues of prefixes, none of them red or orange, in three lightnesses (see app.css).
_HUES, _LIGHTNESSES = range(95, 350, 15), 3


@dataclass(frozen=True, slots=True)
class Named:
    """A prefix in the legend, and the seconds that its runs computed."""

    prefix: str
    colour: str
    seconds: float


@blueprint.get("/clusters/<cluster_id>/stream")
@signed_in
def page(cluster_id: str) -> ResponseReturnValue:
    """Show when and where a cluster ran tasks, and how long these computed."""
    if tidy := tidied():
        return redirect(tidy)
    refuse_unknown("since", "until", "worker", "prefix", "failed")
    asked = period()
    failed = optional("failed", ("yes",)) is not None
    worker, prefix = (request.args.get(name) for name in ("worker", "prefix"))
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
        newest = newest_streamed(scope, cluster_id)
        since, until = _shown(asked, newest, cluster)
        chosen = Chosen(since, until, worker, prefix, failed)
        rows = all_packed_streams(scope, cluster_id, since, until)
        done, last = added_up(rows, chosen, MOST_ADDED)
    return render_template(
        "stream.html",
        now=time.time(),
        cluster=cluster,
        chosen=chosen,
        asked=asked,
        moves=_moves(chosen),
        sentence=_sentence(done, chosen, whole=last is None),
        notes=_notes(done, last),
        why_empty=_why_empty(cluster) if newest is None else "",
        work=done.work[:MOST_ROWS],
        all_work=len(done.work),
        legend=_legend(done.work),
        colour=colour,
    )


@blueprint.get("/clusters/<cluster_id>/stream.json")
@signed_in
def data(cluster_id: str) -> ResponseReturnValue:
    """Answer with the runs that overlap a time, packed, the newest intervals first.

    ``next`` is the cursor of the rest. A row's ``workers`` and ``prefixes`` are indices of the
    answer's.
    """
    refuse_unknown("since", "until", "cursor")
    _, after = part()
    asked = period()
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
        since, until = _shown(asked, newest_streamed(scope, cluster_id), cluster)
        streams = packed_streams(scope, cluster_id, since, until, after)
    workers: dict[str, int] = {}
    prefixes: dict[str, int] = {}
    rows: list[Item] = []
    sent, next = 0, streams.next
    for row in streams.items:
        if sent > MOST_SENT:
            next = (rows[-1]["at"], rows[-1]["id"], "")
            break
        both = ((workers, row["workers"]), (prefixes, row["prefixes"]))
        sent += sum(len(name) for known, names in both for name in names if name not in known)
        indices = [[known.setdefault(name, len(known)) for name in names] for known, names in both]
        sent += len(row["columns"]) + 5 * sum(map(len, indices))
        rows.append(
            {
                "id": row["id"],
                "at": row["started_at"],
                "workers": indices[0],
                "prefixes": indices[1],
                "columns": row["columns"],
            }
        )
    return jsonify(
        workers=list(workers),
        prefixes=[[name, colour(name)] for name in prefixes],
        rows=rows,
        next=None if next is None else encode_cursor(next),
    )


def colour(prefix: str) -> str:
    """Return the colour of a prefix for SVG, always the same; app.css has its lightness."""
    place = zlib.crc32(prefix.encode(errors="replace"))
    lightness, hue = divmod(place, len(_HUES))
    return f"oklch(var(--run-{lightness % _LIGHTNESSES + 1}) 0.12 {_HUES[hue]})"


def _shown(
    asked: tuple[float | None, float | None],
    newest: tuple[float, float] | None,
    cluster: ClusterView,
) -> tuple[float, float]:
    """Return the time to show: what was asked for, and else what the newest rows span."""
    since, until = asked
    first, last = newest or (cluster.started_at, cluster.started_at + cluster.duration)
    if since is None:
        since = first if until is None else min(first, until - SHORTEST)
    if until is None:
        until = last
    return since, max(until, since + SHORTEST)


def _moves(chosen: Chosen) -> list[tuple[str, str | None]]:
    """Return links to other times, in words, each with its address; None if there is none."""
    length = chosen.until - chosen.since

    def to(since: float, until: float) -> str:
        since = max(since, 0.0)
        return address(since=entered(since), until=entered(max(until, since + SHORTEST)))

    quarter, half = length / 4, length / 2
    inward = to(chosen.since + quarter, chosen.until - quarter) if half >= SHORTEST else None
    return [
        ("zoom in", inward),
        ("zoom out", to(chosen.since - half, chosen.until + half)),
        ("earlier", to(chosen.since - half, chosen.until - half)),
        ("later", to(chosen.since + half, chosen.until + half)),
        ("newest", address(since=None, until=None)),
    ]


def _sentence(done: WorkDone, chosen: Chosen, *, whole: bool) -> str:
    """Return what ran, in words."""
    if not done.work:
        return ""
    runs = sum(one.runs for one in done.work)
    failed = sum(one.failed for one in done.work)
    workers = len({one.worker for one in done.work})
    newest = "" if whole else "The newest "
    ran = f"{newest}{plural(runs, 'task run')} on {plural(workers, 'worker')}"
    seconds = f"computed for {duration(sum(one.seconds for one in done.work))}"
    if chosen.failed:
        return f"{ran} failed, after they had {seconds}."
    return f"{ran} {seconds}; {number(failed) if failed else 'none'} of them failed."


def _notes(done: WorkDone, last: Item | None) -> list[str]:
    """Return what a reader must know of the table: what was merged, or left out."""
    notes = []
    if last is not None:
        notes.append(
            f"The table has the newest {number(done.entries)} entries of this time; choose a "
            "shorter time to see the others."
        )
    merged = sum(one.merged for one in done.work)
    if merged:
        notes.append(
            f"{plural(merged, 'run')} were merged by the cluster, by worker, prefix and time, "
            "because there were too many: their number, their seconds and the longest are known, "
            "but not when each ran. The slowest and most failed runs are never merged."
        )
    if done.unreadable:
        notes.append(f"{plural(done.unreadable, 'interval')} cannot be read: damaged.")
    return notes


def _why_empty(cluster: ClusterView) -> str:
    """Return why there is no task stream of a cluster at all."""
    sent = cluster.settings.get("stream.transmit")
    if sent is None:
        return "This cluster's daskscope is too old to report a task stream."
    if sent != "true":
        return (
            "This cluster's settings do not send it: its setting daskscope.stream.transmit is off."
        )
    if cluster.computations:
        return "No task run of this cluster is stored: none was reported, or they were removed."
    return f"No task has run on this cluster{' yet' if cluster.status == 'running' else ''}."


def _legend(work: list[Work]) -> list[Named]:
    seconds: dict[str, float] = {}
    for one in work:
        seconds[one.prefix] = seconds.get(one.prefix, 0.0) + one.seconds
    most = sorted(seconds, key=lambda prefix: -seconds[prefix])[:MOST_NAMED]
    return [Named(prefix, colour(prefix), seconds[prefix]) for prefix in most]
