"""The rule that compares with earlier runs: work that takes longer than before."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence, Slower
from daskscope_service.insight.findings.finding import Action, Finding, Measure, Outcome, Saving
from daskscope_service.insight.findings.mass import severity_of, share_of
from daskscope_service.insight.jobs.summary import longer
from daskscope_service.insight.wording import duration, plural

#: The most simultaneous changes that the clause names.
_MOST_CANDIDATES = 4


def slower_than_before(evidence: Evidence) -> Outcome:
    """Runs of its job take longer since a change, and so did this one.

    How it is found: the passed runs of the [job](jobs.md) changed at a point in time, by the rules
    there: nothing is said of fewer than five. Since then they take at least 10 % and a second
    longer, as medians, and so did this run, which finished without a task run that erred. A run of
    more tasks than the last one before the change may take as much longer. If the runs have only
    the shape of their graphs in common, nothing is said where this one, or the first one since the
    change, has a tenth more or fewer tasks than that: it may be other work.

    What to do: compare a run with the last one before the change. Versions of packages and code
    that changed at the same time are named; nothing says that they are the cause.

    Example: it takes 2.0 times as long as before: 20.0 s instead of 10.0 s, for the last 6 passed
    runs; at the same time changed: dask 2026.8.0 → 2026.9.0; other code.
    """
    run, slower, limits = evidence.run, evidence.slower, evidence.thresholds
    if run is None or slower is None or run.status != "finished" or run.erred:
        return None
    grown = _grown(slower, run.tasks)
    if slower.by_shape and not all(0.9 <= one <= 1.1 for one in (grown, _grown(slower))):
        return None
    before = slower.before * max(grown, 1.0)
    least = max(limits["slower.share"] * before, limits["slower.seconds"])
    if min(slower.after, run.duration) - before < least:
        return None
    threads = evidence.threads
    lost = run.duration - before
    some = [*slower.candidates[:_MOST_CANDIDATES]]
    if left := len(slower.candidates) - len(some):
        some.append(f"{left} more")
    changed = f"; at the same time changed: {'; '.join(some)}" if some else ""
    measures = [
        Measure("median of the runs before", slower.before, "s"),
        Measure("median of the runs since", slower.after, "s"),
        Measure("this run", run.duration, "s"),
        Measure("runs before", slower.runs_before, "{run}"),
        Measure("runs since", slower.runs_after, "{run}"),
    ]
    if slower.chance is not None:
        measures.append(Measure("probability by chance", slower.chance, "1"))
    return Finding(
        rule="slower-than-before",
        severity=severity_of(evidence, lost * (threads or 1.0), evidence.capacity),
        clause=f"it takes {longer(slower.after / slower.before - 1)} before: "
        f"{duration(slower.after)} instead of {duration(slower.before)}, for the last "
        f"{plural(slower.runs_after, 'passed run')}{changed}",
        evidence=tuple(measures),
        actions=(
            Action(
                "Compare it with the last run before the change.",
                f"daskscope compare {slower.run_before} {run.id}",
            ),
        ),
        seconds=None if threads is None else lost * threads,
        share=None if threads is None else share_of(lost * threads, evidence.capacity),
        saving=Saving(0.0, lost, "s", "time of this run - median of the runs before"),
        confidence="medium" if slower.chance is None else "high",
    )


def _grown(slower: Slower, tasks: int | None = None) -> float:
    """Return how many times as many ``tasks`` there are as before the change; 1 if not known.

    By default they are those of the first run since.
    """
    tasks = slower.tasks_since if tasks is None else tasks
    return 1.0 if tasks is None or not slower.tasks_before else tasks / slower.tasks_before
