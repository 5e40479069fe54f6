"""Heartbeats for tests, made of the protocol's own classes."""

from __future__ import annotations

import time
import uuid
from typing import Any

import requests

from daskscope.codec import code_hash, encode, pack_columns
from daskscope.names import DURATION_BOUNDS
from daskscope.protocol import (
    PROTOCOL,
    Activity,
    Cluster,
    Code,
    CodeFrame,
    Computation,
    ConnectedClient,
    Environment,
    Event,
    Failure,
    Gpu,
    Heartbeat,
    InstanceUse,
    Mismatch,
    Prices,
    Profile,
    ProfileLine,
    SchedulerLoad,
    Shutdown,
    Status,
    TaskGroup,
    TaskStream,
    WorkerLoss,
    WorkerShare,
)

ENVIRONMENT = Environment(
    python="3.12.1",
    python_path="/usr/bin/python3",
    operating_system="Linux",
    architecture="x86_64",
    packages={"dask": "2026.8.0", "distributed": "2026.8.0"},
)


def make_cluster(id: str | None = None, **fields: Any) -> Cluster:
    defaults: dict[str, Any] = {
        "id": id or f"Scheduler-{uuid.uuid4()}",
        "name": "nightly",
        "kind": "LocalCluster",
        "user": "ada",
        "host": "example",
        "started_at": time.time() - 60,
        "interval": 10.0,
        "environment": ENVIRONMENT,
        "tags": {"team": "climate"},
    }
    return Cluster(**(defaults | fields))


def make_status(**fields: Any) -> Status:
    defaults: dict[str, Any] = {
        "at": time.time(),
        "workers": 4,
        "threads": 8,
        "memory_used": 2**30,
        "memory_limit": 2**33,
        "worker_seconds": {"busy": 12.5, "idle": 400.0, "paused": 0.0},
        "tasks": {"memory": 3, "processing": 2},
        "clients": 1,
        "idle_seconds": None,
        "peak_workers": 4,
        "peak_threads": 8,
        "peak_memory_used": 2**31,
    }
    return Status(**(defaults | fields))


def make_computation(id: str = "c1", **fields: Any) -> Computation:
    defaults: dict[str, Any] = {
        "id": id,
        "status": "running",
        "user": "ada",
        "started_at": time.time() - 30,
        "stopped_at": None,
        "tasks": 100,
        "completed": 40,
        "erred": 1,
        "retried": 0,
        "states": {"memory": 40, "erred": 1, "waiting": 59},
        "seconds": {"compute": 3.5, "transfer": 0.25},
        "frames": (CodeFrame("/home/ada/run.py", 12),),
        "spans": ("default",),
    }
    return Computation(**(defaults | fields))


def make_tiny_tasks(id: str, started_at: float, stopped_at: float) -> dict[str, Any]:
    """Return the parts of a beat about a computation of 15,000 tasks of 40 µs each."""
    tiny: dict[str, Any] = {
        "tasks": 15_000,
        "completed": 15_000,
        "erred": 0,
        "states": {"memory": 15_000},
        "seconds": {"compute": 0.606},
    }
    durations = (14_975, 25, *(0,) * (len(DURATION_BOUNDS) - 1))
    when = {"started_at": started_at, "stopped_at": stopped_at}
    return {
        "computations": (make_computation(id, status="finished", **when, **tiny),),
        "task_groups": (make_task_group(id, "inc", prefix="inc", durations=durations, **tiny),),
    }


def make_task_group(computation: str = "c1", name: str = "sum-1", **fields: Any) -> TaskGroup:
    defaults: dict[str, Any] = {
        "computation": computation,
        "name": name,
        "prefix": "sum",
        "tasks": 100,
        "completed": 40,
        "erred": 1,
        "states": {"memory": 40, "erred": 1, "waiting": 59},
        "seconds": {"compute": 3.5},
        "output_bytes": 1_000_000,
        "dependencies": ("read-1",),
        "durations": (0,) * 14,
        "shortest": 0.01,
        "longest": 0.5,
        "started_at": time.time() - 30,
        "stopped_at": None,
    }
    return TaskGroup(**(defaults | fields))


def make_failure(**fields: Any) -> Failure:
    defaults: dict[str, Any] = {
        "computation": "c1",
        "fingerprint": "1:abc",
        "type": "ZeroDivisionError",
        "function": "divide",
        "message": "division by zero",
        "traceback": "Traceback …",
        "count": 3,
        "first_at": time.time() - 3600,
        "last_at": time.time() - 10,
        "worker": "tcp://127.0.0.1:1",
    }
    return Failure(**(defaults | fields))


def make_worker_loss(**fields: Any) -> WorkerLoss:
    defaults: dict[str, Any] = {
        "id": "w1",
        "address": "tcp://127.0.0.1:1",
        "name": "0",
        "at": time.time(),
        "reason": "killed",
        "expected": False,
        "processing": 3,
        "memory_used": None,
        "lifetime": 33.0,
    }
    return WorkerLoss(**(defaults | fields))


def make_event(**fields: Any) -> Event:
    defaults: dict[str, Any] = {
        "id": "e1",
        "at": time.time(),
        "topic": "progress",
        "message": '{"epoch": 3}',
    }
    return Event(**(defaults | fields))


def make_code(text: str = "x = 1\nx.compute()\n", file: str = "/home/ada/run.py") -> Code:
    return Code(hash=code_hash(file, 11, False, text), file=file, text=text, first_line=11)


