"""Places the runs of a job as dots over time, in per cent of the drawing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from daskscope_service.db.scope import Item
from daskscope_service.insight.views import JobDetail
from daskscope_service.insight.wording import duration, money, size

#: What the drawing can show of runs: by field, its label and its unit.
MEASURES: dict[str, tuple[str, str]] = {
    "duration": ("Time", "s"),
    "task_seconds": ("Time in tasks", "s"),
    "cost": ("Cost", "money"),
    "largest_output": ("Largest result", "By"),
    "transferred_bytes": ("Transferred", "By"),
    "spilled_bytes": ("Spilled", "By"),
}

#: Margin on the left and right, in per cent, so that no dot is cut.
_SIDE = 1.5


@dataclass(frozen=True, slots=True)
class Dot:
    """A run. ``kind`` is passed, failed or running; ``words`` describe it."""

    x: float
    y: float
    kind: str
    words: str
    run: Item


@dataclass(frozen=True, slots=True)
class Level:
    """The usual time of runs between two changes."""

    since: float
    until: float
    y: float


@dataclass(frozen=True, slots=True)
class RunMark:
    """A run that differs from the one before, such as in versions or code."""

    x: float
    words: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Dots:
    """The drawing. ``top`` and ``half`` label two heights; ``sentence`` says what it shows."""

    dots: list[Dot]
    levels: list[Level]
    marks: list[RunMark]
    top: str
    half: str
    first_at: float
    last_at: float
    sentence: str


def dots(job: JobDetail, measure: str) -> Dots | None:
    """Return the drawing of a job's runs, or None if ``measure`` is known for no run."""
    runs = [run for run in job.run_list if run[measure] is not None]
    if not runs:
        return None
    first, last = runs[0]["started_at"], runs[-1]["started_at"]
    top = _round_above(max(run[measure] for run in runs))
    unit = MEASURES[measure][1]

    def x(at: float) -> float:
        share: float = (at - first) / (last - first or 1.0)
        return round(_SIDE + (100 - 2 * _SIDE) * share, 2)

    def y(value: float) -> float:
        return round(100 - 92 * value / top, 2) if top else 100.0

    def words(value: float, run: Item | None = None) -> str:
        if unit == "money":
            return money(value, (run or runs[-1])["currency"])
        return duration(value) if unit == "s" else size(value)

    shown = [
        Dot(
            x(run["started_at"]),
            y(run[measure]),
            "passed" if run["passed"] else "running" if run["status"] == "running" else "failed",
            f"{words(run[measure], run)}, {run['status']}, {run['user']}",
            run,
        )
        for run in runs
    ]
    marks = [
        RunMark(x(run["started_at"]), "; ".join(run["differs"]), run["changed"])
        for run in runs
        if run["differs"] or run["changed"]
    ]
    levels = _levels(job, x, y) if measure == "duration" else []
    least, most = (words(pick(run[measure] for run in runs)) for pick in (min, max))
    sentence = f"{len(runs)} runs; {MEASURES[measure][0].lower()} from {least} to {most}"
    return Dots(shown, levels, marks, words(top), words(top / 2), first, last, sentence)


def _levels(
    job: JobDetail, x: Callable[[float], float], y: Callable[[float], float]
) -> list[Level]:
    passed = [run for run in job.run_list if run["passed"]]
    if not passed or job.duration is None:
        return []
    bounds = [
        passed[0]["started_at"],
        *(one["at"] for one in job.changes),
        passed[-1]["started_at"],
    ]
    values = [*(one["before"] for one in job.changes), job.duration]
    return [
        Level(x(since), x(until), y(value))
        for since, until, value in zip(bounds, bounds[1:], values, strict=False)
    ]


def _round_above(value: float) -> float:
    """Return a round number that is at least ``value``."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)
