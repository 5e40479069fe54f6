"""Rules about a busy scheduler, late or short-lived workers, stuck tasks, and loops of calls."""

from __future__ import annotations

from math import ceil

from daskscope_service.insight.findings.evidence import GATHERED, Evidence, Loop
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
    Saving,
)
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.findings.savings import in_money
from daskscope_service.insight.wording import duration, number, percent, plural

#: Seconds for which the action proposes to keep idle workers.
_WORTH_KEEPING = 60


def scheduler_bound(evidence: Evidence) -> Outcome:
    """The scheduler was busy all the time, and threads waited for it: more workers do not help.

    A scheduler is one process that uses one core. It needs from 0.2 to 1 ms for each task.

    How it is found: the scheduler's process used 90 % of a core or more on average while the
    computation ran alone, at least 250 tasks a second ended, and they computed for less than half
    of the threads' time. Where they took less than 10 ms each, the finding is `tiny-tasks`.

    What to do: make fewer tasks that take longer each, or start fewer workers, or one cluster for
    each part of the work.

    Example: its scheduler used 0.97 of a core for 1,450 tasks a second, and threads computed for
    31 % of the time: more workers will not help.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    runs = run.completed + run.erred
    rate = runs / run.duration
    if rate < limits["scheduler.rate"]:
        return None
    if meanwhile.scheduler_cpu is None or not meanwhile.alone:
        return NotMeasured("what the scheduler's process used")
    used, share = meanwhile.scheduler_cpu, evidence.computed_share
    if share is None:
        return NotMeasured("how many threads there were")
    own = used
    if evidence.cluster.in_client is not False:
        # Tasks may have run in the same process: subtract their CPU time.
        own -= meanwhile.activities.get("thread-cpu", 0.0) / run.duration
    if own < limits["scheduler.cpu"] or share >= limits["scheduler.computed"]:
        return None
    if run.compute / runs < limits["tiny-tasks.seconds"]:
        return None
    lost = (evidence.capacity or 0.0) - run.compute
    enough = ceil(run.compute / run.duration)
    return Finding(
        rule="scheduler-bound",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its scheduler used {used:.2f} of a core for {number(round(rate))} tasks a second, "
        f"and threads computed for {percent(share)} of the time: more workers will not help",
        evidence=(
            Measure("cores that the scheduler used", used, "{cpu}"),
            Measure("tasks a second", rate, "{task}/s", "h-groups"),
            Measure("computing, of the threads' time", share, "1", "h-time"),
        ),
        actions=(
            Action("Make fewer tasks that take longer each."),
            Action("Or use as many threads as had work.", f"about {number(enough)}"),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=in_money(
            evidence,
            (evidence.price_per_thread_second or 0.0) * lost,
            "(threads × the time - computing) × price of a thread",
        ),
        confidence="medium",
    )


def slow_start(evidence: Evidence) -> Outcome:
    """Work began before the workers were there.

    How it is found: fewer than half of the workers that the computation had at most were there
    when it began; ten seconds or more, and a fifth of its time, passed until four fifths were; and
    a fifth of the time that all of them would have had in it was missing.

    What to do: wait for workers before the work begins, keep a few (`minimum=`), or start them
    faster: a smaller image, a pool of machines. Where workers come by design, as with adaptive
    scaling, that is the price.

    Example: it began with 2 of 40 workers, and 9 min passed until 32 were there.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    if run.duration < limits["slow-start.seconds"]:
        return None
    most, began = meanwhile.workers, meanwhile.first_workers
    if not most or began is None or not run.thread_seconds or not evidence.cluster.peak_threads:
        return NotMeasured("how many workers there were when it began")
    if began >= limits["slow-start.began"] * most or meanwhile.gathered is None:
        return None
    took = meanwhile.gathered
    if took < max(limits["slow-start.seconds"], limits["slow-start.share"] * run.duration):
        return None
    threads = most * max(evidence.cluster.peak_threads / max(evidence.cluster.peak_workers, 1), 1)
    whole = threads * run.duration
    lost = min(whole - run.thread_seconds, threads * took)
    if lost < limits["slow-start.share"] * whole:
        return None
    there = ceil(GATHERED * most)
    return Finding(
        rule="slow-start",
        severity="notice",
        clause=f"it began with {number(round(began))} of {plural(round(most), 'worker')}, and "
        f"{duration(took)} passed until {number(there)} "
        f"{'was' if there == 1 else 'were'} there",
        evidence=(
            Measure("workers at first", began, "{worker}", "h-workers"),
            Measure("workers at most", most, "{worker}", "h-workers"),
            Measure("until four fifths were there", took, "s"),
        ),
        actions=(
            Action("Wait for workers before the work begins.", f"wait_for_workers({there})"),
            Action("Or keep a few, or start them faster: smaller images, a pool of machines."),
        ),
        seconds=lost,
        share=share_of(lost, whole),
        saving=Saving(0.0, lost / threads, "s", "thread time that was missing ÷ threads"),
        confidence="medium",
    )


