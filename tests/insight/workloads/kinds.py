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
    processes: bool = True
    #: Whether its tasks can be counted: two under one key are one task, or two.
    counted: bool = True
    #: Run at these intervals, in seconds.
    intervals: tuple[int, ...] = (2, 10)


KINDS: dict[str, Kind] = {
    "tiny_tasks": Kind("tiny-tasks"),
    "tiny_chunks": Kind("tiny-tasks"),
    "tiny_delayed": Kind("tiny-tasks"),
    "spilling": Kind("spilling", threads=1, memory="400 MiB", subject="last"),
    "out_of_memory": Kind("out-of-memory", threads=1, memory="300 MiB"),
    "gil": Kind("gil-bound", workers=1, threads=4),
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
    # Its task is not done at the end: the second count takes it for given up.
    "nowhere_to_run": Kind("unrunnable", ends="live", counted=False),
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
    "shuffling": Kind("shuffle-bound", memory="2 GiB"),
    "rechunking": Kind("shuffle-bound", memory="2 GiB"),
    "computes_in_a_loop": Kind("compute-loop", subject="cluster"),
    "questions_in_a_loop": Kind("compute-loop", subject="cluster"),
    "python_in_a_frame": Kind("gil-bound", workers=1, threads=4),
    "straggling_in_a_bag": Kind("straggler"),
    "retried_delayed": Kind("retries"),
    "bad_partition": Kind("failed"),
    "chained_array": Kind("serial-chain", threads=4),
    "two_partitions": Kind("too-few-tasks", threads=4, subject="last"),
    "waiting_bag": Kind("waiting", workers=1),
    "table_in_the_graph": Kind("large-graph"),
    "cancelled_bag": Kind("cancelled"),
    "spilling_array": Kind("spilling", threads=1, memory="480 MiB", subject="last"),
    "parts_of_nothing": Kind("tiny-tasks"),
    "pausing": Kind("paused", memory="600 MiB"),
    "loses_a_worker": Kind("recomputed"),
    "slow_host": Kind("slow-worker", workers=4, threads=1),
    "connects_first": Kind("warm-up", workers=4, threads=1),
    "holds_the_lock": Kind("blocked-loop", threads=1),
    "poisoned": Kind("killed-workers", threads=1),
    "full_machine": Kind("killed-for-memory", threads=1, memory="500 MiB"),
    "late_workers": Kind("slow-start", workers=0),
    "come_and_go": Kind("worker-churn", workers=0, subject="cluster", processes=False),
    "other_version": Kind("version-mismatch"),
    "same_key": Kind("key-collision", subject="last", counted=False),
    "nearly_full": Kind("nearly-out-of-memory", threads=1, memory="600 MiB", subject="cluster"),
    "busy_scheduler": Kind("scheduler-bound", threads=60),
    # --- healthy ---
    "balanced": Kind(None),
    "balanced_cluster": Kind(None, subject="cluster"),
    "array_sum": Kind(None),
    "map_reduce": Kind(None),
    "varied": Kind(None),
    "interactive": Kind(None, subject="last"),
    "hashing": Kind(None, workers=2, threads=4),
    "pipelined": Kind(None, memory="2 GiB"),
    "spilled_unread": Kind(None, threads=1, memory="400 MiB"),
    "imports": Kind(None),
    "slow_client": Kind(None),
    "shared": Kind(None),
    # Its few retries cost nothing, but its tasks wait for a clock.
    "few_retries": Kind("waiting"),
    "bag": Kind(None),
    "grouped": Kind(None),
    "merged": Kind(None),
    "loop_that_uses_it": Kind(None, subject="cluster"),
    "asked_again": Kind(None, subject="cluster"),
    "statistics": Kind(None, subject="last"),
    "delayed_tree": Kind(None),
    "persisted_twice": Kind(None),
    "small_graph_data": Kind(None),
    "one_rechunk": Kind(None),
    "second_worker_late": Kind(None, workers=1),
    "a_bit_slower": Kind(None, workers=2, threads=1),
    "restarted": Kind(None, subject="last"),
    "scales_once": Kind(None, subject="cluster", processes=False),
    "well_filled": Kind(None, threads=1, memory="600 MiB", subject="cluster"),
    "retires_one": Kind(None),
    "large_results": Kind(None, subject="last"),
    "seldom_flaky": Kind(None, subject="last"),
}

#: Runs of which there is no tape yet. Where more programs wait for a core than there are cores, as
#: on the machine that recorded the others, these cannot be told from work that waits as well.
UNRECORDED: frozenset[tuple[str, int]] = frozenset(
    {
        ("gil", 10),
        ("python_in_a_frame", 2),
        ("python_in_a_frame", 10),
        ("busy_scheduler", 2),
        ("busy_scheduler", 10),
        ("holds_the_lock", 2),
        ("holds_the_lock", 10),
        ("few_retries", 10),
    }
)

#: The workloads and intervals of which there are tapes.
RECORDED: tuple[tuple[str, int], ...] = tuple(
    sorted(
        (name, interval)
        for name, kind in KINDS.items()
        for interval in kind.intervals
        if (name, interval) not in UNRECORDED
    )
)
