"""Summarises a job: its usual run, its changes, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from daskscope_service.db.readable import Readable
from daskscope_service.insight.jobs.changes import LEAST_RUNS, Change, changes, spread
from daskscope_service.insight.wording import duration, percent, plural

#: Shorter runs are not compared: their start and end take about as long as their work.
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Changed:
    """A change, with the start, the cluster and the id of the first run after it.

    ``run_before`` is the id of the last passed run before it.
    """

    at: float
    cluster: str
    computation: str
    change: Change
    run_before: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of the newest runs of a job.

    ``duration`` and ``task_seconds`` are medians of the passed runs since the last change, and
    ``spread`` is their variation as a share of ``duration``; all are None if no run has passed.
    ``passed`` counts the passed runs among those that were read.
    """

    passed: int
    changes: Sequence[Changed]
    duration: float | None
    spread: float | None
    task_seconds: float | None
    sentence: str


def summed_up(runs: Sequence[Readable]) -> Summary:
    """Return the summary of ``runs``, oldest first.

    They are rows of :mod:`~daskscope_service.queries.job_runs`.
    """
    passed = [run for run in runs if has_passed(run)]
    if not passed:
        return Summary(0, (), None, None, None, "No run of it has passed yet.")
    durations = [run["duration"] for run in passed]
    changed = [
        Changed(
            run["started_at"], run["cluster"], run["id"], change, passed[change.index - 1]["id"]
        )
        for change in changes(durations)
        if (run := passed[change.index])
    ]
    since = changed[-1].change.index if changed else 0
    usual = median(durations[since:])
    tasks = median(run["task_seconds"] for run in passed[since:])
    varies = spread(durations[since:])
    return Summary(
        len(passed), changed, usual, varies, tasks, _sentence(len(passed), usual, varies, changed)
    )


def has_passed(run: Readable) -> bool:
    """Return whether a run finished without errors and is not too short to be compared."""
    return bool(
        run["status"] == "finished" and not run["erred"] and run["duration"] >= _LEAST_SECONDS
    )


def _sentence(passed: int, usual: float, varies: float, changed: Sequence[Changed]) -> str:
    if passed < LEAST_RUNS:
        few = "Only one run has" if passed == 1 else f"Only {passed} runs have"
        return f"It takes {duration(usual)}. {few} passed: too few to say whether it changed."
    if not changed:
        within = f", give or take {percent(varies)}" if varies >= 0.005 else ""
        return (
            f"It usually takes {duration(usual)}{within}; "
            f"nothing changed over the last {plural(passed, 'passed run')}."
        )
    last = changed[-1].change
    return (
        f"It takes {longer(last.share)} before: {duration(last.after)} instead of "
        f"{duration(last.before)}, for the last {plural(last.runs_after, 'passed run')}."
    )


def longer(share: float) -> str:
    """Return in words how ``share`` changes a duration: ``38 % longer than``."""
    if share >= 1:
        return f"{1 + share:.1f} times as long as"
    return f"{percent(abs(share))} {'longer' if share > 0 else 'less'} than"