def late_first_task(evidence: Evidence) -> Outcome:
    """A computation waited for long before its first task began, though no other one ran.

    Before a worker begins with a task, it loads it and imports what it needs: on new workers of a
    busy machine, numpy alone can take seconds. Or there was no worker yet.

    How it is found: from its start, five seconds or more, and a fifth of its time, passed until the
    first of its tasks began to compute or to fetch, and it ran alone. One that waited while the
    cluster computed something else is not meant.

    What to do: have workers import what tasks need before the work comes, with `--preload` or a
    worker plugin, or wait for workers before the work begins.

    Example: its first task began after 14.4 s, 93 % of the time that it took.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    if run.began_at is None or evidence.meanwhile.alone is None:
        return NotMeasured("when its first task began, and what else ran")
    waited = min(run.began_at - run.started_at, run.duration)
    if waited < max(limits["late.seconds"], limits["late.share"] * run.duration):
        return None
    if not evidence.meanwhile.alone:
        return None
    threads = evidence.threads or 1
    lost = waited * threads
    stranded = min(run.unrunnable_seconds or 0.0, waited)
    of_that = (
        f"; for {duration(stranded)} of that, no worker could run its tasks"
        if 2 * stranded >= waited
        else ""
    )
    return Finding(
        rule="late-first-task",
        severity=severity_of(evidence, lost, evidence.capacity, signal="notice"),
        clause=f"its first task began after {duration(waited)}, {percent(waited / run.duration)} "
        f"of the time that it took{of_that}",
        evidence=(
            Measure("until its first task began", waited, "s", "h-groups"),
            Measure("of its time", waited / run.duration, "1"),
            Measure("without a worker that could run its tasks", stranded, "s"),
        ),
        actions=(
            Action("Wait for workers before the work begins.", "client.wait_for_workers(…)")
            if of_that
            else Action("Have workers import what tasks need before the work comes.", "--preload"),
            Action("Or keep the workers for the next computation."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(0.0, waited, "s", "the time before its first task"),
        confidence="medium",
    )


def stuck(evidence: Evidence) -> Outcome:
    """Tasks are assigned to workers, but none has finished for a long time and no worker computes.

    The cause may be a lock that is never released, a request without a deadline, or a bug in Dask.

    How it is found: the computation runs, and some of its tasks are assigned to workers. At least
    ten of its tasks have finished. Since the last one finished, ten minutes have passed, and ten
    times the duration of its longest task. In the last minute, the workers used less than a tenth
    of a core each.

    What to do: look at what the workers' threads do (`client.call_stack()`), give requests a
    deadline, and restart the workers to which these tasks are assigned.

    Example: nothing has ended for 47 min: 3 tasks run on workers that use 0.01 of a core; the
    longest so far took 2.1 s.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or run.status != "running" or evidence.cluster.status != "running":
        return None
    at_work = run.states.get("processing", 0)
    ends = [group.stopped_at for group in run.groups if group.stopped_at is not None]
    longest = max((group.longest or 0.0 for group in run.groups), default=0.0)
    if not at_work or not ends or run.completed < limits["stuck.tasks"]:
        return None
    still = run.ended_at - max(ends)
    if still < max(limits["stuck.seconds"], limits["stuck.times-longest"] * longest):
        return None
    cores = meanwhile.worker_cpu_now
    if cores is None:
        return NotMeasured("what the workers use")
    if cores >= limits["stuck.cores"]:
        return None
    lost = still * (evidence.threads or 1)
    return Finding(
        rule="stuck",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"nothing has ended for {duration(still)}: {plural(at_work, 'task')} "
        f"{'runs' if at_work == 1 else 'run'} on workers that use {cores:.2f} of a core; the "
        f"longest so far took {duration(longest)}",
        evidence=(
            Measure("since the last task ended", still, "s"),
            Measure("tasks that are assigned to workers", at_work, "{task}", "h-groups"),
            Measure("longest so far", longest, "s", "h-groups"),
            Measure("cores that a worker uses", cores, "{cpu}"),
        ),
        actions=(
            Action("Look at what the workers' threads are doing.", "client.call_stack()"),
            Action("Give requests a deadline, and restart the workers that hold these tasks."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        confidence="medium",
    )


def compute_loop(evidence: Evidence) -> Outcome:
    """Computations came one after another from the same line, and threads had little to do.

    Each call of `compute` waits for its result before the next one begins. What one of them leaves
    idle, the next could have used.

    How it is found: at least ten computations of one user in a row from the same line of code, in
    at least 10 s, with a median of less than 10 s between two (a person who runs a cell again takes
    longer); and threads had no task for half of that time or more.

    What to do: collect the lazy results in a list and compute them at once,
    `dask.compute(*results)`, or use `client.map`. Where each needs the one before, as steps of an
    optimization do, use fewer threads.

    Example: 120 computations came one after another from etl.py:41; threads had nothing to do for
    81 % of the 2 min 3 s that they took together.
    """
    if evidence.run is not None:
        return None
    if evidence.loops is None:
        return NotMeasured("its computations")
    loops = [loop for loop in evidence.loops if _is_loop(loop, evidence)]
    if not loops:
        return None
    worst = max(loops, key=lambda loop: loop.thread_seconds - loop.busy)
    lost = worst.thread_seconds - worst.busy
    idle = lost / worst.thread_seconds
    threads = worst.thread_seconds / worst.seconds
    return Finding(
        rule="compute-loop",
        severity=severity_of(evidence, lost, evidence.cluster.thread_seconds),
        clause=f"{plural(worst.times, 'computation')} came one after another from {worst.line}; "
        f"threads had nothing to do for {percent(idle)} of the {duration(worst.seconds)} that "
        "they took together",
        evidence=(
            Measure("computations", worst.times, "{computation}", "h-computations"),
            Measure("from the first to the last", worst.seconds, "s", "h-computations"),
            Measure("between them", worst.between, "s", "h-computations"),
            Measure("idle, of the threads' time", idle, "1", "h-time"),
        ),
        actions=(
            Action("Collect lazy results and compute them at once.", "dask.compute(*results)"),
            Action("Where each needs the one before, use fewer threads."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.cluster.thread_seconds),
        saving=Saving(
            0.0,
            max(worst.seconds - worst.busy / threads, 0.0),
            "s",
            "the time of all - time of threads with a task ÷ threads",
        ),
        confidence="medium",
    )


def _is_loop(loop: Loop, evidence: Evidence) -> bool:
    limits = evidence.thresholds
    return (
        loop.times >= limits["loop.times"]
        and loop.seconds >= limits["loop.seconds"]
        and loop.pause < limits["loop.pause"]
        and loop.thread_seconds > 0
        and loop.thread_seconds - loop.busy >= limits["loop.idle"] * loop.thread_seconds
    )


def worker_churn(evidence: Evidence) -> Outcome:
    """Workers come and go: each is there for so short a time that it is hardly worth its start.

    How it is found: at least ten workers, and three times as many as there ever were at once, were
    asked to leave before others came, and half of them were there for less than a minute.

    What to do: keep some workers (`minimum=`), or let adaptive scaling wait longer before it sends
    workers away (`wait_count=`, times `interval=`).

    Example: 58 workers were sent away and others started within 20 min; half of them were there for
    less than 34.0 s.
    """
    coming, limits, cluster = evidence.coming, evidence.thresholds, evidence.cluster
    if evidence.run is not None:
        return None
    if coming is None:
        return NotMeasured("workers that came and went")
    most = max(cluster.peak_workers, 1)
    if coming.workers < max(limits["churn.workers"], limits["churn.times"] * most):
        return None
    if coming.lifetime >= limits["churn.lifetime"]:
        return None
    return Finding(
        rule="worker-churn",
        severity="notice",
        clause=f"{plural(coming.workers, 'worker')} were sent away and others started within "
        f"{duration(coming.seconds)}; half of them were there for less than "
        f"{duration(coming.lifetime)}",
        evidence=(
            Measure("workers that were sent away", coming.workers, "{worker}", "h-losses"),
            Measure("time of a worker, median", coming.lifetime, "s", "h-losses"),
            Measure("workers at most at once", cluster.peak_workers, "{worker}", "chart-workers"),
        ),
        actions=(
            Action(
                "Let adaptive scaling wait longer before it sends workers away.",
                f"adapt(wait_count={_WORTH_KEEPING}, interval='1s')",
            ),
            Action("Or keep some.", "adapt(minimum=…)"),
        ),
    )
