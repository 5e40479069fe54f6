"""Rules about memory: too little of it, or too much."""

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
from daskscope_service.insight.findings.mass import has_performance, share_of, weighed
from daskscope_service.insight.findings.savings import sooner
from daskscope_service.insight.wording import money, percent, size


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
    if run is None or not has_performance(evidence):
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
        severity=weighed(evidence, lost, evidence.capacity),
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
        saving=sooner(evidence, lost, "time of reading and writing"),
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
    if not has_performance(evidence):
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
        severity=weighed(evidence, lost, whole),
        clause=f"workers were paused for {percent(lost / whole)} of the time, "
        "above 80 % of their memory",
        evidence=(
            Measure("paused", lost, "s", "h-time"),
            Measure("time of all threads", whole, "s", "h-time"),
        ),
        actions=(Action("Use smaller chunks, fewer threads in a worker, or more memory."),),
        seconds=lost,
        share=lost / whole,
        saving=sooner(evidence, lost, "paused thread time"),
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
    # Memory that was used between two beats was not seen, but the processes' own peaks were.
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
            Measure("most memory in use", peak, "By"),
            Measure("memory", limit, "By"),
        ),
        actions=(
            Action(
                "Give each worker less memory, if other runs use as little.",
                size(wanted / workers),
            ),
        ),
        cost=cost,
        saving=Saving(
            0.0, saved, cluster.currency, "(memory - 1.25 × its peak) × time × price of a GiB"
        ),
        confidence="medium",
    )
