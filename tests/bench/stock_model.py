"""What a cluster of a stock reports: sent to the service once, and multiplied in its tables."""

from __future__ import annotations

import time
from typing import Any

import requests

from daskscope import names
from daskscope.protocol import (
    Activity,
    CodeFrame,
    Environment,
    Heartbeat,
    Prices,
    Profile,
    ProfileLine,
    SchedulerLoad,
)
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_event,
    make_failure,
    make_profile,
    make_shutdown,
    make_status,
    make_task_group,
    make_worker_loss,
    post,
)

MODEL = "model"

#: Spans of one computation's trace: its own, five groups, and tasks; and when the first began.
SPANS = 24
SPANS_BEGAN = 1_000_000_000

_PACKAGES = (
    *("dask", "distributed", "numpy", "pandas", "pyarrow", "msgpack", "tornado", "toolz"),
    *("cloudpickle", "lz4", "bokeh", "scipy", "xarray", "zarr", "s3fs", "fsspec"),
)
_CALLS = 120


def send_model(url: str, token: str) -> None:
    """Report the cluster :data:`MODEL`, with one of each thing that there is."""
    post(url, token, _beat()).raise_for_status()
    for path, body in (("logs", _logs()), ("traces", _spans())):
        headers = {"Authorization": f"Bearer {token}"}
        requests.post(f"{url}/v1/{path}", json=body, headers=headers, timeout=30).raise_for_status()


def _beat() -> Heartbeat:
    code = make_code("\n".join(f"frame{n} = load(path, {n})" for n in range(30)) + "\nx.compute()")
    packages = {name: f"2026.{n}.1" for n, name in enumerate(_PACKAGES)}
    environment = Environment(
        "3.13.1", "/opt/conda/envs/features/bin/python", "Linux", "x86_64", packages
    )
    # Erred, so that it is told of; most of those that are made of it are not.
    computation = make_computation(
        status="erred", frames=(CodeFrame(code.file, 12, code.hash),), spans=("load", "train")
    )
    return make_beat(
        make_cluster(
            MODEL, environment=environment, prices=Prices("USD", {"thread": 0.06, "gib": 0.01})
        ),
        status=make_status(
            held_by={"clients": 1, "results": 3},
            scheduler=SchedulerLoad(cpu=0.4, memory=2**28, lag=0.01),
            cost=1.25,
            idle_cost=0.5,
        ),
        computations=(computation,),
        task_groups=tuple(
            make_task_group(
                name=f"group-{n}", dependencies=(f"group-{n - 1}",) if n else (), types={"int": 40}
            )
            for n in range(5)
        ),
        failures=(make_failure(traceback="  File run.py, line 12, in divide\n" * 20),),
        worker_losses=(make_worker_loss(log=("Unmanaged memory use is high",) * 5),),
        events=(make_event(),),
        activities=tuple(Activity(f"group-{n}", {"thread-cpu": 3.5}) for n in range(5)),
        profiles=(_profile(),),
        shutdowns=(make_shutdown(),),
        code=(code,),
    )


def _profile() -> Profile:
    """Return a tree in which each call makes two others."""
    lines = tuple(
        ProfileLine(f"/home/ada/part{n % 7}.py", f"function_{n}", n, f"    return step_{n}(frame)")
        for n in range(_CALLS)
    )
    return make_profile(
        lines=lines,
        parent=tuple((n - 1) // 2 if n else -1 for n in range(_CALLS)),
        line=tuple(range(_CALLS)),
        samples=tuple(2**20 >> (n + 1).bit_length() for n in range(_CALLS)),
    )


def _resource() -> dict[str, Any]:
    attributes = {names.CLUSTER_ID: MODEL}
    return {"attributes": _attributes(attributes)}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _logs() -> dict[str, Any]:
    record = {
        "timeUnixNano": str(time.time_ns()),
        "severityNumber": 13,
        "severityText": "WARN",
        "body": {"stringValue": "Unmanaged memory use is high: 12.3 GiB of 16.0 GiB are in use"},
        "attributes": _attributes({"dask.worker.name": "tcp://10.4.12.7:41023"}),
    }
    return {"resourceLogs": [{"resource": _resource(), "scopeLogs": [{"logRecords": [record]}]}]}


def _spans() -> dict[str, Any]:
    began = SPANS_BEGAN * 10**9
    spans = []
    for n in range(SPANS):
        kind = "dask.computation" if n == 0 else "dask.task_group" if n < 6 else "dask.task"
        span = {
            "traceId": f"{1:032x}",
            "spanId": f"{n + 1:016x}",
            "name": kind,
            "startTimeUnixNano": str(began + n * 10**8),
            "endTimeUnixNano": str(began + (n + 20) * 10**8),
            "attributes": _attributes({"dask.computation.id": "c1", "dask.task.prefix": "sum"}),
        }
        if n:
            span["parentSpanId"] = f"{1 if n < 6 else 2 + n % 5:016x}"
        spans.append(span)
    return {"resourceSpans": [{"resource": _resource(), "scopeSpans": [{"spans": spans}]}]}
