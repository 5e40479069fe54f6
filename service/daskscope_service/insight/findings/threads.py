"""Rules about workers' threads and GPUs while tasks were running."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence
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
from daskscope_service.insight.wording import duration, percent, plural


def gil_bound(evidence: Evidence) -> Outcome:
    """Threads of a worker ran one at a time, because Python code holds the interpreter's lock.

    How it is found: workers have several threads, but each used no more than one core, and tasks
    were on a CPU for about one thread's share of their time; and the profile saw threads
    for less than 70 % of it, as a thread that waits for the lock answers late. Each sign alone has
    other causes, so both are needed.

    What to do: use workers of one thread each, or code that releases the lock.

    Example: the 4 threads of each worker ran one at a time (0.98 of a core was used): Python code
    holds the GIL, at work.py:22.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or not run.completed:
        return None
    if not evidence.threads or not meanwhile.workers:
        return NotMeasured("how many threads a worker had")
    each = evidence.threads / meanwhile.workers
    if each < 2:
        return None
    share = meanwhile.cpu_share
    # The thread that holds the lock computes. If none computes, threads wait for something else.
    if share is None or not limits["gil.cpu-least"] <= share * each <= limits["gil.cpu-share"]:
        return None
    if meanwhile.worker_cpu is None or meanwhile.profiled is None or not meanwhile.alone:
        return NotMeasured("cores that a worker used, and profiles")
    if not 0.6 <= meanwhile.worker_cpu <= limits["gil.cores"]:
        return None
    if (
        run.compute / run.completed < limits["gil.task-seconds"]
        or meanwhile.profiled > limits["gil.profiled"] * run.compute
    ):
        return None
    lost = run.computed * (1 - 1 / each)
    at = f", at {meanwhile.line}" if meanwhile.line else ""
    return Finding(
        rule="gil-bound",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"the {each:.0f} threads of each worker ran one at a time "
        f"({meanwhile.worker_cpu:.2f} of a core was used): Python code holds the GIL{at}",
        evidence=(
            Measure("cores that a worker used", meanwhile.worker_cpu, "{cpu}"),
            Measure("on a CPU, of the tasks' time", share, "1", "h-time"),
            Measure("seen by the profile, of the tasks' time", meanwhile.profiled / run.compute,
                    "1", "h-profile"),
        ),
        actions=(
            Action(
                "Use workers of one thread each.",
                f"--nworkers {round(evidence.threads)} --nthreads 1",
            ),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(
            0.0, run.duration * (1 - 1 / each), "s", "the time × (1 - 1 ÷ threads of a worker)"
        ),
        confidence="medium",
    )  # fmt: skip


def blocked_loop(evidence: Evidence) -> Outcome:
    """A task kept its worker from answering: for seconds its event loop did not run.

    Beside its tasks' threads a worker has an event loop that sends results, fetches data and tells
    the scheduler that it is there. Code that holds Python's lock (the GIL) in one long call stops
    it. Other workers that need its results wait.

    How it is found: on average between two reports of a worker, its event loop took 1 s or more
    for one turn instead of 20 ms; the tasks computed for at least as long; and profiles saw
    threads for less than 70 % of that time, or there were none. On a busy machine the loop is late
    as well, but profiles see the threads.

    What to do: use code that releases the lock, call it in shorter pieces, or run it in a process
    of its own.

    Example: a worker did not answer for 1.2 s at a time: a task blocked its event loop.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    took = run.loop_interval
    if took is None:
        return NotMeasured("how late the workers' event loops were")
    if took < limits["blocked-loop.seconds"] or run.compute < took:
        return None
    load, profiled = run.host_load, evidence.meanwhile.profiled
    if load is None:
        return NotMeasured("the load of the workers' machines")
    if load > limits["blocked-loop.host-load"]:
        return None  # the loop may have been late because it waited for a core
    if profiled is not None and profiled > limits["gil.profiled"] * run.compute:
        return None
    return Finding(
        rule="blocked-loop",
        severity="notice",
        clause=f"a worker did not answer for {duration(took)} at a time: a task held its event "
        "loop up",
        evidence=(
            Measure("one turn of a worker's event loop", took, "s", "h-profile"),
            Measure("load of its machine for each core", load, "{cpu}"),
        ),
        actions=(
            Action("Use code that releases Python's lock (the GIL), or call it in short pieces."),
        ),
        confidence="high" if profiled is not None else "medium",
    )


def waiting(evidence: Evidence) -> Outcome:
    """Tasks waited in their threads for something outside: a network, a disk, a lock, a clock.

    How it is found: tasks were on a CPU for less than 10 % of their time, and threads had tasks for
    at least half of theirs; and at least 70 % of what profiles saw was in lines of code that wait,
    such as a read of a socket. A busy machine keeps threads off its CPUs as well, but then the
    lines compute.

    What to do: use more threads in a worker, read larger pieces, or bring the data closer. More
    cores do not help.

    Example: its tasks waited: of 40.0 s in threads 10 ms were on a CPU, at work.py:96.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    share = meanwhile.cpu_share
    if share is None:
        return NotMeasured("how long tasks were on a CPU")
    if share >= limits["waiting.cpu-share"]:
        return None
    if evidence.computed_share is None or evidence.computed_share < limits["waiting.busy"]:
        return None
    if meanwhile.waiting_lines is None or not meanwhile.alone:
        return NotMeasured("the lines of code that wait")
    if meanwhile.waiting_lines < limits["waiting.lines"]:
        return None
    lost = run.computed * (1 - share)
    return Finding(
        rule="waiting",
        severity=severity_of(evidence, lost, evidence.capacity, signal="notice"),
        clause=f"its tasks waited: of {duration(run.computed)} in threads "
        f"{duration(share * run.computed)} were on a CPU, at {meanwhile.line}",
        evidence=(
            Measure("in threads", run.computed, "s", "h-time"),
            Measure("on a CPU, of that", share, "1", "h-time"),
        ),
        actions=(Action("Use more threads in a worker: more cores do not help."),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=Saving(
            0.0, run.duration * (1 - share), "s", "the time × the tasks' share that was on no CPU"
        ),
        confidence="medium",
    )


def unused_gpu(evidence: Evidence) -> Outcome:
    """Workers have GPUs, and the work does not use them.

    How it is found: workers report GPUs; while tasks ran for at least 30 s, no measurement saw
    them at more than 5 %, and less than 10 % of their memory was in use.

    What to do: run this work on machines without GPUs, or check that the libraries were built for
    them and that the data is moved to them.

    Example: 4 workers have GPUs, which were used for at most 0 % while tasks ran for 2 min.
    """
    cluster, meanwhile, limits = evidence.cluster, evidence.meanwhile, evidence.thresholds
    if not cluster.gpu_workers:
        return None
    if evidence.run is not None and (not is_worth_profiling(evidence) or not meanwhile.alone):
        return None
    busy = meanwhile.busy_seconds
    if meanwhile.gpu_utilization is None or meanwhile.gpu_points < limits["gpu.points"]:
        return NotMeasured("what the GPUs did")
    if busy is None or busy < limits["gpu.seconds"]:
        return None
    # The utilisation is a mean over all workers, and a single one may use its GPU.
    if meanwhile.gpu_utilization * cluster.gpu_workers > limits["gpu.utilization"]:
        return None
    if (meanwhile.gpu_memory_share or 0.0) > limits["gpu.memory"]:
        return None
    whole = evidence.capacity if evidence.run is not None else cluster.thread_seconds
    price, lost_for = (
        cluster.prices.get("gpu"),
        (evidence.run.duration if evidence.run is not None else cluster.duration),
    )
    cost = None if not price else price * cluster.gpu_workers * lost_for / 3600
    return Finding(
        rule="unused-gpu",
        severity=severity_of(evidence, busy, whole),
        clause=f"{plural(cluster.gpu_workers, 'worker')} "
        f"{'has a GPU, which was' if cluster.gpu_workers == 1 else 'have GPUs, which were'} used "
        f"for at most {percent(meanwhile.gpu_utilization)} while tasks ran for {duration(busy)}",
        evidence=(
            Measure("most use of the GPUs", meanwhile.gpu_utilization, "1"),
            Measure("workers with a GPU", cluster.gpu_workers, "{worker}"),
            Measure("thread-seconds of tasks", busy, "s", "h-time"),
        ),
        actions=(Action("Run it without GPUs, or check that its libraries and data use them."),),
        cost=cost,
        saving=in_money(evidence, cost, "workers with a GPU × time × price of a GPU"),
        confidence="high" if meanwhile.gpu_memory_share is not None else "medium",
    )
