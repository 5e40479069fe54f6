"""Rules about workers that died, but were not ended by their nannies for their memory."""

from __future__ import annotations

from daskscope.names import LOSS_DIED, LOSS_LOST_CONNECTION
from daskscope_service.insight.findings.evidence import Evidence, Loss, Run
from daskscope_service.insight.findings.failures import (
    KILLED_WORKER,
    between,
    common_prefix,
    is_of,
)
from daskscope_service.insight.findings.finding import Action, Finding, Measure, Outcome
from daskscope_service.insight.findings.savings import of_the_run
from daskscope_service.insight.wording import plural, size

#: The reasons that the scheduler reports for workers that ended without telling it.
_WITHOUT_A_WORD = (LOSS_DIED, LOSS_LOST_CONNECTION)


def killed_for_memory(evidence: Evidence) -> Outcome:
    """Workers died without reporting why while their memory was almost full.

    Their nannies did not end them. The kernel's out-of-memory killer and Kubernetes end a process
    so, without a trace in Dask, when the machine or the container is short of memory; so do other
    things, and nobody reports which it was.

    How it is found: workers' processes ended, or fell silent, while they ran this computation's
    tasks; and the most memory that they are known to have had is at least 80 % of what each may
    use, of every one of them.

    What to do: look into the kernel's log or the pod's last state for "OOM". Leave the machine or
    the container a tenth more memory than its workers may use together, and split the input.

    Example: 3 workers died without reporting why, at 7.1 GiB to 7.4 GiB of the 8 GiB that each may
    use: the machine or the platform may have ended them for their memory.
    """
    run = evidence.run
    died = _died(evidence)
    ends = [max(loss.peak_memory or 0, loss.memory_used or 0) for loss in died]
    least = evidence.thresholds["killed.memory"]
    if not died or any(
        not loss.memory_limit or end < least * loss.memory_limit
        for loss, end in zip(died, ends, strict=True)
    ):
        return None
    limits = [loss.memory_limit or 0 for loss in died]
    where = "h-losses" if run is None else "h-lost"
    return Finding(
        rule="killed-for-memory",
        severity="critical",
        clause=f"{plural(len(died), 'worker')} died without reporting why, at "
        f"{between(min(ends), max(ends))} of the {size(max(limits))} that each may use: the "
        "machine or the platform may have ended them for their memory",
        evidence=(
            Measure("workers lost", len(died), "{worker}", where),
            Measure("memory at the end", max(ends), "By", where),
            Measure("memory limit", max(limits), "By"),
        ),
        actions=(
            Action("Look for OOM in the log of the machine's kernel, or the pod's last state."),
            Action(
                "Leave the machine or container more memory than its workers may use.",
                f"at least {size(1.1 * max(limits))} for each worker",
            ),
        ),
        saving=of_the_run(evidence) if run is not None and run.status == "erred" else None,
        confidence="medium",
    )


def killed_workers(evidence: Evidence) -> Outcome:
    """Workers died one after another while they ran the same tasks.

    Dask starts a task again on another worker when its worker dies. A task that ends the process
    of each worker that runs it (a crash in compiled code, a call that exits) therefore ends one
    worker after another, until Dask gives it up with KilledWorker: by default after the fourth
    time.

    How it is found: the computation failed with KilledWorker. Or at least two workers that ran its
    tasks died, and all of them ran tasks of the same name, which are less than 80 % of its tasks.
    (With more, any worker that died would have run one.)

    What to do: run the function of that name alone, on one input in a process of its own, and look
    at how that ends; the last lines of the lost workers' logs may say it.

    Example: 4 workers that ran its tasks of decode died one after another; Dask gave up.
    """
    run = evidence.run
    if run is None:
        return None
    lost = _died(evidence)
    # A task that only waited may have been given up, too: name the one that was there most often.
    given_up = max(
        (one for one in run.failures if KILLED_WORKER in one.type),
        key=lambda one: sum(one.function in loss.tasks for loss in lost),
        default=None,
    )
    if given_up is not None:
        prefix: str | None = given_up.function
        lost = [loss for loss in lost if given_up.function in loss.tasks]
        others = [loss for loss in evidence.losses if not loss.expected and is_of(loss, run)]
        if others and not lost:
            return None  # they ended for a reason that has a rule of its own
    else:
        prefix = common_prefix(lost, run)
        if len(lost) < 2 or prefix is None or _is_most(run, prefix, evidence):
            return None
    died = plural(len(lost), "worker") if lost else "workers"
    ended = "; Dask gave up" if given_up is not None else ""
    link = f"failure-{given_up.fingerprint}" if given_up is not None else "h-lost"
    return Finding(
        rule="killed-workers",
        severity="critical",
        clause=f"{died} that ran its tasks of {prefix} died one after another{ended}",
        evidence=(
            Measure("workers lost", len(lost), "{worker}", "h-lost"),
            *(
                (Measure("tasks that were given up", given_up.count, "{task}", link),)
                if given_up is not None
                else ()
            ),
        ),
        actions=(
            Action(f"Run {prefix} alone in a process of its own, and look at how that ends."),
            *(
                (
                    Action(
                        "If the machines are at fault, let Dask try more often.",
                        "distributed.scheduler.allowed-failures",
                    ),
                )
                if given_up is not None
                else ()
            ),
        ),
        saving=of_the_run(evidence) if run.status == "erred" else None,
        confidence="high" if given_up is not None and lost else "medium",
    )


def _died(evidence: Evidence) -> list[Loss]:
    """Return the losses of workers that ended without telling the scheduler.

    For a computation, these are only losses with which runs of it ended.
    """
    run = evidence.run
    return [
        loss
        for loss in evidence.losses
        if not loss.expected
        and loss.reason in _WITHOUT_A_WORD
        and loss.nanny_memory is None
        and (run is None or (loss.processing and is_of(loss, run)))
    ]


def _is_most(run: Run, prefix: str, evidence: Evidence) -> bool:
    of_it = sum(group.tasks for group in run.groups if group.prefix == prefix)
    return of_it >= evidence.thresholds["killed.common"] * max(run.tasks, 1)
