"""The usual duration and cost of a job's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.changes import LEAST_RUNS
from daskscope_service.insight.jobs.summary import has_passed, summed_up


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
