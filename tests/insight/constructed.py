"""Evidence for tests of the rules: of a healthy computation, but for what is changed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Any

from daskscope.names import DURATION_BOUNDS
from daskscope_service.insight.findings.evidence import (
    ClusterState,
    Evidence,
    FailureGroup,
    Group,
    Loss,
    Meanwhile,
    Run,
    Share,
)
from daskscope_service.insight.findings.rules import judge

MIB, GIB = 2**20, 2**30

START = 1_700_000_000.0


def runs(*taken: tuple[int, float]) -> tuple[int, ...]:
    """Return the histogram of so many runs of so many seconds each."""
    counts = [0] * (len(DURATION_BOUNDS) + 1)
    for count, seconds in taken:
        counts[bisect_left(DURATION_BOUNDS, seconds)] += count
    return tuple(counts)


def group(**fields: Any) -> Group:
    defaults: dict[str, Any] = {
        "name": "work",
        "prefix": "work",
        "tasks": 100,
        "completed": 100,
        "erred": 0,
        "seconds": {"compute": 60.0},
        "output_bytes": 100 * MIB,
        "durations": runs((100, 0.6)),
        "longest": 0.8,
    }
    return Group(**(defaults | fields))


def share(**fields: Any) -> Share:
    defaults: dict[str, Any] = {
        "worker": "tcp://a:1",
        "runs": 25,
        "seconds": 15.0,
        "usual_seconds": 15.0,
        "longest": 0.8,
    }
    return Share(**(defaults | fields))


def failure(**fields: Any) -> FailureGroup:
    defaults: dict[str, Any] = {
        "type": "ValueError",
        "function": "work",
        "count": 1,
        "retried": 0,
        "fingerprint": "1:abc",
        "computation": "c1",
        "first_at": START + 1,
        "last_at": START + 1,
    }
    return FailureGroup(**(defaults | fields))


def loss(**fields: Any) -> Loss:
    defaults: dict[str, Any] = {
        "id": "w1",
        "at": START + 5,
        "reason": "out of memory",
        "expected": False,
        "processing": 1,
        "memory_used": 61 * MIB,
        "memory_limit": 286 * MIB,
        "nanny_memory": 300 * MIB,
        "tasks": {"work": 1},
        "computations": {"c1": 1},
    }
    return Loss(**(defaults | fields))


def run_of(**fields: Any) -> Run:
    """Return 100 tasks of 0.6 s on 4 threads, in 16.4 s: threads computed 91 % of the time."""
    defaults: dict[str, Any] = {
        "id": "c1",
        "status": "finished",
        "started_at": START,
        "duration": 16.4,
        "tasks": 100,
        "done": 100,
        "completed": 100,
        "erred": 0,
        "retried": 0,
        "cancelled": 0,
        "states": {"memory": 100},
        "seconds": {"compute": 60.0},
        "graph_bytes": 30_000,
        "groups": (group(),),
    }
    return Run(**(defaults | fields))


def cluster_of(**fields: Any) -> ClusterState:
    defaults: dict[str, Any] = {
        "id": "Scheduler-1",
        "status": "running",
        "started_at": START - 10,
        "duration": 60.0,
        "workers": 2,
        "threads": 4,
        "peak_workers": 2,
        "peak_threads": 4,
        "peak_memory": 500 * MIB,
        "memory_limit": 2 * GIB,
        "idle_seconds": None,
        "held_by": {},
        "worker_seconds": {"busy": 60.0, "idle": 180.0},
    }
    return ClusterState(**(defaults | fields))


def meanwhile_of(**fields: Any) -> Meanwhile:
    defaults: dict[str, Any] = {
        "alone": True,
        "threads": 4.0,
        "workers": 2.0,
        "activities": {"thread-cpu": 55.0, "thread-noncpu": 5.0, "idle": 4.0, "unattributed": 1.6},
        "whole": True,
        "spilled": 0.0,
        "unspilled": 0.0,
        "most_waiting": 0.0,
        "not_done_then": 0.0,
        "most_unrunnable": 0.0,
        "worker_cpu": 1.8,
        "profiled": 70.0,
        "line": "work.py:22",
        "waiting_lines": 0.0,
    }
    return Meanwhile(**(defaults | fields))


def evidence(
    *,
    run: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    meanwhile: dict[str, Any] | None = None,
    **fields: Any,
) -> Evidence:
    """Return evidence of a healthy computation, but for what is given."""
    return Evidence(
        cluster=cluster_of(**(cluster or {})),
        meanwhile=meanwhile_of(**(meanwhile or {})),
        run=run_of(**(run or {})),
        **fields,
    )


def of_cluster(cluster: dict[str, Any], **fields: Any) -> Evidence:
    """Return evidence of a cluster."""
    given = {"meanwhile": Meanwhile(busy_seconds=60.0)} | fields
    return Evidence(cluster=cluster_of(**cluster), **given)


def without(found: Evidence, **fields: Any) -> Evidence:
    """Return the same, with other numbers of the time while it ran."""
    return replace(found, meanwhile=replace(found.meanwhile, **fields))


def first(found: Evidence) -> str | None:
    """Return the name of the rule that the first sentence is of, None for none."""
    shown = judge(found).shown
    return shown[0].rule if shown else None


def sentence(found: Evidence) -> str:
    """Return the first finding, as a sentence."""
    return judge(found).shown[0].sentence
