"""Rows of revision 0001."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

#: Secret of the token ``dsk_aaaaaaaaaa_…``.
SECRET = "5" * 64

_CLUSTER = {"workspace": "default", "cluster": "Scheduler-1"}

ROWS: dict[str, list[dict[str, Any]]] = {
    "workspace": [{"id": "finance", "created_at": 1_700_000_000.5}],
    "token": [
        {
            "id": "aaaaaaaaaa",
            "workspace": "default",
            "label": "nightly",
            "scopes": "ingest read",
            "secret_hash": sha256(SECRET.encode()).digest(),
            "created_at": 1_700_000_000.5,
        }
    ],
    "sign_in_link": [{"code_hash": b"\0\xff", "workspace": "default", "expires_at": 2e10}],
    "session": [
        {"id_hash": b"\xff\0", "workspace": "default", "created_at": 1.0, "expires_at": 2e10}
    ],
    "cluster": [
        {
            "workspace": "default",
            "id": "Scheduler-1",
            "seq": 7,
            "name": "nightly",
            "kind": "LocalCluster",
            "user": "maria",
            "host": "node-1",
            "started_at": 1_700_000_000.25,
            "stopped_at": 1_700_000_100.0,
            "interval": 10.0,
            "environment": {"python": "3.12.1", "packages": {"dask": "2025.2.0"}},
            "tags": {"team": "risk"},
            "first_seen_at": 1_700_000_001.0,
            "last_seen_at": 1_700_000_100.0,
            "status_at": 1_700_000_099.0,
            "workers": 0,
            "threads": 0,
            "memory_used": 0,
            "memory_limit": 2**40,
            "worker_seconds": {"busy": 100.5, "idle": 3.25},
            "tasks": {"memory": 3},
            "clients": 1,
            "peak_workers": 4,
            "peak_threads": 8,
            "peak_memory_used": 2**33,
            "drops": {"events": 2},
            "deployment": {},
            "prices": {"currency": "EUR", "per_hour": {"worker": 0.5}},
            "held_by": {"results": 3},
            "scheduler": None,
            "gpu": None,
            "cost": 1.5,
        }
    ],
    "computation": [
        {
            **_CLUSTER,
            "id": "c1",
            "seq": 7,
            "status": "erred",
            "user": "maria",
            "started_at": 1_700_000_010.0,
            "stopped_at": 1_700_000_020.0,
            "tasks": 10,
            "completed": 8,
            "erred": 2,
            "retried": 1,
            "states": {"memory": 8},
            "seconds": {"compute": 12.5},
            "frames": [{"file": "job.py", "line": 3, "code": "h1"}],
            "spans": ["risk"],
            "cancelled": 0,
            "annotations": {"priority": "high"},
            "graph_bytes": 2**32,
        }
    ],
    "task_group": [
        {
            **_CLUSTER,
            "computation": "c1",
            "name": "load-1",
            "seq": 7,
            "prefix": "load",
            "tasks": 10,
            "completed": 8,
            "erred": 2,
            "states": {"memory": 8},
            "seconds": {"compute": 12.5},
            "output_bytes": 2**33,
            "dependencies": [],
            "durations": [0, 8],
            "shortest": 0.5,
            "longest": 2.5,
            "types": {"float": 8},
            "retried": 1,
        }
    ],
    "failure": [
        {
            **_CLUSTER,
            "computation": "c1",
            "fingerprint": "v1-0123456789abcdef",
            "seq": 7,
            "type": "ValueError",
            "function": "load",
            "message": "no such day: ünïcode",
            "traceback": None,
            "count": 2,
            "first_at": 1_700_000_015.0,
            "last_at": 1_700_000_016.0,
            "retried": 0,
        }
    ],
    "worker_loss": [
        {
            **_CLUSTER,
            "id": "w1",
            "seq": 6,
            "address": "tcp://10.0.0.1:4000",
            "name": "worker-1",
            "at": 1_700_000_050.0,
            "reason": "memory",
            "expected": False,
            "processing": 3,
            "lifetime": 40.0,
            "tasks": {"load": 3},
            "log": ["killed"],
        }
    ],
    "activity": [{**_CLUSTER, "prefix": "", "seq": 7, "seconds": {"idle": 3.25}}],
    "profile": [
        {
            **_CLUSTER,
            "id": "p1",
            "seq": 5,
            "started_at": 1_700_000_010.0,
            "stopped_at": 1_700_000_070.0,
            "workers": 4,
            "seconds": 60.0,
            "lines": [{"name": "load"}],
            "parent": [-1],
            "line": [0],
            "samples": [100],
            "cut": False,
        }
    ],
    "shutdown": [
        {
            **_CLUSTER,
            "id": "s1",
            "seq": 7,
            "requested_by": "maria",
            "state": "done",
            "at": 1_700_000_100.0,
            "detail": "",
        }
    ],
    "event": [
        {
            **_CLUSTER,
            "id": "e1",
            "seq": 4,
            "at": 1_700_000_030.0,
            "topic": "all",
            "message": "{}",
            "cut": True,
        }
    ],
    "code": [
        {
            "workspace": "default",
            "hash": "h1",
            "file": "job.py",
            "text": "load(day)\n",
            "first_line": 1,
            "cut": False,
        }
    ],
    "series": [
        {
            "id": 1,
            "workspace": "default",
            "cluster": "Scheduler-1",
            "metric": "dask.worker.count",
            "field": "value",
            "kind": "gauge",
            "unit": "{worker}",
            "attributes": "{}",
        }
    ],
    "point": [{"series": 1, "time": 1_700_000_000_000, "value": 4.0}],
    "span": [
        {
            "workspace": "default",
            "trace_id": "0" * 31 + "1",
            "span_id": "0" * 15 + "1",
            "cluster": "Scheduler-1",
            "name": "dask.computation",
            "started_at": 1_700_000_010.0,
            "stopped_at": 1_700_000_020.0,
            "status": "error",
            "attributes": {"n": 3},
        }
    ],
    "log_record": [
        {
            "workspace": "default",
            "id": "l1",
            "cluster": "Scheduler-1",
            "at": 1_700_000_015.0,
            "severity": 17,
            "event_name": "dask.exception",
            "body": "ValueError",
            "attributes": {},
        }
    ],
}
