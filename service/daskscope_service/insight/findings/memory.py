"""Rules about memory: too little of it, or too much."""

from __future__ import annotations

import itertools

from daskscope_service.insight.findings.evidence import PARTS, Evidence
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
    Saving,
)
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.findings.savings import time_saving
from daskscope_service.insight.wording import duration, money, percent, size


def spilling(evidence: Evidence) -> Outcome:
    """Results did not fit into memory: workers wrote them to disk and read them back.

    A worker begins to write results to disk at 60 % of its memory. That is slow, and the more so
    the more is read back.

    How it is found: while the computation ran, and no other did, workers wrote at least 50 MiB and
    a tenth of what its tasks returned to disk, and read at least a tenth of it back. Results that
    are never read back cost little, so they are not reported.

    What to do: use smaller chunks, release results sooner, or give the workers more memory.

    Example: its results did not fit into memory: 855 MiB of 1.2 GiB were written to disk, and
    612 MiB were read back.
    """
    run, meanwhile = evidence.run, evidence.meanwhile
    if run is None or not is_worth_profiling(evidence):
        return None
    written, read = (
        (meanwhile.spilled, meanwhile.unspilled)
        if run.spilled_bytes is None or run.unspilled_bytes is None
        else (run.spilled_bytes, run.unspilled_bytes)
    )
    if written is None or read is None:
        return NotMeasured("bytes that were written to disk and read back")
    if not meanwhile.alone:
        return None if not written else NotMeasured("which computation wrote to disk")
    limits = evidence.thresholds
    returned = sum(group.output_bytes for group in run.groups)
    if (
        written < limits["spilling.bytes"]
        or written < limits["spilling.share"] * returned
        or read < limits["spilling.read-back"] * written
    ):
        return None
    disk = sum(
        meanwhile.activities.get(name, 0.0)
        for name in ("disk-read", "disk-write", "compress", "decompress")
    )
    lost = max(disk, run.seconds.get("disk-read", 0.0) + run.seconds.get("disk-write", 0.0))
    of = f" of {size(returned)}" if returned > written else ""
    return Finding(
        rule="spilling",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"its results did not fit into memory: {size(written)}{of} were written to disk, "
        f"and {size(read)} were read back",
        evidence=(
            Measure("written to disk", written, "By", "h-memory"),
            Measure("read back", read, "By", "h-memory"),
            Measure("returned by its tasks", returned, "By", "h-groups"),
        ),
        actions=(
            Action("Use smaller chunks, or release results sooner."),
            *_more_memory(evidence, written),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=time_saving(evidence, lost, "time of reading and writing"),
    )


def _more_memory(evidence: Evidence, written: float) -> tuple[Action, ...]:
    limit = evidence.cluster.memory_limit
    if not limit:
        return ()
    # Dask begins to write at 60 % of the memory.
    factor = 1 + written / (0.6 * limit)
    return (Action("Or give the workers more memory.", f"about {factor:.1f} × as much"),)


def paused(evidence: Evidence) -> Outcome:
    """Workers were paused because their memory was almost full.

    A worker starts no task while it uses more than 80 % of its memory.

    How it is found: threads of paused workers make up at least 5 % of all threads' time while the
    computation ran.

    What to do: use smaller chunks, fewer threads in a worker, or more memory.

    Example: workers were paused for 18 % of the time, above 80 % of their memory.
    """
    if not is_worth_profiling(evidence):
        return None
    activities, is_whole = evidence.meanwhile.activities, evidence.meanwhile.whole
    if evidence.run is not None and evidence.run.thread_seconds:
        activities, is_whole = evidence.run.worker_seconds, True
    whole = sum(activities.values())
    if not is_whole or not whole:
        return NotMeasured("what the threads did")
    lost = activities.get("paused", 0.0)
    if lost < evidence.thresholds["paused.share"] * whole:
        return None
    return Finding(
        rule="paused",
        severity=severity_of(evidence, lost, whole),
        clause=f"workers were paused for {percent(lost / whole)} of the time, "
        "above 80 % of their memory",
        evidence=(
            Measure("paused", lost, "s", "h-time"),
            Measure("time of all threads", whole, "s", "h-time"),
        ),
        actions=(Action("Use smaller chunks, fewer threads in a worker, or more memory."),),
        seconds=lost,
        share=lost / whole,
        saving=time_saving(evidence, lost, "paused thread time"),
    )


def over_provisioned(evidence: Evidence) -> Outcome:
    """The workers have far more memory than they ever used, and it is paid for.

    How it is found: at its highest the cluster used less than 10 % of its memory, more than 2 GiB
    of each worker were never used, and somebody has set a price for memory. Without one, at list
    prices too, nothing may be saved: a cluster on one machine takes all its memory by default.

    The highest is that of its heartbeats, or what the workers would have used if each had used as
    much as the process that ever used most, whichever is more.

    What to do: start workers with a quarter more than the most that one used, once several runs
    have shown the same.

    Example: its workers used at most 194 MiB of 11.2 GiB: 98 % of the memory lay idle (0.02 USD).
    """
    cluster = evidence.cluster
    limits = evidence.thresholds
    if evidence.run is not None or cluster.duration < limits["memory.duration"]:
        return None
    limit, workers = cluster.memory_limit, cluster.peak_workers
    # Beats do not show what was used between them; the peaks of the processes do.
    of_one = cluster.peak_worker_memory or 0
    peak = max(cluster.peak_memory, of_one * workers)
    own = cluster.price_source != "list"
    if not own or not cluster.prices.get("gib") or cluster.currency is None:
        return NotMeasured("what memory costs: no price of it is set")
    if not limit or not peak or not workers:
        return NotMeasured("the workers' memory")
    unused = limit - peak
    if peak > limits["memory.share"] * limit or unused < limits["memory.unused"] * workers:
        return None
    cost = cluster.prices["gib"] * unused / 2**30 * cluster.duration / 3600
    wanted = peak * limits["memory.headroom"]
    if wanted >= limit:
        return None
    saved = cost * (limit - wanted) / unused
    return Finding(
        rule="over-provisioned-memory",
        severity="notice",
        clause=f"its workers used at most {size(peak)} of {size(limit)}: {percent(unused / limit)} "
        f"of the memory lay idle ({money(cost, cluster.currency)})",
        evidence=(
            Measure("most memory in use", peak, "By", "chart-memory"),
            Measure("memory", limit, "By", "chart-memory"),
        ),
        actions=(
            Action(
                "Give each worker less memory, if other runs use as little.",
                size(wanted / workers),
            ),
        ),
        cost=cost,
        saving=Saving(
            *(0.0, saved, cluster.currency),
            f"(memory - {limits['memory.headroom']:g} × its peak) × time × price of a GiB",
        ),
        confidence="medium",
    )


def too_many_threads(evidence: Evidence) -> Outcome:
    """A worker's threads share its memory, and their results do not fit into it at once.

    Each thread holds the inputs and the result of its task: two or three chunks at a time.

    How it is found: three times the largest result is more than the memory that a worker has for
    each of its threads, fewer threads would have had room for it; and while the computation ran
    alone, workers spilled and read back, or paused (see these), for lack of memory.

    What to do: run fewer threads in each worker, and more workers only if there is memory for
    them; or use smaller chunks.

    Example: each of the 8 threads of a worker has 512 MiB of its memory, and the largest result
    has 410 MiB: not three fit.
    """
    run, meanwhile, limits = evidence.run, evidence.meanwhile, evidence.thresholds
    if run is None or not is_worth_profiling(evidence):
        return None
    if run.largest_output is None:
        return NotMeasured("the size of the largest result")
    memory = evidence.cluster.memory_of_one
    if not memory or not evidence.threads or not meanwhile.workers:
        return NotMeasured("the memory and the threads of a worker")
    threads = round(evidence.threads / meanwhile.workers)
    wanted = limits["threads.results"] * run.largest_output
    if threads < 2 or wanted <= memory / threads or wanted > memory:
        return None
    if not any(isinstance(rule(evidence), Finding) for rule in (spilling, paused)):
        return None
    fewer = max(int(memory // wanted), 1)
    return Finding(
        rule="too-many-threads",
        severity="notice",
        clause=f"each of the {threads} threads of a worker has {size(memory / threads)} of its "
        f"memory, and the largest result has {size(run.largest_output)}: "
        f"{'not one fits' if run.largest_output > memory / threads else 'not three fit'}",
        evidence=(
            Measure("memory of a worker", memory, "By", "h-memory"),
            Measure("threads of a worker", threads, "{thread}", "h-workers"),
            Measure("largest result", run.largest_output, "By", "h-groups"),
        ),
        actions=(
            Action("Run fewer threads in each worker.", f"--nthreads {fewer}"),
            Action("Or use smaller chunks.", f"at most {size(memory / threads / 3)}"),
        ),
        confidence="medium",
    )


def growing_memory(evidence: Evidence) -> Outcome:
    """Memory that Dask does not know of grows on and on, whatever runs.

    Objects that the tasks' code or a library keeps, or memory that the process does not give back.
    Workers end when it reaches their limit.

    How it is found: the cluster was up for half an hour or more. In each sixth of that time, the
    first one excepted, the least unmanaged memory of a worker was higher than in the one before;
    together it grew by 30 % of what a worker may use, and as fast in the end as before.

    What to do: look for caches and global lists in the tasks' code; have the memory given back
    (`MALLOC_TRIM_THRESHOLD_=0` in the workers' environment); or restart workers now and then
    (`--lifetime`).

    Example: memory that Dask does not know of grew on each worker from 1.2 GiB to 4.6 GiB of
    8 GiB in 1 h 40 min: at that rate a worker is full in 1 h 10 min.
    """
    cluster, limits = evidence.cluster, evidence.thresholds
    if evidence.run is not None or cluster.duration < limits["growing.seconds"]:
        return None
    least, memory = evidence.meanwhile.unmanaged, cluster.memory_of_one
    if len(least) < PARTS or not memory:
        return NotMeasured("the workers' unmanaged memory")
    steady = least[1:]
    steps = [later - earlier for earlier, later in itertools.pairwise(steady)]
    grown = steady[-1] - steady[0]
    mean = grown / len(steps)
    if min(steps) <= 0 or grown < limits["growing.share"] * memory:
        return None
    if steps[-1] < limits["growing.goes-on"] * mean:
        return None
    took = cluster.duration * len(steps) / len(least)
    left = max(memory - steady[-1], 0.0) / grown * took
    return Finding(
        rule="growing-memory",
        severity="warning",
        clause=f"memory that Dask does not know of grew on each worker from {size(steady[0])} to "
        f"{size(steady[-1])} of {size(memory)} in {duration(took)}: at that rate a worker is full "
        f"in {duration(left)}",
        evidence=(
            Measure("unmanaged memory of a worker at first", steady[0], "By", "chart-memory"),
            Measure("in the end", steady[-1], "By", "chart-memory"),
            Measure("memory of a worker", memory, "By"),
        ),
        actions=(
            Action("Have memory given back.", "MALLOC_TRIM_THRESHOLD_=0"),
            Action("Look for caches and global lists in the tasks' code."),
            Action("Or restart workers before it is full.", f"--lifetime {_lifetime(left)}"),
        ),
        confidence="medium",
    )


def _lifetime(left: float) -> str:
    return f"{max(int(left // 60), 1)}m"


def nearly_out_of_memory(evidence: Evidence) -> Outcome:
    """A worker came close to the memory at which its nanny ends it.

    How it is found: the process of a worker had at least 90 % of the memory that each may use, and
    none was ended for it. At 95 % a nanny ends its worker. It is not reported where workers differ.

    What to do: give the workers a quarter more than that, use smaller chunks, or fewer threads.

    Example: a worker used 7.4 GiB of its 8 GiB (93 %): at 95 % its nanny would have ended it.
    """
    cluster, limits = evidence.cluster, evidence.thresholds
    if evidence.run is not None:
        return None
    most, memory = cluster.peak_worker_memory, cluster.memory_of_one
    if not most or not memory:
        return NotMeasured("the most memory that a worker had")
    share = most / memory
    # A share above 1 means that the workers' limits differ, or that no nanny enforces them.
    if not limits["near.share"] <= share <= 1 or any(not loss.expected for loss in evidence.losses):
        return None
    return Finding(
        rule="nearly-out-of-memory",
        severity="notice",
        clause=f"a worker used {size(most)} of its {size(memory)} ({percent(share)}): at 95 % its "
        "nanny would have ended it",
        evidence=(
            Measure("most memory of a worker", most, "By", "chart-memory"),
            Measure("memory of a worker", memory, "By"),
        ),
        actions=(
            Action(
                "Give each worker more memory.",
                f"at least {size(most * limits['memory.headroom'])}",
            ),
            Action("Or use smaller chunks, or fewer threads in a worker."),
        ),
        confidence="medium",
    )
