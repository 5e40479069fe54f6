"""The workloads: what is wrong with each, and on what cluster it runs. None: nothing is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TAPES = Path(__file__).parent / "tapes"

#: What a workload says once its work is done: whether the service has the numbers of a second
#: count. Of a cluster that is killed it cannot have all.
RIGHT, WRONG, UNCOUNTED = "right", "the service has other numbers", "uncounted"


@dataclass(frozen=True, slots=True)
class Kind:
    """A workload. ``cause`` is the rule that must be named first of its ``subject``.

    That is the computation of most tasks, the one that began last, or the cluster. ``ends`` says
    how: the cluster is closed, its process is killed, or it is still there.
    """

    cause: str | None
    workers: int = 2
    threads: int = 2
    memory: str = "1 GiB"
    subject: Literal["largest", "last", "cluster"] = "largest"
    ends: Literal["closed", "killed", "live"] = "closed"
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Recorded at these intervals, in seconds.
    intervals: tuple[int, ...] = (2,)


KINDS: dict[str, Kind] = {
    "tiny_tasks": Kind("tiny-tasks"),
    "tiny_chunks": Kind("tiny-tasks"),
    "tiny_delayed": Kind("tiny-tasks"),
    "spilling": Kind("spilling", threads=1, memory="300 MiB"),
    "out_of_memory": Kind("out-of-memory", threads=1, memory="300 MiB"),
    "gil": Kind("gil-bound", workers=1, threads=4, intervals=(2,)),
    "transfers": Kind("transfer-bound", memory="2 GiB"),
    "straggler": Kind("straggler"),
    "straggling_partition": Kind("straggler"),
    "flaky": Kind("retries"),
    "bad_input": Kind("failed"),
    "dependents": Kind("upstream-failed", subject="last"),
    "graph_with_data": Kind("large-graph"),
    "chain": Kind("serial-chain", threads=4),
    "sleeps": Kind("waiting", workers=1),
    "cancelled": Kind("cancelled"),
    "nowhere_to_run": Kind("unrunnable", ends="live"),
    "nowhere_to_run_gone": Kind("unrunnable"),
    "two_parts": Kind("too-few-tasks", threads=4),
    "idle": Kind("idle-cluster", subject="cluster", ends="live"),
    "idle_gone": Kind("idle-cluster", subject="cluster"),
    "killed": Kind("silent", subject="cluster", ends="killed"),
    "spacious": Kind(
        "over-provisioned-memory",
        memory="8 GiB",
        subject="cluster",
        settings={"prices": {"currency": "USD", "thread": 3.6, "gib": 0.36}},
    ),
    # --- healthy ---
    "balanced": Kind(None),
    "balanced_cluster": Kind(None, subject="cluster"),
    "array_sum": Kind(None),
    "map_reduce": Kind(None),
    "varied": Kind(None),
    "interactive": Kind(None, subject="last"),
    "hashing": Kind(None, workers=2, threads=4),
    "pipelined": Kind(None, memory="2 GiB"),
    "spilled_unread": Kind(None, threads=1, memory="300 MiB"),
    "imports": Kind(None),
    "slow_client": Kind(None),
    "shared": Kind(None),
    "few_retries": Kind(None),
    "bag": Kind(None),
}
