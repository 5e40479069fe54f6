"""Rules about tasks: too small, too large, too few, uneven, or one after another."""

from __future__ import annotations

from math import ceil, floor, log10

from daskscope_service.insight.findings.evidence import Evidence, Group, Run
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
    Saving,
)
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.findings.savings import in_money, time_saving
from daskscope_service.insight.wording import duration, number, percent, plural, size

#: Seconds that Dask needs for a task, at least and at most, according to its documentation.
_LEAST_OVERHEAD, _MOST_OVERHEAD = 0.0002, 0.001
#: Seconds that a task should take, according to the same.
_GOOD_TASK = 0.1
#: Tasks for each thread that are enough to balance the load.
_TASKS_PER_THREAD = 3


def large_graph(evidence: Evidence) -> Outcome:
    """The graph carries data: it is large for the number of its tasks.

    A client sends the graph to the scheduler, which sends each task to a worker. Data inside of it
    makes the whole trip, often several times.

    How it is found: the graph was larger than 10 MB (Dask warns of that too) and had more than
    100 kB for each task. In a run so long that sending it took less than 1 % nothing is reported.

    What to do: read the data inside the tasks, or send it once with `client.scatter` and pass the
    future.

    Example: its graph carries 91.6 MiB for 4 tasks, 22.9 MiB each.
    """
    run = evidence.run
    if run is None or run.failed_early:
        return None
    if run.graph_bytes is None:
        return NotMeasured("the size of the graph")
    limits = evidence.thresholds
    if run.graph_bytes <= limits["large-graph.bytes"] or not run.tasks:
        return None
    each = run.graph_bytes / run.tasks
    on_its_way = run.graph_bytes / limits["large-graph.bytes-per-second"]
    if (
        each <= limits["large-graph.bytes-per-task"]
        or on_its_way < limits["mass.share"] * run.duration
    ):
        return None
    return Finding(
        rule="large-graph",
        severity=severity_of(evidence, on_its_way * (evidence.threads or 1), evidence.capacity),
        clause=f"its graph carries {size(run.graph_bytes)} for {plural(run.tasks, 'task')}, "
        f"{size(each)} each",
        evidence=(
            Measure("graph", run.graph_bytes, "By", "h-code"),
            Measure("tasks", run.tasks, "{task}", "h-groups"),
        ),
        actions=(Action("Read the data inside the tasks, or send it once with client.scatter."),),
        saving=Saving(0.0, min(on_its_way, run.duration), "s", "size of the graph ÷ 10 MB/s"),
    )


