"""The rule about moving data between partitions or chunks."""

from __future__ import annotations

import re
from collections import defaultdict

from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import Action, Finding, Measure, Outcome
from daskscope_service.insight.findings.mass import is_worth_profiling, severity_of, share_of
from daskscope_service.insight.findings.savings import time_saving
from daskscope_service.insight.wording import duration, percent

#: The prefixes of tasks that rechunk arrays, and of tasks that shuffle tables.
_RECHUNKS = re.compile(r"rechunk")
#: A word in the prefix of tasks that Dask has fused with others that use the data: ``rechunk-sum``.
_ALSO_COMPUTES = re.compile(
    r"(?:^|[-_])(?!(?:rechunk|merge|slice|split|transfer|barrier|p2p)(?:[-_]|$))"
)
_SHUFFLES = re.compile(r"shuffle|(^|[-_])p2p|repartition|disk-?join|partd|set-?index-?post")


def shuffle_bound(evidence: Evidence) -> Outcome:
    """Most of the tasks' time went into moving data between partitions or chunks.

    A shuffle (`set_index`, `merge`, `groupby` with many groups, `sort_values`) or a rechunk sends
    most of the data from each worker to the others.

    How it is found: tasks that shuffle or rechunk, by their names, took at least 40 % of all tasks'
    time, their transfers and disk included, but not what tasks computed that Dask has fused with
    others that use the data; a tenth of the threads' time or more; and something
    else was computed, too: where a shuffle is all that was asked for there is nothing to say.

    What to do: choose chunks when the data is read, so that they fit what is computed; rechunk
    once; drop columns and filter rows before a merge; keep the result of `set_index` for later, in
    Parquet or with `persist`.

    Example: 58 % of its tasks' time went into moving data between chunks (rechunk-p2p): 41.2 s.
    """
    run, limits = evidence.run, evidence.thresholds
    if run is None or not is_worth_profiling(evidence) or run.status == "running":
        return None
    if run.duration < limits["shuffle.duration"]:
        return None
    by_prefix: defaultdict[str, float] = defaultdict(float)
    other = 0.0
    for group in run.groups:
        seconds = sum(group.seconds.values())
        if _RECHUNKS.search(group.prefix) and _ALSO_COMPUTES.search(group.prefix):
            computed = group.seconds.get("compute", 0.0)
            by_prefix[group.prefix] += seconds - computed
            other += computed
        elif _RECHUNKS.search(group.prefix) or _SHUFFLES.search(group.prefix):
            by_prefix[group.prefix] += seconds
        else:
            other += seconds
    moving = sum(by_prefix.values())
    whole = moving + other
    if not moving or moving < limits["shuffle.share"] * whole:
        return None
    if other < limits["shuffle.other"] * whole:
        return None
    if not evidence.capacity or moving < limits["shuffle.threads"] * evidence.capacity:
        return None
    worst = max(by_prefix, key=lambda prefix: by_prefix[prefix])
    lost = min(moving, evidence.capacity)
    # P2P barriers have the same name in both kinds, so one rechunking prefix decides.
    rechunks = any(_RECHUNKS.search(prefix) for prefix in by_prefix)
    return Finding(
        rule="shuffle-bound",
        severity=severity_of(evidence, lost, evidence.capacity),
        clause=f"{percent(moving / whole)} of its tasks' time went into moving data between "
        f"{'chunks' if rechunks else 'partitions'} ({worst}): {duration(moving)}",
        evidence=(
            Measure("tasks that move data", moving, "s", "h-groups"),
            Measure("all tasks", whole, "s", "h-groups"),
        ),
        actions=(
            Action("Choose chunks that fit what is computed when the data is read; rechunk once.")
            if rechunks
            else Action("Drop columns and filter rows before it, or keep its result for later."),
        ),
        seconds=lost,
        share=share_of(lost, evidence.capacity),
        saving=time_saving(evidence, lost, "time of tasks that move data"),
        confidence="medium",
    )
