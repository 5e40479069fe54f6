"""A chart as SVG: areas, lines, marks and scales, out of numbers alone.

It is as wide as its place. What must not be stretched is placed in per cent, outside of the drawing
whose size is ``WIDTH`` by ``HEIGHT``.
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

#: Marks of a kind up to which each has a line from top to bottom; more would hide the chart. How
#: high the lines of more are.
_FEW, _SHORT = 20, 14


@dataclass(frozen=True, slots=True)
class Curve:
    """A line. ``path`` is the area under it where it is ``stacked``; the tallest comes first."""

    line: Drawn
    path: str


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line's entry in the legend: its value at the end."""

    line: Drawn
    value: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart ready for its template. ``top`` and ``half`` say what two heights are."""

    plot: Plot
    curves: list[Curve]
    keys: list[LegendEntry]
    top: str
    half: str
    sentence: str


@dataclass(frozen=True, slots=True)
class MarksPicture:
    """Marks as paths of the same size as the curves; ``signs`` are a kind and per cent from left.

    A computation is a band with a bar on top, the others are lines with a sign below; short lines
    where there are many.
    """

    bands: str
    bars: str
    failures: str
    losses: str
    signs: list[tuple[str, float]]


def picture(plot: Plot, period: Period) -> Picture:
    """Return how ``plot`` is drawn from the beginning of ``period`` to its end."""
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
    keys = [LegendEntry(line, words(unit, _last(line.values))) for line in plot.lines]
    return Picture(
        plot, curves, keys, words(unit, top), words(unit, top / 2), _sentence(plot, keys)
    )


def marks_picture(marks: Sequence[ChartMark], period: Period) -> MarksPicture:
    """Return how ``marks`` are drawn on every chart of ``period``."""

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
    """Return what the beginning, the middle and the end of ``period`` are called, in UTC."""
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


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _heights(lines: Iterable[Drawn]) -> list[list[float | None]]:
    """Return how high each line is drawn: stacked ones stand on those before them."""
    below: list[float] = []
    found = []
    for line in lines:
        if not line.stacked:
            found.append(line.values)
            continue
        below = below or [0.0] * len(line.values)
        below = [base + (value or 0) for base, value in zip(below, line.values, strict=True)]
        found.append(
            [None if value is None else height
             for value, height in zip(line.values, below, strict=True)]
        )  # fmt: skip
    return found


def _round_above(value: float, unit: str) -> float:
    """Return a number at or above ``value`` that reads well: 1, 2 or 5 and zeros, or a power."""
    # Of a number that is next to nothing, the power below would be 0, and no step of it enough.
    if value <= (1 if unit == "count" else 0) or unit == "share":
        return 1.0
    if unit != "count":
        power = 2.0 ** math.floor(math.log2(value))
        return next(step * power for step in (1, 1.5, 2) if step * power >= value)
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(step * power for step in steps if step * power >= value)


def _y(value: float | None, top: float) -> int | None:
    """Return where ``value`` is drawn: within the chart, whatever a cluster has reported."""
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
