"""A computation as a waterfall: its task groups as bars, with sampled task runs below each.

Heartbeats report the task groups, so they are shown while the computation runs, and even if no span
arrives. Spans add single task runs. A run that ended with its worker has no times. A group that had
only such runs is drawn over the whole time of its computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daskscope import names
from daskscope_service.db.readable import Readable
from daskscope_service.db.scope import Item
from daskscope_service.insight.wording import duration, number, plural
from daskscope_service.pages.graph import state_of
from daskscope_service.telemetry.spans import Span, Trace

#: How many groups and task runs are drawn: more would be too much to look at, and to send.
MOST_GROUPS = 60
MOST_RUNS = 150
#: How many spans are read. The spans of groups are read before those of task runs.
MOST_READ = 800

_TICKS = (1, 2, 5, 10, 15, 30)
_OUTCOMES = {"finished": "done", "erred": "bad", "retried": "warn"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar. ``x`` and ``width`` are per cent of the time shown.

    ``after`` is the time from the start to the bar, ``took`` its length, both in words.
    """

    x: float
    width: float
    colour: str
    after: str
    took: str


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """One run of a task. ``exception`` is the type of the exception, "" if none is known."""

    bar: Bar
    outcome: str
    worker: str
    exception: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A task group with its drawn ``runs``.

    ``ended`` counts the task runs that ended. ``sampled`` counts those that have a span, None if
    the group's own span, which reports this, is not known. ``died``: all runs ended with their
    workers.
    """

    name: str
    prefix: str
    word: str
    bar: Bar
    ended: int
    sampled: int | None
    runs: tuple[DrawnRun, ...]
    died: bool = False

    @property
    def shown(self) -> str:
        """A sentence on how many of the group's task runs are drawn."""
        drawn = len(self.runs)
        which = f"{number(drawn)} of {plural(self.ended, 'task run')}"
        if self.sampled is not None and self.sampled >= self.ended and drawn >= self.ended:
            return f"{which}: all of them."
        more = ""
        if self.sampled is not None and self.sampled > drawn:
            more = f"; {number(self.sampled)} have a span"
        return (
            f"{which}: a sample. Failed ones and the slowest come first, with a few others{more}."
        )


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The drawing of one computation.

    ``ticks`` are marks on the time axis: the position in per cent, and the time since the start in
    words. ``others`` counts the groups that ran but are not drawn, ``waiting`` the groups that have
    not run. ``runs`` counts the task runs that are drawn, ``runs_read`` those whose spans were
    read. ``more``: there are spans that were not read.
    """

    whole: Bar
    rows: list[GroupRow]
    ticks: list[tuple[float, str]]
    others: int
    waiting: int
    runs: int
    runs_read: int
    more: bool
    unreadable: str | None


def waterfall(computation: Readable, lost_workers: Sequence[Item], trace: Trace) -> Waterfall:
    """Return the drawing of a computation from its groups, its lost workers and its spans."""
    groups = _drawable(computation, lost_workers)
    own = {
        str((span.attributes or {}).get(names.TASK_GROUP_NAME, "")): span
        for span in trace.spans
        if names.SPAN_TASK_GROUP.includes(span.name)
    }
    below: dict[str | None, list[Span]] = {}
    for span in trace.spans:
        if names.SPAN_TASK.includes(span.name):
            below.setdefault(span.parent_span_id, []).append(span)
    start = min([computation["started_at"], *(group["started_at"] for group in groups)])
    stop = max(
        [
            computation["started_at"] + computation["duration"],
            *(group["stopped_at"] or 0 for group in groups),
            *(span.stopped_at for span in trace.spans),
        ]
    )
    axis = _Axis(start, max(stop - start, 0.001))
    drawn = sorted(groups, key=lambda group: (not group["erred"], -_seconds(group)))[:MOST_GROUPS]
    shown = {group["name"] for group in drawn}
    chosen = _chosen({name: below.get(own[name].span_id, []) for name in shown if name in own})
    return Waterfall(
        whole=axis.bar(
            computation["started_at"],
            computation["started_at"] + computation["duration"],
            {"finished": "done", "running": "active", "erred": "bad"}.get(
                computation["status"], "released"
            ),
        ),
        rows=[
            _row(axis, group, own.get(group["name"]), chosen.get(group["name"], []))
            for group in groups
            if group["name"] in shown
        ],
        ticks=axis.ticks(),
        others=len(groups) - len(drawn),
        waiting=len(computation["task_groups"]) - len(groups),
        runs=sum(map(len, chosen.values())),
        runs_read=sum(map(len, below.values())),
        more=trace.more,
        unreadable=next((span.unreadable for span in trace.spans if span.unreadable), None),
    )


def _drawable(computation: Readable, lost_workers: Sequence[Item]) -> list[Item]:
    """Return the groups that ran, including those whose runs all ended with their workers."""
    lost = {prefix for loss in lost_workers for prefix in loss["tasks"]}
    since = computation["started_at"]
    until = None if computation["status"] == "running" else since + computation["duration"]
    drawable = []
    for group in computation["task_groups"]:
        if group["started_at"] is not None:
            drawable.append(group | {"died": False})
        elif group["prefix"] in lost or (group["erred"] and computation["lost_runs"]):
            drawable.append(group | {"started_at": since, "stopped_at": until, "died": True})
    return drawable


@dataclass(frozen=True, slots=True)
class _Axis:
    """The time axis: ``start`` in seconds since the Unix epoch, and its length in seconds."""

    start: float
    seconds: float

    def bar(self, started_at: float, stopped_at: float, colour: str) -> Bar:
        """Return the bar from one time to another."""
        x = 100 * min(max((started_at - self.start) / self.seconds, 0), 1)
        width = min(100 * max(stopped_at - started_at, 0) / self.seconds, 100 - x)
        return Bar(
            x=round(min(x, 99.7), 3),
            width=round(max(width, 0.3), 3),  # wide enough to be seen
            colour=colour,
            after=duration(max(started_at - self.start, 0)),
            took=duration(stopped_at - started_at),
        )

    def ticks(self) -> list[tuple[float, str]]:
        """Return at most six marks at round times, the first at the start."""
        for step in _steps():
            count = int(self.seconds / step)
            if count <= 5:
                return [
                    (round(100 * number * step / self.seconds, 3), duration(number * step))
                    for number in range(count + 1)
                ]
        raise AssertionError("steps have no end")


def _steps() -> list[float]:
    small = [10.0**power * step for power in range(-3, 1) for step in (1, 2, 5)]
    return (
        [step for step in small if step < 1]
        + [float(step) for step in _TICKS]
        + [60.0 * step for step in _TICKS]
        + [3600.0 * step for step in (1, 2, 3, 6, 12)]
        + [86400.0 * 2**power for power in range(20)]
    )


def _chosen(by_group: Mapping[str, Sequence[Span]]) -> dict[str, list[Span]]:
    """Return the runs to draw, spread over the groups: failed ones first, then the longest."""
    ranked: list[tuple[int, str, Span]] = []
    for name, spans in by_group.items():
        best = sorted(
            spans, key=lambda span: (span.status != "error", span.started_at - span.stopped_at)
        )
        ranked += [(rank, name, span) for rank, span in enumerate(best)]
    ranked.sort(key=lambda entry: (entry[0], entry[1]))
    chosen: dict[str, list[Span]] = {}
    for _, name, span in ranked[:MOST_RUNS]:
        chosen.setdefault(name, []).append(span)
    for spans in chosen.values():
        spans.sort(key=lambda span: span.started_at)
    return chosen


def _row(axis: _Axis, group: Item, own: Span | None, runs: Sequence[Span]) -> GroupRow:
    word, colour = state_of(group)
    sampled = None if own is None else (own.attributes or {}).get(names.TASK_GROUP_SAMPLED)
    stopped_at = group["stopped_at"]
    return GroupRow(
        name=group["name"],
        prefix=group["prefix"],
        word=word,
        bar=axis.bar(
            group["started_at"],
            axis.start + axis.seconds if stopped_at is None else stopped_at,
            colour,
        ),
        ended=group["completed"] + group["erred"] + group["retried"],
        sampled=sampled if isinstance(sampled, int) else None,
        runs=tuple(_run(axis, span) for span in runs),
        died=group["died"],
    )


def _run(axis: _Axis, span: Span) -> DrawnRun:
    known = span.attributes or {}
    outcome = str(
        known.get(names.TASK_OUTCOME) or ("erred" if span.status == "error" else "finished")
    )
    return DrawnRun(
        bar=axis.bar(span.started_at, span.stopped_at, _OUTCOMES.get(outcome, "released")),
        outcome=outcome,
        worker=str(known.get(names.WORKER_ADDRESS, "")),
        exception=str(known.get(names.EXCEPTION_TYPE, "")),
    )


def _seconds(group: Item) -> float:
    seconds: float = (group["stopped_at"] or group["started_at"]) - group["started_at"]
    return seconds
