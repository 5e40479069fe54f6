"""The charts on a cluster's page, for the template and, as JSON, for the page's script."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, g, jsonify
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.db.scope import Scope, reading
from daskscope_service.insight.views import ClusterView
from daskscope_service.insight.wording import duration
from daskscope_service.pages import charts
from daskscope_service.pages.chart_svg import (
    HEIGHT,
    WIDTH,
    MarksPicture,
    Picture,
    clock,
    marks_picture,
    picture,
)
from daskscope_service.pages.period import Period, PeriodLink, as_data, in_words, links, period_of
from daskscope_service.queries.chart_annotations import MOST_MARKS, ChartAnnotations, list_marks
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.services import services
from daskscope_service.telemetry.store import MOST_AVERAGED, Unavailable
from daskscope_service.web.problems import Problem

blueprint = Blueprint("charts", __name__)

#: The script asks for new data twice per point of a line, but at most once in this many seconds.
_REFRESH = 5.0
#: After this many missing measurements, the page notes how old the newest one is.
_MISSED = 4

_KINDS = {
    "computation": ("computation", "computations"),
    "failure": ("group of equal failures", "groups of equal failures"),
    "loss": ("worker lost", "workers lost"),
}


@dataclass(frozen=True, slots=True)
class OverTime:
    """The charts of one cluster in a period, for the template.

    ``unavailable`` is the reason why no chart can be shown, else "". ``notes`` are sentences for
    the reader, and ``counted`` the number of marks by kind.
    """

    words: str
    spans: list[PeriodLink]
    moves: list[PeriodLink]
    pictures: list[Picture]
    marks: MarksPicture
    clock: tuple[str, str, str]
    counted: list[tuple[str, str]]
    notes: str
    unavailable: str
    size: tuple[int, int] = (WIDTH, HEIGHT)


def over_time(scope: Scope, cluster: ClusterView, span: str | None) -> OverTime:
    """Return the charts of ``cluster`` for the period that the request asks for.

    ``span`` names the default period; if it is None, :func:`.period_of` chooses one.
    """
    period = period_of(cluster, span)
    marks = list_marks(scope, cluster.id, period.since, period.until)
    plots: list[charts.Plot] = []
    unavailable = ""
    try:
        plots = _plots(cluster, period, charts.PAGE_STEPS)
    except Unavailable as error:
        unavailable = str(error)
    return OverTime(
        in_words(period),
        *links(period),
        [picture(plot, period) for plot in plots],
        marks_picture(marks.items, period),
        clock(period),
        _counted(marks),
        _notes(cluster, period, plots, marks),
        unavailable,
    )


@blueprint.get("/clusters/<cluster_id>/charts")
@signed_in
def data(cluster_id: str) -> ResponseReturnValue:
    """Answer with what the script draws, and with the seconds after which it should ask again."""
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
        period = period_of(cluster)
        marks = list_marks(scope, cluster_id, period.since, period.until)
    try:
        plots = _plots(cluster, period, charts.SCRIPT_STEPS)
    except Unavailable as error:
        raise Problem(
            503, f"The charts are not available: {error}.", title="No time series"
        ) from None
    spans, moves = links(period)
    return jsonify(
        since=period.since,
        words=in_words(period),
        until=period.until,
        every=max(_REFRESH, period.seconds / charts.SCRIPT_STEPS / 2) if period.live else None,
        spans=[as_data(link) for link in spans],
        moves=[as_data(link) for link in moves],
        notes=_notes(cluster, period, plots, marks),
        counted=_counted(marks),
        marks=[[mark.kind, mark.since, mark.until, mark.words] for mark in marks.items],
        charts=[_as_data(plot, period) for plot in plots],
    )


def _plots(cluster: ClusterView, period: Period, steps: int) -> list[charts.Plot]:
    store = services().series
    return charts.read_plots(store, g.workspace, cluster.id, period, steps, cluster.interval)


def _as_data(plot: charts.Plot, period: Period) -> dict[str, Any]:
    return {
        "id": plot.chart.id,
        "title": plot.chart.title,
        "unit": plot.chart.unit,
        # Tenths of a second since the beginning of the period: few digits keep the answer small.
        "times": [round(10 * (at - period.since)) for at in plot.times],
        "lines": [
            {
                "label": line.label,
                "colour": line.colour,
                "stacked": line.stacked,
                "values": [_short(value) for value in line.values],
                "last": _short(line.last),
            }
            for line in plot.lines
        ],
    }


def _short(value: float | None) -> float | int | None:
    """Return a value with four significant digits: the charts show no more."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def _counted(marks: ChartAnnotations) -> list[tuple[str, str]]:
    """Return each kind of mark that occurs, with its number in words: ``3 failures``."""
    counted = []
    for kind, (one, many) in _KINDS.items():
        number = marks.numbers[kind]
        if number:
            more = "the newest " if kind in marks.cut else ""
            counted.append((kind, f"{more}{number} {one if number == 1 else many}"))
    return counted


def _notes(
    cluster: ClusterView, period: Period, plots: Sequence[charts.Plot], marks: ChartAnnotations
) -> str:
    notes = []
    if any(plot.sampled for plot in plots):
        notes.append(
            f"Over such a long time, each point shows the last {MOST_AVERAGED} measurements "
            "in its step, not all of them."
        )
    if marks.cut:
        kinds = " and ".join(_KINDS[kind][1] for kind in marks.cut)
        notes.append(
            f"There were more {kinds} than the charts mark: only the newest {MOST_MARKS} are "
            "marked."
        )
    newest = max((plot.times[-1] for plot in plots if plot.times), default=None)
    if period.live and newest is not None:
        old = time.time() - newest
        if old > _MISSED * cluster.interval + period.seconds / charts.PAGE_STEPS:
            notes.append(f"The newest measurement is {duration(old)} old.")
    return " ".join(notes)
