"""The rule about tasks that no worker can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from daskscope_service.insight.findings.evidence import ClusterState, Evidence, Run
from daskscope_service.insight.findings.finding import (
    Action,
    Finding,
    Measure,
    NotMeasured,
    Outcome,
)
from daskscope_service.insight.stuck import (
    left_waiting,
    most_asked,
    no_worker,
    waiting_for_worker,
)
from daskscope_service.insight.wording import plural


def unrunnable(evidence: Evidence) -> Outcome:
    """Tasks wait for a worker that can run them, and none can.

    They ask for a certain worker or host, which may have left, or for resources that none of the
    workers has; or there is no worker.

    How it is found: Dask holds the tasks in its state no-worker or, without any worker, queued. It
    has done so for half a minute, and no worker is starting. Of a computation that has ended, it
    did so for half a minute and no task ran.

    What to do: start a worker that has what they ask for, or remove the restriction from the call.
    Without any worker, start some, and look at why those left that there were.

    Example: 1 task waits for a worker that can run it: none of 2 workers is or has what it asks for
    (GPU=1).
    """
    run, cluster = evidence.run, evidence.cluster
    if cluster.status != "running" or (run is not None and run.status != "running"):
        return _was_unrunnable(evidence)
    if run is None:
        stuck = waiting_for_worker(cluster.held_by, cluster.workers, unrunnable="unrunnable")
        longest = next(iter(evidence.waited), None)
        waited = cluster.duration if longest is None else longest.unrunnable_seconds or 0.0
    else:
        stuck = waiting_for_worker(run.states, cluster.workers)
        waited = run.duration if run.unrunnable_seconds is None else run.unrunnable_seconds
    if not stuck or cluster.held_by.get("workers starting"):
        return None
    if waited < evidence.thresholds["unrunnable.seconds"]:
        return None
    return _stuck(stuck, cluster.workers, {} if run is None else run.asks)


def _was_unrunnable(evidence: Evidence) -> Outcome:
    """Judge a cluster that is gone, or a cancelled or lost computation.

    Tasks may still have waited for a worker when it ended.
    """
    least = evidence.thresholds["unrunnable.seconds"]
    runs = evidence.waited if evidence.run is None else [evidence.run]
    runs = [one for one in runs if one.status in ("cancelled", "lost") and one.duration >= least]
    if not runs:
        return None
    of_time = evidence.meanwhile.workers
    workers = round(evidence.cluster.peak_workers if of_time is None else of_time)
    run = runs[0]
    if run.unrunnable_seconds is not None:
        # The cluster reported how long each computation had such tasks, whatever else ran.
        left = [(one, stuck) for one in runs if (stuck := _left(one, evidence.cluster, least))]
        if not left:
            return None
        run = left[0][0]
        asks: Counter[str] = Counter()
        for one, _ in left:
            asks.update(one.asks)
        none = no_worker(asks, run.worker_seconds, run.unrunnable_seconds)
        if not none and evidence.cluster.status == "lost" and not evidence.cluster.workers:
            none = "there was no worker"
        return _stuck(sum(stuck for _, stuck in left), workers, asks, past=True, none=none)
    most = evidence.meanwhile.most_unrunnable
    if run.completed:
        return None
    if most is None:
        return NotMeasured("tasks that no worker could run")
    if most < 1 or not evidence.meanwhile.alone:
        return None
    return _stuck(min(round(most), run.tasks), workers, run.asks, past=True)


def _left(run: Run, cluster: ClusterState, least: float) -> int:
    """Return how many tasks of ``run`` waited to its end; 0 if for less than ``least`` seconds."""
    if (run.unrunnable_seconds or 0.0) < least:
        return 0
    return left_waiting(
        run.tasks - run.done, run.states, run.asks,
        waited=run.unrunnable_seconds, seconds=run.duration,
        silent=cluster.status == "lost", workers=cluster.workers,
    )  # fmt: skip


def _stuck(
    stuck: int, workers: int, wanted: Mapping[str, int], *, past: bool = False, none: str = ""
) -> Finding:
    """Return the finding. ``none`` says that there was no worker; "" to judge by ``workers``."""
    workers = 0 if none else workers
    waits = "waited" if past else "waits" if stuck == 1 else "wait"
    ask, has, there_is = ("asked", "was or had", "was") if past else ("ask", "is or has", "is")
    asks = "it asks" if stuck == 1 and not past else f"they {ask}" if stuck != 1 else "it asked"
    # Without any worker, it does not matter what the tasks ask for.
    words = most_asked(wanted)
    for_what = f" ({', or '.join(words)})" if words and workers else ""
    none = none or (
        f"there {there_is} no worker"
        if not workers
        else f"none of {plural(workers, 'worker')} {has} what {asks} for{for_what}"
    )
    return Finding(
        rule="unrunnable",
        severity="critical",
        clause=f"{plural(stuck, 'task')} {waits} for a worker that can run "
        f"{'it' if stuck == 1 else 'them'}: {none}",
        evidence=(
            Measure("tasks that no worker can run", stuck, "{task}"),
            *(
                Measure(f"ask for {name}", count, "{task}")
                for name, count in wanted.items()
                if name in words
            ),
            Measure("workers", workers, "{worker}"),
        ),
        actions=(
            Action("Start workers. If there were some, look at why they left.", "cluster.scale(…)")
            if not workers
            else Action(
                "Start a worker with the resources that the tasks ask for, or change what they "
                "ask for: resources= and workers= of the call, or dask.annotate. A worker or host "
                "that they name may have left."
            ),
        ),
    )
