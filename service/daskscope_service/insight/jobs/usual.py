"""The usual duration and cost of a job's runs, and how much equal ones differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.changes import LEAST_RUNS, changes, spread
from daskscope_service.insight.jobs.summary import has_passed, summed_up

#: By how many standard deviations of their difference two equal runs may differ.
_TIMES = 3.0


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians of the passed runs since the last change; ``runs`` is their number.

    ``spread`` is their variation as a share of ``duration``. ``cost`` is None unless all runs have
    costs in the same currency.
    """

    runs: int
    duration: float
    spread: float
    cost: float | None
    currency: str | None
    price_source: str | None


def usual_of(runs: Sequence[Readable]) -> Usual | None:
    """Return what is usual among ``runs``, oldest first; None if too few have passed.

    They are rows of :mod:`~daskscope_service.queries.job_runs`.
    """
    summary = summed_up(runs)
    if summary.passed < LEAST_RUNS or summary.duration is None or summary.spread is None:
        return None
    passed = [run for run in runs if has_passed(run)]
    since = passed[summary.changes[-1].change.index if summary.changes else 0 :]
    costs = [run["cost"] for run in since if run["cost"] is not None]
    currencies = {run["currency"] for run in since}
    priced = len(costs) == len(since) and len(currencies) == 1
    return Usual(
        len(since),
        summary.duration,
        summary.spread,
        median(costs) if priced else None,
        since[-1]["currency"] if priced else None,
        since[-1]["price_source"] if priced else None,
    )


def differ_by(runs: Sequence[Readable], a: str, b: str) -> float | None:
    """Return by how many seconds the runs ``a`` and ``b`` may differ if they did the same.

    It is what runs between two changes of their job vary by, of the stretches that the two belong
    to; None if too few have passed. ``runs`` are in order, oldest first.
    """
    passed = [run for run in runs if has_passed(run)]
    if len(passed) < LEAST_RUNS:
        return None
    cuts = [change.index for change in changes([run["duration"] for run in passed])]
    stretches = [passed[i:j] for i, j in pairwise([0, *cuts, len(passed)])]
    own = [some for some in stretches if {a, b} & {run["id"] for run in some}]
    # Runs beyond those that were read are as the oldest of these.
    return max(_within(some, {a, b}) for some in own or stretches[:1])


def _within(runs: Sequence[Readable], two: set[str]) -> float:
    """Return by how many seconds two of these runs usually differ, times :data:`_TIMES`.

    The spread alone says too little where only some runs are disturbed: most are near the median.
    So the differences of runs in a row count as well, without those of the two runs, and without
    the two largest: of one run that was disturbed more than all others, or of a change that too few
    runs confirm yet.
    """
    durations: list[float] = [run["duration"] for run in runs]
    varies = math.sqrt(2) * spread(durations) * median(durations)
    steps: list[float] = [
        abs(later["duration"] - run["duration"])
        for run, later in pairwise(runs)
        if not {run["id"], later["id"]} & two
    ]
    squares = sorted(step**2 for step in steps)[:-2]
    return _TIMES * max(varies, math.sqrt(fmean(squares)) if squares else 0.0)
