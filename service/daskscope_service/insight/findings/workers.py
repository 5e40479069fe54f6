"""Rules about single workers: slow ones, and slow first tasks on each."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence, Group, Share
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
    Saving,
)
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.wording import duration, number, percent, plural


def slow_worker(evidence: Evidence) -> Outcome:
    """A worker needed much longer than the others for the same tasks.

    Its machine may be shared, throttled or swapping; or its disk or network is slow.

    How it is found: for each worker, what its runs of each task group computed is compared with
    what runs of the same groups took on all workers on average. It is slow where it needed at
    least twice as long in at least 4 runs, the longest one not counted; where that cost a tenth of
    the computation's time or more; and where at most half of the workers are so slow.

    What to do: look at that worker's machine and its log, or replace the worker. Dask does not
    take tasks away from a worker because it is slow.

    Example: its 5 tasks on worker tcp://10.0.0.7:33323 took 1.5 s each; tasks like them took
    152 ms on average.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    if run.workers is None:
        return NotMeasured("what each worker did for it")
    if run.workers < 2:
        return None
    slow = [
        share
        for share in run.shares
        if share.runs >= limits["slow-worker.runs"]
        and _times_usual(share) >= limits["slow-worker.times-usual"]
    ]
    if not slow or 2 * len(slow) > run.workers:
        return None
    lost = sum(share.seconds - share.usual_seconds for share in slow)
    worst = max(slow, key=lambda share: share.seconds - share.usual_seconds)
    threads = max((evidence.threads or run.workers) / run.workers, 1.0)
    longer = min((worst.seconds - worst.usual_seconds) / threads, run.duration)
    if longer < limits["slow-worker.share"] * run.duration:
        return None
    others = ""
    if len(slow) > 1:
        were = "was" if len(slow) == 2 else "were"
        others = f"; {plural(len(slow) - 1, 'other worker')} {were} slow, too"
    on_it = f"worker-{worst.worker}"
    return Finding(
        rule="slow-worker",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its {plural(worst.runs, 'task')} on worker {worst.worker} took "
        f"{duration(worst.seconds / worst.runs)} each; tasks like them took "
        f"{duration(worst.usual_seconds / worst.runs)} on average{others}",
        evidence=(
            Measure("computed on that worker", worst.seconds, "s", on_it),
            Measure("usual time of as many runs", worst.usual_seconds, "s", on_it),
            Measure("task runs on it", worst.runs, "{run}", on_it),
        ),
        actions=(Action("Look at that worker's machine and its log, or replace the worker."),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(0.0, longer, "s", "(its seconds - usual seconds) ÷ its threads"),
    )


def _times_usual(share: Share) -> float:
    """Return how many times as long as usual a worker's runs took, leaving out the longest."""
    runs = share.runs - 1
    usual = share.usual_seconds / share.runs
    return (share.seconds - share.longest) / runs / usual if runs and usual > 0 else 0.0


def warm_up(evidence: Evidence) -> Outcome:
    """The first task on each worker took long: it imported, compiled or connected first.

    How it is found: runs that were the first of their prefix on a worker took longer than all
    later ones of the same groups, by 2 s each or more, and by a fifth of all threads' time
    together.

    What to do: have workers import and connect before the work comes, with `--preload` or a
    worker plugin, or keep them for the next computation.

    Example: the first 8 tasks of `load`, one on each worker, took 14.0 s each, later ones 300 ms:
    34 % of the threads' time went into first runs.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    if run.workers is None:
        return NotMeasured("which runs were the first on their workers")
    beyond = [(group, _beyond_usual(group)) for group in run.groups]
    first_runs = [(group, lost) for group, lost in beyond if lost > 0]
    if not first_runs or not evidence.capacity:
        return None
    lost = sum(one for _, one in first_runs)
    group, of_group = max(first_runs, key=lambda one: one[1])
    runs, seconds = group.first_runs or 1, group.first_seconds or 0.0
    if (
        of_group / runs < limits["warm-up.seconds"]
        or lost < limits["warm-up.share"] * evidence.capacity
    ):
        return None
    later = (seconds - of_group) / runs
    return Finding(
        rule="warm-up",
        severity=severity_of(evidence, lost, evidence.capacity, signal="notice"),
        clause=f"the first {plural(runs, 'task')} of {group.prefix}, one on each worker, took "
        f"{duration(seconds / runs)} each, later ones {duration(later)}: "
        f"{percent(lost / evidence.capacity)} of the threads' time went into first runs",
        evidence=(
            Measure("first runs on workers", runs, "{run}", f"group-{group.name}"),
            Measure("a first run", seconds / runs, "s", f"group-{group.name}"),
            Measure("a later run", later, "s", f"group-{group.name}"),
        ),
        actions=(
            Action("Have workers import and connect before the work comes.", "--preload"),
            Action("Or keep the workers for the next computation."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(
            0.0,
            lost / (evidence.threads or 1),
            "s",
            f"{number(runs)} first runs × (a first run - a later run) ÷ threads",
        ),
        confidence="medium",
    )


def _beyond_usual(group: Group) -> float:
    """Return by how many seconds first runs on workers took longer than later ones would have.

    Return 0 if there were too few later runs.
    """
    runs, seconds = group.first_runs, group.first_seconds
    if not runs or seconds is None or group.completed < 2 * runs:
        return 0.0
    later = max(group.seconds.get("compute", 0.0) - seconds, 0.0) / (group.completed - runs)
    return seconds - runs * later
