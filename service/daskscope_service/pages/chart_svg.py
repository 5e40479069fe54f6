"""Turns a chart's numbers into SVG paths: areas, lines, marks and scales.

The browser stretches the drawing, which is ``WIDTH`` by ``HEIGHT`` units, to the width of the page.
Text and signs must not be stretched, so they lie outside the drawing, at positions in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from daskscope_service.pages.charts import Drawn, Plot, words
from daskscope_service.pages.period import Period
from daskscope_service.queries.chart_annotations import ChartMark
from daskscope_service.web.template_filters import moment

WIDTH, HEIGHT = 1000, 180

#: Up to ``_FEW`` marks of one kind are lines from top to bottom. More would hide the chart, so they
#: are only ``_SHORT`` units high.
_FEW, _SHORT = 20, 14


@dataclass(frozen=True, slots=True)
class Curve:
    """A line as an SVG path. If the line is stacked, ``path`` is the area under it."""

    line: Drawn
    path: str


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line's entry in the legend, with the line's last value."""

    line: Drawn
    value: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart ready for its template.

    Stacked ``curves`` come first, the tallest first, so that each is drawn over the one before.
    ``top`` and ``half`` are the labels of the scale at the chart's top and at half its height.
    """

    plot: Plot
    curves: list[Curve]
    keys: list[LegendEntry]
    top: str
    half: str
    sentence: str


@dataclass(frozen=True, slots=True)
class MarksPicture:
    """Marks as SVG paths, in the units of the curves.

    A computation is a band with a bar at its top. A failure or a lost worker is a line, which is
    short if there are many, with a sign below. ``signs`` holds the kind of each and its distance
    from the left in per cent.
    """

    bands: str
    bars: str
    failures: str
    losses: str
    signs: list[tuple[str, float]]


def picture(plot: Plot, period: Period) -> Picture:
    """Return the drawing of ``plot`` over ``period``."""
    heights = _heights(plot.lines)
    top = _round_above(
        max((v for row in heights for v in row if v is not None), default=0.0), plot.chart.unit
    )
    xs = [
        round((min(max(at, period.since), period.until) - period.since) / period.seconds * WIDTH)
        for at in plot.times
    ]
    curves = [
        Curve(line, _path(xs, [_y(value, top) for value in row], closed=line.stacked))
        for line, row in zip(plot.lines, heights, strict=True)
    ]
    curves.reverse()
    curves.sort(key=lambda curve: not curve.line.stacked)
    unit = plot.chart.unit
    keys = [LegendEntry(line, words(unit, _last(line))) for line in plot.lines]
    return Picture(
        plot, curves, keys, words(unit, top), words(unit, top / 2), _sentence(plot, keys)
    )


def marks_picture(marks: Sequence[ChartMark], period: Period) -> MarksPicture:
    """Return the drawing of ``marks``, which is the same on every chart of ``period``."""

    def place(at: float) -> float:
        return WIDTH * min(max((at - period.since) / period.seconds, 0), 1)

    def lines(kind: str) -> str:
        xs = [place(one.since) for one in marks if one.kind == kind]
        top = 0 if len(xs) <= _FEW else HEIGHT - _SHORT
        return "".join(f"M{x:.1f} {top}V{HEIGHT}" for x in xs)

    ran = []
    for one in marks:
        if one.kind == "computation":
            x = place(one.since)
            until = place(period.until if one.until is None else one.until)
            ran.append((x, max(until - x, 1.5)))
    return MarksPicture(
        "".join(f"M{x:.1f} 0h{width:.1f}v{HEIGHT}h{-width:.1f}z" for x, width in ran),
        "".join(f"M{x:.1f} 0h{width:.1f}v5h{-width:.1f}z" for x, width in ran),
        lines("failure"),
        lines("loss"),
        [
            (one.kind, round(100 * place(one.since) / WIDTH, 1))
            for one in marks
            if one.kind != "computation"
        ],
    )


def clock(period: Period) -> tuple[str, str, str]:
    """Return the labels of the time axis: the beginning, middle and end of ``period``, in UTC."""
    middle = period.since + period.seconds / 2
    form = "%H:%M:%S" if period.seconds < 600 else "%H:%M"
    if period.seconds > 86_400:
        form = "%-d %b %H:%M"
    first, half, last = (moment(at).strftime(form) for at in (period.since, middle, period.until))
    return first, half, f"{last} UTC"


def _sentence(plot: Plot, keys: list[LegendEntry]) -> str:
    parts = (
        f"{key.line.label} {key.value} at last, "
        f"{words(plot.chart.unit, max(v for v in key.line.values if v is not None))} at most"
        for key in keys
    )
    return f"{plot.chart.title}: {'; '.join(parts)}"


def _last(line: Drawn) -> float | None:
    if line.last is not None:
        return line.last
    return next((value for value in reversed(line.values) if value is not None), None)


def _heights(lines: Iterable[Drawn]) -> list[list[float | None]]:
    """Return the heights of each line. A stacked line stands on the stacked lines before it."""
    below: list[float] = []
    heights = []
    for line in lines:
        if not line.stacked:
            heights.append(line.values)
            continue
        below = below or [0.0] * len(line.values)
        below = [base + (value or 0) for base, value in zip(below, line.values, strict=True)]
        heights.append(
            [None if value is None else height
             for value, height in zip(line.values, below, strict=True)]
        )  # fmt: skip
    return heights


def _round_above(value: float, unit: str) -> float:
    """Return a round number at or above ``value``, for the top of a scale.

    Counts get a step of a power of ten. Bytes get 1, 1.5 or 2 times a power of two.
    """
    # For a count near 0, the power of ten would underflow to 0.
    if value <= (1 if unit == "count" else 0) or unit == "share":
        return 1.0
    if unit != "count":
        power = 2.0 ** math.floor(math.log2(value))
        return next(step * power for step in (1, 1.5, 2) if step * power >= value)
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value)


def _y(value: float | None, top: float) -> int | None:
    """Return the y of ``value``, kept within the chart: a cluster may report any number."""
    return None if value is None else round(HEIGHT * (1 - min(max(value, 0.0), top) / top))


def _path(xs: Sequence[int], ys: Sequence[int | None], *, closed: bool) -> str:
    path, run = "", 0
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            path += f"V{HEIGHT}Z" if closed and run else ""
            run = 0
            continue
        if run:
            path += f"L{x} {y}"
        elif closed:
            path += f"M{x} {HEIGHT}V{y}"
        else:
            path += f"M{x} {y}"
        run += 1
    return path + (f"V{HEIGHT}Z" if closed and run else "")
