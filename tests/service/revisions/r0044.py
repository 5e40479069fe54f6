"""Rows of revision 0044."""

from __future__ import annotations

from tests.service.revisions import r0043

_NAME = "read-parquet-0a1b2c3d"

ROWS = r0043.ROWS | {
    "task_group": [row | {"tokenized": True} for row in r0043.ROWS["task_group"]],
    "group_run": [
        {
            "workspace": row["workspace"],
            "cluster": row["cluster"],
            "computation": row["id"],
            "name": _NAME,
            "user": "ada",
            "at": row["started_at"],
            "ended_at": row["started_at"] + 5.0,
            "prefix": "read-parquet",
            "tasks": 10,
            "seconds": 12.5,
            "cost": 0.5,
            "currency": "USD",
            "output_bytes": 1024,
            "began": row["started_at"] + 0.5,
        }
        for row in r0043.ROWS["computation"]
    ],
    "repeat": [
        {
            "workspace": row["workspace"],
            "name": _NAME,
            "prefix": "read-parquet",
            "runs": 2,
            "users": ["ada"],
            "people": 1,
            "clusters": 1,
            "seconds_again": 12.5,
            "cost_again": 0.5,
            "currency": "USD",
            "first_at": row["started_at"],
            "last_at": row["started_at"],
            "last_cluster": row["cluster"],
            "last_computation": row["id"],
            "output_bytes": 1024,
            "instead": "persist",
            "together": "00ff00ff00ff00ff",
            "step": 0.5,
        }
        for row in r0043.ROWS["computation"]
    ],
}
