"""What the usual run of a job takes, by the runs before the one that is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.changes import LEAST_RUNS
from daskscope_service.insight.jobs.summary import has_passed, summed_up


@dataclass(frozen=True, slots=True)
class Usual:
    """What ``runs`` passed runs took since the last change: medians.

    ``spread`` is how far they are from ``duration``, as a share of it. ``cost`` is None where they
    have none, or not all in one currency.
    """

    runs: int
    duration: float
    spread: float
    cost: float | None
    currency: str | None
    price_source: str | None


def usual_of(runs: Sequence[Readable]) -> Usual | None:
    """Return what is usual among ``runs``, oldest first; None where too few have passed.

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
