"""The page of one computation: its outcome, and what explains it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import g, render_template, request, url_for

from daskscope import names
from daskscope_service.accounts.access import may_act
from daskscope_service.db.scope import Item, Scope, Selection, reading
from daskscope_service.insight.findings.rules import Judgement
from daskscope_service.insight.flame import CodeLine, Merged, lines_of, merge
from daskscope_service.insight.views import ComputationDetail
from daskscope_service.pages import cluster_context
from daskscope_service.pages.graph import layout, spent_in
from daskscope_service.pages.histogram import histograms
from daskscope_service.pages.source import sources
from daskscope_service.pages.waterfall import MOST_READ, waterfall
from daskscope_service.queries.computations import one_computation
from daskscope_service.queries.events import losses_of_computation
from daskscope_service.queries.findings import explain_computation
from daskscope_service.queries.logs import LogFilter, list_logs
from daskscope_service.queries.profiles import newest_profiles
from daskscope_service.queries.repeats import repeated_in
from daskscope_service.queries.runs import one_run
from daskscope_service.queries.scan_filter import Scanned
from daskscope_service.services import services
from daskscope_service.telemetry.spans import Trace
from daskscope_service.telemetry.store import Unavailable
from daskscope_service.web.parameters import bad, one_of
from daskscope_service.web.template_filters import entered

#: How many task groups the table shows per page, and in a report, which has one page only.
MOST_GROUPS, MOST_REPORTED = 50, 500
#: How many log records and lines of code the page shows.
MOST_RECORDS, MOST_LINES = 12, 5
#: From how many profiles, the newest, these lines come: one less than a single query reads, so that
#: no second query is needed.
MOST_PROFILES = 9

#: Among how many log records of the cluster the computation's own are searched. The page of logs
#: searches more.
_LOOKED_AT = 500
#: For how many seconds after its end the computation's last log records may still arrive.
_LATE = 5.0
#: For how many seconds before and after the computation its task stream is shown: some runs are a
#: moment outside of the time that it reports.
_AROUND = 0.05
#: For how many seconds after the computation's end its page keeps refreshing often.
_SETTLES = 60.0


@dataclass(frozen=True, slots=True)
class _Groups:
    """One page of the table of task groups.

    ``first`` is the index of its first row, ``all`` the number of rows on all pages.
    """

    rows: list[Item]
    sort: str
    first: int
    all: int
    most: int

    @property
    def end(self) -> int:
        """The index after the last row."""
        return self.first + len(self.rows)

    @property
    def before(self) -> int | None:
        """The index of the first row of the previous page; None on the first page."""
        return max(self.first - self.most, 0) if self.first else None

    @property
    def next(self) -> int | None:
        """The index of the first row of the next page; None on the last page."""
        return self.first + self.most if self.first + self.most < self.all else None


#: The sections in the page's table of contents: id and title.
_CONTENTS = {
    "failures": "Failures",
    "code": "Code",
    "groups": "Task groups",
    "workers": "Workers",
    "lost": "Workers it lost",
    "trace": "Over time",
    "memory": "Memory",
    "profile": "Profile",
    "logs": "Logs",
}


def computation_page(cluster_id: str, computation_id: str) -> str:
    """Return the page of one computation.

    Raises
    ------
    Missing
        The workspace has no such computation.
    """
    with reading() as scope:
        computation = one_computation(scope, cluster_id, computation_id)
        running = computation.status == "running"
        since = computation.started_at
        ended = since + max(computation.duration, 0.1)
        until = None if running else ended
        while_it_ran = Selection(cluster=cluster_id, since=since, until=until)
        merged, profiled = _profile(scope, while_it_ran)
        losses = losses_of_computation(scope, cluster_id, computation_id, since, ended + _LATE)
        lost_workers = [loss | {"most_memory": _most_memory(loss)} for loss in losses]
        expected = one_run(scope, computation_id, cluster_id)["expected"] if running else None
        repeated = repeated_in(scope, cluster_id, computation_id)
        explained = explain_computation(scope, services().series, computation)
        records, no_logs = _records(scope, computation, None if until is None else until + _LATE)
    groups = _groups(computation.task_groups)
    trace, no_trace = _trace(computation)
    about, memory, no_series = _meanwhile(cluster_id, since, ended, ended_already=not running)
    measured = computation.worker_seconds
    threads = cluster_context.of_computation(measured, about, computation.duration)
    stream_of = partial(
        url_for,
        "task_stream.page",
        cluster_id=cluster_id,
        since=entered(since - _AROUND),
        until=entered(ended + _AROUND),
    )
    return render_template(
        "computation.html",
        now=time.time(),
        # Spans and the last log records arrive shortly after the computation's end.
        moving=running or time.time() - ended < _SETTLES,
        computation=computation,
        stream_of=stream_of,
        in_stream=_in_stream(computation, explained.judgement, stream_of),
        expected=expected,
        repeated=repeated,
        explained=explained,
        lost_workers=lost_workers,
        may_mute="report" not in g and may_act(g.caller, "member"),
        contents=_contents(computation, lost_workers),
        sources=sources(computation.frames or []),
        groups=groups,
        graph=layout(computation.task_groups),
        histograms=histograms(computation.task_groups, groups.rows),
        fall=waterfall(computation, lost_workers, trace),
        no_trace=no_trace,
        threads=threads,
        memory=memory,
        worst=_worst(lost_workers),
        no_series=no_series,
        output=sum(group["output_bytes"] for group in computation.task_groups),
        largest=max(computation.task_groups, key=lambda group: group["output_bytes"], default=None),
        records=records,
        no_logs=no_logs,
        names=names,
        late=_LATE,
        merged=merged,
        top_lines=[] if merged is None else _top_lines(merged),
        profiled={"cluster": cluster_id, "since": since, "until": until} if profiled else None,
    )


def _in_stream(
    computation: ComputationDetail, judgement: Judgement, stream_of: Callable[..., str]
) -> dict[str, str]:
    """Return where the task stream has the runs of findings about a worker or a group, by rule."""
    prefixes = {f"group-{group['name']}": group["prefix"] for group in computation.task_groups}
    links = {}
    for finding in judgement.shown:
        for measure in finding.evidence:
            link = measure.link or ""
            if link.startswith("worker-"):
                links[finding.rule] = stream_of(worker=link.removeprefix("worker-"))
            elif link in prefixes:
                links[finding.rule] = stream_of(prefix=prefixes[link])
    return links


def _contents(computation: ComputationDetail, lost_workers: list[Item]) -> list[tuple[str, str]]:
    """Return the table of contents; it leaves out some sections if they are empty."""
    rows = {
        "failures": computation.failures,
        "workers": computation.worker_shares,
        "lost": lost_workers,
    }
    return [(section, title) for section, title in _CONTENTS.items() if rows.get(section, True)]


def _most_memory(loss: Item) -> int | None:
    """Return the most memory that the process of a lost worker is known to have had."""
    known = [loss[name] for name in ("nanny_memory", "peak_memory", "memory_used")]
    return max((value for value in known if value is not None), default=None)


def _worst(losses: list[Item]) -> Item | None:
    """Return the loss of the process with the most memory; None if no memory is known."""
    return max(
        (loss for loss in losses if loss["most_memory"] is not None),
        key=lambda loss: loss["most_memory"],
        default=None,
    )


def _groups(groups: list[Item]) -> _Groups:
    """Return the page of the table that the parameters ``sort`` and ``from`` ask for."""
    sort = one_of("sort", ("start", "time"))
    most = MOST_REPORTED if "report" in g else MOST_GROUPS
    text = request.args.get("from", "0")
    if not re.fullmatch("[0-9]{1,6}", text):
        raise bad("from", "must be a whole number: how many task groups come before")
    ordered = sorted(groups, key=spent_in, reverse=True) if sort == "time" else groups
    first = min(int(text), max(len(groups) - 1, 0))
    return _Groups(ordered[first : first + most], sort, first, len(groups), most)


def _profile(scope: Scope, which: Selection) -> tuple[Merged | None, bool]:
    """Return the newest profiles merged into one, and whether there are any, readable or not."""
    profiles = newest_profiles(scope, which, MOST_PROFILES)
    if not profiles.items:
        return None, bool(profiles.unreadable)
    return merge(profiles.items), True


def _top_lines(merged: Merged) -> list[CodeLine]:
    """Return the lines of code that took the most time."""
    lines = [line for line in lines_of(merged, merged.top) if line.self_samples]
    lines.sort(key=lambda line: (line.self_seconds, line.seconds), reverse=True)
    return lines[:MOST_LINES]


def _records(
    scope: Scope, computation: ComputationDetail, until: float | None
) -> tuple[Scanned, str]:
    """Return a computation's last log records, and why they cannot be read, else ""."""
    read = services().read_logs
    which = Selection(
        cluster=computation.cluster,
        since=computation.started_at,
        until=until,
        limit=MOST_RECORDS,
    )
    try:
        return list_logs(scope, which, LogFilter(computation=computation.id), read, _LOOKED_AT), ""
    except Unavailable as error:
        return Scanned([], None), str(error)


def _trace(computation: ComputationDetail) -> tuple[Trace, str]:
    """Return a computation's spans, and why they cannot be read, else ""."""
    reader = services().spans
    if computation.trace_id is None:
        return Trace(), ""
    try:
        trace = reader.of_computation(g.workspace, computation.trace_id, computation.id, MOST_READ)
    except Unavailable as error:
        return Trace(), str(error)
    return trace, ""


def _meanwhile(
    cluster_id: str, since: float, until: float, *, ended_already: bool
) -> tuple[Any, Any, str]:
    """Return the cluster's thread time and memory, and why they cannot be read, else ""."""
    store = services().series
    where = (store, g.workspace, cluster_id, since, until)
    try:
        threads = cluster_context.threads(*where, beyond=ended_already)
        return threads, cluster_context.memory(*where), ""
    except Unavailable as error:
        return None, None, str(error)
