"""Rows of revision 0036."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0035

_JOB = "0f3c9ab17c55d0e2"

ROWS: dict[str, list[dict[str, Any]]] = r0035.ROWS | {
    "computation": [row | {"job": _JOB, "job_due_at": None} for row in r0035.ROWS["computation"]],
    "job": [
        {
            "workspace": row["workspace"],
            "id": _JOB,
            "level": "name",
            "name": "nightly",
            "first_at": row["started_at"],
            "last_at": row["started_at"],
            "last_cluster": row["cluster"],
            "last_computation": row["id"],
            "runs": 1,
            "duration": 5.0,
            "spread": 0.0,
            "task_seconds": 9.0,
            "cost": 0.5,
            "currency": "USD",
            "price_source": "list",
            "change": None,
            "change_at": None,
            "due_at": None,
        }
        for row in r0035.ROWS["computation"][:1]
    ],
}
