"""Rules about the size of workers, by the last runs of a computation's job."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
    Severity,
)
from daskscope_service.insight.findings.mass import severity_of, share_of
from daskscope_service.insight.jobs.sizing import Proposal
from daskscope_service.insight.wording import number, percent, plural, size

#: The price source of clusters for which nobody has set prices.
_LIST = "list"
#: Why it is not known whether a smaller size would cost less.
_NOT_CHOSEN = "no price is set, and the cluster may be on a user's own machine"


def undersized_memory(evidence: Evidence) -> Outcome:
    """Workers come close to the memory at which their nanny ends them, in the runs of a job.

    How it is found: at least 5 runs of the [job](jobs.md) passed, this one is the last of them, and
    in one of the last 20 a worker used at least 90 % of its memory.

    What to do: give each worker a quarter more memory than the most that one used.

    Example: a worker used 7.5 GiB of its 8 GiB (94 %) in its job's last 6 passed runs, and at 95 %
    its nanny ends it: 9.38 GiB would do.
    """
    proposal = _proposal(evidence, "memory")
    if not isinstance(proposal, Proposal):
        return proposal
    if proposal.wanted <= proposal.now:
        return None
    return Finding(
        rule="undersized-memory",
        severity="notice",
        clause=f"a worker used {size(proposal.most)} of its {size(proposal.now)} "
        f"({percent(proposal.most / proposal.now)}) in {_last_runs(evidence)}, and at "
        f"{percent(0.95)} its nanny ends it: {size(proposal.wanted)} would do",
        evidence=_measures(evidence, proposal),
        actions=(Action("Give each worker more memory.", proposal.setting),),
        confidence="medium",
    )


def oversized_memory(evidence: Evidence) -> Outcome:
    """Workers have far more memory than any run of the job used.

    How it is found: at least 5 runs of the [job](jobs.md) passed, this one is the last of them, and
    in the last 20 no worker used more than half of its memory, and nothing was spilled; with a
    quarter more than the most that one used, each worker has 2 GiB less than now. Somebody has set
    prices, or the scheduler has a process of its own: a cluster in the process of its client takes
    all the machine's memory by default.

    What to do: start workers with a quarter more memory than the most that one used, if smaller
    machines are to be had.

    Example: no worker used more than 2 GiB of 8 GiB in its job's last 6 passed runs: 2.5 GiB would
    do.
    """
    proposal = _proposal(evidence, "memory")
    if not isinstance(proposal, Proposal):
        return proposal
    if proposal.wanted >= proposal.now:
        return None
    if not _is_chosen(evidence):
        return NotMeasured(f"what memory costs: {_NOT_CHOSEN}")
    saved = None if proposal.saving is None else proposal.saving.high
    price = evidence.price_per_thread_second
    # What it costs, as time of threads that costs as much.
    mass = saved / price if saved and price else 0.0
    return Finding(
        rule="oversized-memory",
        severity=severity_of(evidence, mass, evidence.capacity),
        clause=f"no worker used more than {size(proposal.most)} of {size(proposal.now)} in "
        f"{_last_runs(evidence)}: {size(proposal.wanted)} would do",
        evidence=_measures(evidence, proposal),
        actions=(Action("Give each worker less memory.", proposal.setting),),
        cost=saved,
        saving=proposal.saving,
        confidence="medium",
    )


def oversized_threads(evidence: Evidence) -> Outcome:
    """The cluster has more than twice as many threads as had work in any run of the job.

    How it is found: at least 5 runs of the [job](jobs.md) passed, this one is the last of them, and
    the last 20 took 10 s or more each, no worker was paused, and threads were idle for half of the
    time or more; a fifth more threads than had work, on average over a run, are at most half of the
    threads that there are, and the data fits into their share of the memory. Somebody has set
    prices, or the scheduler has a process of its own.

    What to do: start fewer workers or threads, unless the work needs many at once for a while.

    Example: at most 4.0 of 16 threads had work on average in its job's last 6 passed runs: 5 would
    do, unless it needs many at once for a while.
    """
    proposal = _proposal(evidence, "threads")
    if not isinstance(proposal, Proposal):
        return proposal
    if not _is_chosen(evidence):
        return NotMeasured(f"what threads cost: {_NOT_CHOSEN}")
    run, saving = evidence.run, proposal.saving
    lost = (proposal.now - proposal.wanted) * (0.0 if run is None else run.duration)
    severity: Severity = severity_of(evidence, lost, evidence.capacity)
    return Finding(
        rule="oversized-threads",
        severity=severity,
        clause=f"at most {proposal.most:.1f} of {number(proposal.now)} threads had work on average "
        f"in {_last_runs(evidence)}: {number(proposal.wanted)} would do, unless it needs many at "
        "once for a while",
        evidence=_measures(evidence, proposal),
        actions=(Action("Start fewer workers or threads.", proposal.setting),),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        cost=None if saving is None else saving.high,
        saving=saving,
        confidence="medium",
    )


def _proposal(evidence: Evidence, what: str) -> Proposal | NotMeasured | None:
    """Return the proposed size of ``what``; None if there is none."""
    sizing = evidence.sizing
    if evidence.run is None or sizing is None:
        return None
    if sizing.missing:
        return NotMeasured(f"{plural(sizing.missing, 'more passed run')} of its job")
    return next((one for one in sizing.proposals if one.what == what), None)


def _is_chosen(evidence: Evidence) -> bool:
    """Return whether the size of the cluster was chosen, rather than that of a user's machine."""
    cluster = evidence.cluster
    return cluster.price_source not in (None, _LIST) or cluster.in_client is False


def _last_runs(evidence: Evidence) -> str:
    runs = 0 if evidence.sizing is None else evidence.sizing.runs
    return f"its job's last {plural(runs, 'passed run')}"


def _measures(evidence: Evidence, proposal: Proposal) -> tuple[Measure, ...]:
    runs = 0 if evidence.sizing is None else evidence.sizing.runs
    of = "memory of a worker" if proposal.what == "memory" else "threads"
    most = "most memory of a worker" if proposal.what == "memory" else "threads that had work"
    return (
        Measure("runs of its job", runs, "{run}"),
        Measure(of, proposal.now, proposal.unit),
        Measure(most, proposal.most, proposal.unit),
        Measure("proposed", proposal.wanted, proposal.unit),
    )