def make_beat(cluster: Cluster | None = None, seq: int = 1, **fields: Any) -> Heartbeat:
    defaults: dict[str, Any] = {
        "protocol": PROTOCOL,
        "seq": seq,
        "phase": "beat",
        "sent_at": time.time(),
        "cluster": cluster or make_cluster(),
        "status": make_status(),
    }
    return Heartbeat(**(defaults | fields))


def full_beat(cluster: Cluster | None = None, seq: int = 1) -> Heartbeat:
    """Return a beat that has something of everything."""
    return make_beat(
        cluster
        or make_cluster(
            deployment={"slurm.job.id": "42"},
            prices=Prices("USD", {"thread": 0.06, "gpu": 1.5}),
            settings={"logs.level": "WARNING"},
        ),
        seq,
        status=make_status(
            held_by={"clients": 1, "results": 3},
            scheduler=SchedulerLoad(cpu=0.4, memory=2**28, lag=0.01),
            gpu=Gpu(workers=2, utilization=0.75, memory_used=2**33, memory_limit=None),
            cost=1.25,
            idle_cost=0.5,
            busy_by=("tasks are running", "Frisky reports work"),
            peak_worker_memory=2**32,
            connected=(ConnectedClient("ada", "10.0.0.2", time.time() - 60, 8, 2**29),),
            last_held_by={"clients": 1, "results": 8},
            gib_seconds=7200.0,
            gpu_seconds=3600.0,
            peak_memory_limit=2**33,
            instances=(InstanceUse("m5.xlarge", 900.0, 3600.0, 7200.0),),
            mismatches=(Mismatch("numpy", "2.1.0", {"2.1.0": 2, "none": 1}, {"2.2.0": 1}),),
        ),
        computations=(
            make_computation(
                cancelled=2,
                annotations={"owner": "ada"},
                graph_bytes=4_096,
                ended_at=time.time(),
                lost_runs=3,
                blamed=2,
                blames={"c0": "divide"},
                began_at=time.time() - 29,
                mostly_done_at=time.time() - 1,
                largest_output=2**20,
                first_runs=2,
                first_seconds=3.5,
                workers=4,
                worker_shares=(WorkerShare("tcp://127.0.0.1:1", 5, 7.5, 0.76, 1.6),),
                worker_seconds={"busy": 12.5, "idle": 4.0, "paused": 0.0},
                spilled_bytes=2**30,
                unspilled_bytes=2**29,
                transferred_bytes=2**28,
                loop_interval=1.25,
                heartbeat_age=2.5,
                host_load=0.75,
                unrunnable_seconds=31.5,
                asks={"GPU=1": 2},
                completed_later=4,
                seconds_later=9.75,
            ),
        ),
        task_groups=(
            make_task_group(
                types={"int": 40}, retried=1, largest_output=2**20, first_runs=2, first_seconds=3.5
            ),
            make_task_group(name="read-1", dependencies=()),
        ),
        failures=(make_failure(retried=1), make_failure(computation=None)),
        worker_losses=(
            make_worker_loss(
                last_seen_at=time.time() - 1,
                memory_limit=2**34,
                nanny_memory=2**33,
                tasks={"sum": 3},
                log=("one", "two"),
                peak_memory=2**33,
                computations={"c1": 2},
                deployment={"slurm.job.id": "4711"},
            ),
        ),
        activities=(Activity("sum", {"thread-cpu": 3.5}), Activity("", {"idle": 400.0})),
        profiles=(make_profile(),),
        task_streams=(make_stream(),),
        shutdowns=(make_shutdown(),),
        events=(make_event(),),
        code=(make_code(),),
        drops={"events": 2},
    )


def make_profile(id: str = "p1", **fields: Any) -> Profile:
    defaults: dict[str, Any] = {
        "id": id,
        "started_at": time.time() - 60,
        "stopped_at": time.time(),
        "workers": 4,
        "seconds": 21.5,
        "lines": (ProfileLine("/home/ada/run.py", "load", 12, "    return read(path)"),),
        "parent": (-1,),
        "line": (0,),
        "samples": (1654,),
        "unsampled": 3.5,
    }
    return Profile(**(defaults | fields))


def make_stream(id: str = "t1", **fields: Any) -> TaskStream:
    """Return the stream of a run of half a second, and of three that were merged."""
    started_at = time.time() - 60
    columns = [[0, 1], [0, 1], [1, 0], [0, 1_000], [5_000, 20_000], [1, 3], [0, 12_000]]
    columns += [[0, 9_000], [250, 0], [0, 40]]
    defaults: dict[str, Any] = {
        "id": id,
        "started_at": started_at,
        "stopped_at": started_at + 2.1,
        "runs": 4,
        "merged": 3,
        "workers": ("tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000"),
        "prefixes": ("load", "sum"),
        "columns": pack_columns(columns),
    }
    return TaskStream(**(defaults | fields))


def make_shutdown(**fields: Any) -> Shutdown:
    defaults: dict[str, Any] = {
        "id": "s1",
        "requested_by": "idle.timeout",
        "state": "announced",
        "at": time.time(),
        "closes_at": time.time() + 30,
        "detail": "It was idle for 1 h.",
    }
    return Shutdown(**(defaults | fields))


def post(url: str, token: str | None, body: Heartbeat | bytes, **headers: str) -> requests.Response:
    """Send a beat, or anything in its place."""
    if token is not None:
        headers.setdefault("Authorization", f"Bearer {token}")
    return requests.post(
        f"{url}/api/v1/heartbeats",
        data=body if isinstance(body, bytes) else encode(body),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        timeout=30,
    )