def tiny_tasks(evidence: Evidence) -> Outcome:
    """Tasks are so short that Dask's own work for each of them takes most of the time.

    Dask needs from 0.2 to 1 ms to hand out a task and to take its result.

    How it is found: at least 1,000 runs of less than 10 ms on average, which computed for less than
    20 % of the threads' time. They ended at 250 a second or more, or threads had a task for most of
    the time; else the client is what takes the time. No other computation ran beside it.

    What to do: put several inputs into one task, so that a task takes 100 ms or more: larger
    chunks or partitions, `batch_size`, or a loop inside of the function.

    Example: its 15,000 tasks took 40 µs each, and Dask needs up to 1 ms for each: computing was
    1 % of the threads' time.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    runs = run.completed + run.erred
    if runs < limits["tiny-tasks.tasks"]:
        return None
    if not evidence.capacity or not evidence.threads:
        return NotMeasured("how many threads there were")
    each = run.compute / runs
    share = run.compute / evidence.capacity
    if each >= limits["tiny-tasks.seconds"] or share >= limits["tiny-tasks.computed"]:
        return None
    idle = evidence.idle_share
    # On a slow machine, the rate is lower, but threads have tasks that they wait for.
    if runs / run.duration < limits["tiny-tasks.rate"] and (
        idle is None or idle >= limits["tiny-tasks.idle"]
    ):
        return None
    if not evidence.meanwhile.alone:
        return NotMeasured("how much of the threads' time other computations had")
    lost = evidence.capacity - run.compute
    most = run.duration - run.compute / evidence.threads
    together = _together(run, each, evidence.threads)
    fewer = runs - runs / together
    return Finding(
        rule="tiny-tasks",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its {plural(runs, 'task')} took {_short(each)} each, and Dask needs up to 1 ms "
        f"for each: computing was {percent(share)} of the threads' time",
        evidence=(
            Measure("task runs", runs, "{run}", "h-groups"),
            Measure("compute time of a run", each, "s", "h-groups"),
            Measure("computing, of the threads' time", share, "1", "h-time"),
        ),
        actions=(
            Action("Put more inputs into one task.", f"about {number(together)} for each task"),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(
            min(fewer * _LEAST_OVERHEAD, most),
            min(fewer * _MOST_OVERHEAD, most),
            "s",
            "(tasks now - tasks then) × 0.2 to 1 ms, at most the time - computing ÷ threads",
        ),
    )


def _together(run: Run, each: float, threads: float) -> int:
    """Return how many inputs one task should have, rounded down to one significant digit."""
    wanted = _GOOD_TASK / each if each > 0 else float(run.tasks)
    # Enough tasks must remain for all threads.
    wanted = max(2.0, min(wanted, run.tasks / (_TASKS_PER_THREAD * threads)))
    unit = 10 ** floor(log10(wanted))
    return int(wanted // unit * unit)


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else duration(seconds)


def transfer_bound(evidence: Evidence) -> Outcome:
    """Tasks waited for data from other workers, rather than computing.

    How it is found: the tasks spent more time on transfers than on computing; threads waited for
    data for at least 15 % of their time, and at least 20 % of it they had nothing to do. Transfers
    that computing hides cost nothing, so they are not reported; nor is a run beside which another
    one ran.

    What to do: rechunk or repartition once and early, use fewer and larger workers, or send less:
    reduce before you combine.

    Example: its tasks waited for data: transfers took 6.0 s and computing 2 ms; 773 MiB were sent.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    sent = run.seconds.get("transfer", 0.0)
    if sent <= run.compute:
        return None
    if not evidence.capacity:
        return NotMeasured("how many threads there were")
    # Workers fetch several results at once, so threads wait for less time than transfers take.
    waited = meanwhile.activities.get("transfer", 0.0) if meanwhile.activities else sent
    lost = min(waited, evidence.capacity)
    if lost < limits["transfer.share"] * evidence.capacity:
        return None
    if evidence.computed_share is None or 1 - evidence.computed_share < limits["transfer.idle"]:
        return None
    if not meanwhile.alone:
        return NotMeasured("which computation's tasks waited for data")
    between = run.transferred_bytes or meanwhile.transferred
    bytes_sent = f"; {size(between)} were sent" if between else ""
    return Finding(
        rule="transfer-bound",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its tasks waited for data: transfers took {duration(sent)} and computing "
        f"{duration(run.compute)}{bytes_sent}",
        evidence=(
            Measure("transfers", sent, "s", "h-time"),
            Measure("computing", run.compute, "s", "h-time"),
            *((Measure("sent between workers", between, "By"),) if between else ()),
        ),
        actions=(
            Action("Rechunk or repartition once and early, or use fewer and larger workers."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=time_saving(evidence, lost, "waiting for data"),
    )


def straggler(evidence: Evidence) -> Outcome:
    """A few tasks took much longer than all others like them, and everything waited for them.

    How it is found: in a run of more than 10 s, the longest task of a group of at least 10 took
    five times the median or more, and a quarter of the whole run; at most 3 % of the group were
    so slow, and threads had nothing to do for at least 40 % of the time.

    What to do: find out what is different about that input (a larger partition, a skewed key), and
    split it.

    Example: one of 64 tasks of `work` took 18.0 s, half of them up to 300 ms; threads had nothing
    to do for 61 % of the time.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    if run.duration <= limits["straggler.duration"] or run.status == "running":
        return None
    slow = [group for group in run.groups if _straggles(group, run, evidence)]
    if not slow:
        return None
    idle = evidence.idle_share
    if idle is None:
        return NotMeasured("how long threads had nothing to do")
    if idle < limits["straggler.idle"]:
        return None
    group = max(slow, key=lambda one: one.longest or 0.0)
    longest, median = group.longest or 0.0, group.median or 0.0
    few = max(group.runs_over(median * limits["straggler.times-median"]), 1)
    lost = idle * (evidence.capacity or 0.0)
    named = "one" if few == 1 else number(few)
    return Finding(
        rule="straggler",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"{named} of {plural(group.completed, 'task')} of {group.prefix} took "
        f"{duration(longest)}{'' if few == 1 else ' at the longest'}, half of them up to "
        f"{duration(median)}; threads had nothing to do for {percent(idle)} of the time",
        evidence=(
            Measure("longest run", longest, "s", f"group-{group.name}"),
            Measure("half of the runs took up to", median, "s", f"group-{group.name}"),
            Measure("idle, of the threads' time", idle, "1", "h-time"),
        ),
        actions=(Action("Split the input of the slowest task: it may be larger or skewed."),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(0.0, max(longest - median, 0.0), "s", "longest run - median run"),
    )


def _straggles(group: Group, run: Run, evidence: Evidence) -> bool:
    limits = evidence.thresholds
    median, longest = group.median, group.longest
    if median is None or longest is None or group.completed < limits["straggler.tasks"]:
        return False
    slow = limits["straggler.times-median"] * median
    few = group.runs_over(slow)
    return (
        longest >= slow
        and longest >= limits["straggler.share"] * run.duration
        and few <= max(1, limits["straggler.few"] * group.completed)
    )


def too_few_tasks(evidence: Evidence) -> Outcome:
    """There are fewer tasks than threads, so that some threads have nothing to do.

    How it is found: in a run of more than 10 s no group had as many tasks as there are threads,
    its tasks computed for most of the time, and threads had nothing to do for at least half of it.
    One single task is not reported: there may be nothing to split.

    What to do: use more chunks or partitions, two or three for each thread.

    Example: it had 2 tasks for 8 threads, which had nothing to do for 77 % of the time.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    widest = max((group.tasks for group in run.groups), default=0)
    threads = evidence.threads
    if run.duration <= limits["too-few.duration"] or widest < 2:
        return None
    if not threads:
        return NotMeasured("how many threads there were")
    if widest >= threads or run.tasks >= threads:
        return None
    idle = evidence.idle_share
    if idle is None:
        return NotMeasured("how long threads had nothing to do")
    if idle < limits["too-few.idle"] or run.compute < limits["serial.least"] * run.duration:
        return None
    cpu = evidence.meanwhile.worker_cpu
    if cpu is not None and cpu * (evidence.meanwhile.workers or 1) > 1.5 * run.tasks:
        return None  # the tasks use threads of their own
    lost = idle * (evidence.capacity or 0.0)
    parts = ceil(threads)
    return Finding(
        rule="too-few-tasks",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"it had {plural(run.tasks, 'task')} for {plural(round(threads), 'thread')}, which "
        f"had nothing to do for {percent(idle)} of the time",
        evidence=(
            Measure("tasks", run.tasks, "{task}", "h-groups"),
            Measure("threads", threads, "{thread}", "h-workers"),
            Measure("idle, of the threads' time", idle, "1", "h-time"),
        ),
        actions=(Action("Use more chunks or partitions.", f"at least {number(parts)}"),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(
            0.0,
            max(run.duration - run.compute / threads, 0.0),
            "s",
            "the time - computing ÷ threads",
        ),
    )


def serial_chain(evidence: Evidence) -> Outcome:
    """Tasks ran one after another, because each needs the one before.

    How it is found: in a run of 10 s or more, at least 10 tasks computed for about as long as the
    run took, so one at a time; at least 5 waited for others at once, which were half or more of
    those that were not done; and threads had nothing to do for at least 40 % of the time.

    What to do: look for steps that do not need each other, or use fewer workers: more of them do
    not help.

    Example: its 40 tasks ran one after another, each needed the one before: threads had nothing to
    do for 89 % of the time.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    threads = evidence.threads
    if run.tasks < limits["serial.tasks"] or not threads or threads < 2:
        return None
    if run.duration < limits["serial.duration"]:
        return None
    at_once = run.compute / run.duration
    if not limits["serial.least"] <= at_once <= limits["serial.most"]:
        return None
    idle, waiting = evidence.idle_share, evidence.meanwhile.most_waiting
    not_done = evidence.meanwhile.not_done_then
    if idle is None or waiting is None or not_done is None:
        return NotMeasured("how many tasks waited for others")
    if idle < limits["serial.idle"] or waiting < limits["serial.at-once"]:
        return None
    # Not of all tasks: the one measurement of a short run may come when most are done.
    if waiting < limits["serial.waiting"] * not_done:
        return None
    if not evidence.meanwhile.alone:
        return NotMeasured("which computation's tasks waited")
    lost = idle * (evidence.capacity or 0.0)
    return Finding(
        rule="serial-chain",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its {plural(run.tasks, 'task')} ran one after another, each needed the one "
        f"before: threads had nothing to do for {percent(idle)} of the time",
        evidence=(
            Measure("tasks", run.tasks, "{task}", "h-groups"),
            Measure("tasks that waited for others at once", waiting, "{task}", "h-groups"),
            Measure("idle, of the threads' time", idle, "1", "h-time"),
        ),
        actions=(
            Action("Look for steps that do not need each other; or use fewer threads: one does."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=in_money(
            evidence,
            (evidence.price_per_thread_second or 0.0) * run.duration * (threads - 1),
            "(threads - 1) × the time × price of a thread",
        ),
    )
