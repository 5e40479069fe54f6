"""Rules about work that failed, was cancelled, or had to be done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from daskscope.names import LOSS_OUT_OF_MEMORY
from daskscope_service.insight.findings.evidence import Evidence, FailureGroup, Loss, Run
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    Outcome,
)
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.findings.savings import of_the_run, time_saving
from daskscope_service.insight.verdict import held_by_in_words
from daskscope_service.insight.wording import duration, number, plural, size

#: Seconds after the end of a computation in which the scheduler may notice its worker losses.
_NOTED_LATE = 5.0

#: What Dask raises for tasks whose workers died again and again.
KILLED_WORKER = "KilledWorker"


def silent(evidence: Evidence) -> Outcome:
    """The cluster fell silent without saying that it stopped.

    Its scheduler died, was killed, or cannot reach the service any more. The service knows no more
    than the last heartbeat said.

    How it is found: a cluster that was not in its client's process, or had work, missed three
    heartbeats, and did not report that it stopped.

    What to do: look at the logs of the scheduler's process or container. If a platform ended it
    for its memory, give the scheduler more.

    Example: It fell silent after 15.7 s with 2 workers, while 1 client was connected.
    """
    cluster = evidence.cluster
    if evidence.run is not None or cluster.status != "lost":
        return None
    kept = held_by_in_words(cluster.held_by)
    had = f" with {plural(cluster.workers, 'worker')}" if cluster.workers else ""
    doing = f"; it last reported {kept}" if kept else "; it had no work when it was last heard"
    return Finding(
        rule="silent",
        severity="critical",
        clause=f"it fell silent after {duration(cluster.duration)}{had}{doing}",
        evidence=(
            Measure("up", cluster.duration, "s"),
            Measure("workers", cluster.workers, "{worker}", "h-losses"),
        ),
        actions=(Action("Look at the log of the scheduler's process or container."),),
    )


def out_of_memory(evidence: Evidence) -> Outcome:
    """Workers were ended because they ran out of memory.

    A worker's nanny ends its process at 95 % of the memory that it may use. The tasks that it ran
    are started again on another worker, and after the fourth such end Dask gives up
    (KilledWorker).

    How it is found: workers left unexpectedly, their nannies reported that they ended them for
    their memory, and runs of this computation ended with them.

    What to do: split the input so that one task needs less, run fewer threads in a worker, or give
    the workers more memory: the most that one had, and a quarter more.

    Example: its tasks of grow ran 5 workers out of memory, at 277 MiB to 309 MiB of the 286 MiB
    that each may use; Dask gave up.
    """
    run = evidence.run
    killed = [
        loss
        for loss in evidence.losses
        if not loss.expected
        and (loss.reason == LOSS_OUT_OF_MEMORY or loss.nanny_memory is not None)
        and (run is None or is_of(loss, run))
    ]
    if not killed:
        return None
    ends = [max(loss.nanny_memory or 0, loss.peak_memory or 0) for loss in killed]
    seen = [end for end in ends if end]
    limits = [loss.memory_limit for loss in killed if loss.memory_limit]
    at = f", at {between(min(seen), max(seen))}" if seen else ""
    of = f" of the {size(max(limits))} that each may use" if seen and limits else ""
    who = common_prefix(killed, run)
    where = "h-losses" if run is None else "h-lost" if any(o.computations for o in killed) else None
    subject = f"its tasks of {who} ran" if who else "its tasks ran"
    gave_up = run is not None and any(KILLED_WORKER in failed.type for failed in run.failures)
    wanted = max(seen, default=0) * evidence.thresholds["memory.headroom"]
    actions = [Action("Split the input so that one task needs less memory.")]
    if wanted:
        actions.append(Action("Give each worker more memory.", f"at least {size(wanted)}"))
    return Finding(
        rule="out-of-memory",
        severity="critical",
        clause=f"{subject} {plural(len(killed), 'worker')} out of memory{at}{of}"
        + ("; Dask gave up" if gave_up else ""),
        evidence=(
            Measure("workers lost", len(killed), "{worker}", where),
            *((Measure("memory at the end", max(seen), "By", where),) if seen else ()),
            *((Measure("memory limit", max(limits), "By"),) if limits else ()),
        ),
        actions=tuple(actions),
        saving=of_the_run(evidence) if run is not None and run.status == "erred" else None,
    )


def failed(evidence: Evidence) -> Outcome:
    """Tasks raised exceptions, and the computation failed.

    If only a few of many tasks of a group raised, their inputs are the first thing to look at: the
    same function worked for all others.

    How it is found: the computation erred, and exceptions of its own tasks were reported. Few are
    at most 5 % of a group of at least 20 tasks.

    What to do: read the traceback below; it names the line. `future.retry()` runs failed tasks
    again.

    Example: 1 of 200 tasks of `parse` raised ZeroDivisionError; 199 tasks are done.
    """
    run = evidence.run
    if run is None or run.status != "erred" or not run.failures:
        return None
    worst = max(run.failures, key=lambda one: (one.count - one.retried, one.count))
    raised = _types(worst, run.failures)
    link = f"failure-{worst.fingerprint}"
    group = max(run.groups, key=lambda one: one.erred, default=None)
    if not run.tasks:
        clause = f"its graph could not be loaded on the scheduler: {worst.type}"
        measures: tuple[Measure, ...] = ()
    elif group is not None and group.erred and group.tasks >= group.erred:
        clause = (
            f"{number(group.erred)} of {plural(group.tasks, 'task')} of {group.prefix} raised "
            f"{raised}; {plural(run.done, 'task')} {'is' if run.done == 1 else 'are'} done"
        )
        measures = (
            Measure("tasks that erred", group.erred, "{task}", f"group-{group.name}"),
            Measure("tasks of the group", group.tasks, "{task}", f"group-{group.name}"),
        )
    else:
        clause = f"{plural(run.erred, 'task run')} raised {raised}"
        measures = (Measure("runs that erred", run.erred, "{run}", link),)
    limits = evidence.thresholds
    few = (
        group is not None
        and group.tasks >= limits["bad-input.tasks"]
        and 0 < group.erred <= limits["bad-input.share"] * group.tasks
    )
    what = (
        "Look at the inputs of these few tasks: the same function worked for the others."
        if few
        else "Read the traceback: it names the line that raised."
    )
    return Finding(
        rule="failed",
        severity="critical",
        clause=clause,
        evidence=(Measure("exceptions", worst.count, "{exception}", link), *measures),
        actions=(Action(what),),
        saving=of_the_run(evidence),
    )


def upstream_failed(evidence: Evidence) -> Outcome:
    """Tasks were not run, because a task that they need had failed before.

    None of this computation's own tasks raised an exception: they need a result of another
    computation, which failed.

    How it is found: for tasks that never ran, the cluster reported which failed task they depend
    on, and none of this computation's own tasks failed. Older plugins do not report the failed
    task.

    What to do: look at the failure of the other computation, and compute it again.

    Example: 2 of 201 tasks need divide, which failed with ZeroDivisionError; 199 are done.
    """
    run = evidence.run
    if run is None or run.erred or run.status not in ("erred", "running"):
        return None
    if not run.blamed and (run.status == "running" or run.failures):
        return None
    missing = run.blamed or max(run.tasks - run.done, 0)
    of = f"{number(missing)} of {plural(run.tasks, 'task')}"
    needed = ", ".join(sorted(set(run.blames.values())))
    causes = [one for one in evidence.causes if run.blames.get(one.computation) == needed]
    if causes:
        raised = _types(causes[0], causes)
        why = f"{'needs' if missing == 1 else 'need'} {needed}, which failed with {raised}"
    elif needed:
        why = f"{'needs' if missing == 1 else 'need'} one that failed: {needed}"
    else:
        why = f"{'was' if missing == 1 else 'were'} not run: a task that they need had failed"
    are = "" if run.status == "running" else f"; {_are(run.done)} done"
    return Finding(
        rule="upstream-failed",
        severity="critical",
        clause=f"{of} {why}{are}",
        evidence=(
            Measure("tasks not run", missing, "{task}", "never-ran" if run.blamed else None),
        ),
        actions=(Action("Look at the computation whose task failed, and compute it again."),),
        confidence="high" if needed else "medium",
    )


def _types(named: FailureGroup, failures: Iterable[FailureGroup]) -> str:
    """Return the type of ``named``, and whether others of ``failures`` have another."""
    others = {one.type for one in failures if one.count > one.retried} - {named.type}
    return f"{named.type} or another exception" if others else named.type


def _are(count: int) -> str:
    return f"{number(count)} {'is' if count == 1 else 'are'}"


def cancelled(evidence: Evidence) -> Outcome:
    """Tasks were given up before they were done.

    A client cancelled them, released their futures, or went away.

    How it is found: Dask reported that tasks which had something to do were released.

    What to do: nothing, if that was meant. Otherwise keep the futures until they are done, and the
    client connected.

    Example: its client cancelled 156 tasks before they were done; its tasks had computed for
    22.0 s.
    """
    run = evidence.run
    if run is None or run.status != "cancelled":
        return None
    spent = sum(run.seconds.values())
    thrown = f"; its tasks had computed for {duration(spent)}" if spent >= 1 else ""
    return Finding(
        rule="cancelled",
        severity="notice",
        clause=f"its client cancelled {plural(run.cancelled, 'task')} before "
        f"{'it was' if run.cancelled == 1 else 'they were'} done{thrown}",
        evidence=(
            Measure("tasks given up", run.cancelled, "{task}", "h-groups"),
            Measure("tasks done", run.done, "{task}", "h-groups"),
        ),
        seconds=spent,
        share=share_of(spent, evidence.capacity),
    )


def retries(evidence: Evidence) -> Outcome:
    """Runs failed and were repeated: retries hide failures, and cost time.

    How it is found: at least 5 % of the task runs failed and were run again.

    What to do: mend what raises, or wait longer between two attempts inside the task.

    Example: 120 of 180 runs failed with ConnectionError and were run again.
    """
    run = evidence.run
    if run is None or not run.retried:
        return None
    runs = run.completed + run.erred + run.retried
    # Earlier versions did not check counts, so stored rows may have negative ones.
    if runs <= 0 or run.retried < evidence.thresholds["retries.share"] * runs:
        return None
    worst = max(run.failures, key=lambda one: one.retried, default=None)
    kind = ""
    if worst is not None and worst.retried:
        of_type = sum(one.retried for one in run.failures if one.type == worst.type)
        counted = "" if of_type >= run.retried else f", {number(of_type)} of them"
        kind = f"{counted} with {worst.type}{',' if counted else ''}"
    # A failed run took about as long as any other.
    lost = run.compute * run.retried / runs
    link = None if worst is None else f"failure-{worst.fingerprint}"
    return Finding(
        rule="retries",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"{number(run.retried)} of {plural(runs, 'run')} failed{kind} and "
        f"{'was' if run.retried == 1 else 'were'} run again",
        evidence=(
            Measure("runs that were repeated", run.retried, "{run}", link),
            Measure("runs", runs, "{run}", "h-groups"),
        ),
        actions=(
            Action(
                "Fix the cause of the exception, or let the task itself wait before it tries again."
            ),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=time_saving(evidence, lost, "failed runs × mean compute seconds"),
        confidence="high" if worst is not None else "medium",
    )


def recomputed(evidence: Evidence) -> Outcome:
    """Results were lost with their workers, and computed again.

    How it is found: more runs completed than tasks are done, while workers left unexpectedly.

    What to do: run the workers where they stay, or persist and write results that took long.

    Example: 1,240 results were lost with their workers and computed again.
    """
    run = evidence.run
    if run is None or run.status == "running" or not is_worth_profiling(evidence):
        return None
    again = run.completed - run.done
    gone = [
        one
        for one in evidence.losses
        if not one.expected and run.started_at <= one.at <= run.ended_at
    ]
    if again <= 0 or not gone or not run.completed:
        return None
    lost = run.compute * again / run.completed
    return Finding(
        rule="recomputed",
        severity=severity_of(evidence, lost, evidence.capacity),
        # Without the number of workers: those that left after its end may have taken results, too.
        clause=f"{plural(again, 'result')} {'was' if again == 1 else 'were'} lost with "
        f"{'its worker' if again == 1 else 'their workers'} and computed again",
        evidence=(
            Measure("results lost", again, "{result}", "h-groups"),
            Measure("workers lost while it ran", len(gone), "{worker}", "h-lost"),
        ),
        actions=(Action("Run the workers where they stay, or write results that took long."),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=time_saving(evidence, lost, "runs again × mean compute seconds"),
    )


def is_of(loss: Loss, run: Run) -> bool:
    """Return whether runs of ``run`` ended with that worker.

    Older plugins do not report the computations: for these, compare the prefixes of tasks.
    """
    if not run.started_at <= loss.at <= run.ended_at + _NOTED_LATE:
        return False
    if loss.computations:
        return run.id in loss.computations
    return any(group.prefix in loss.tasks for group in run.groups)


def common_prefix(losses: list[Loss], run: Run | None) -> str | None:
    """Return the prefix of which all lost workers had tasks; None unless there is exactly one.

    With ``run``, only its own prefixes count: the workers may have had others' tasks, too.
    """
    seen = Counter(prefix for loss in losses for prefix in loss.tasks)
    own = seen.keys() if run is None else {group.prefix for group in run.groups}
    common = [one for one, count in seen.items() if count == len(losses) and one in own]
    return common[0] if len(common) == 1 else None


def between(least: float, most: float) -> str:
    """Return two sizes as a range, or as one size if they read the same."""
    return size(least) if size(least) == size(most) else f"{size(least)} to {size(most)}"
