"""Rows of revision 0031."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0030

_FIRST: dict[str, Any] = {"largest_output": 2**20, "first_runs": 2, "first_seconds": 3.5}

_NEW: dict[str, dict[str, Any]] = {
    "computation": _FIRST
    | {
        "began_at": 1_700_000_001.5,
        "mostly_done_at": None,
        "workers": 4,
        "worker_shares": [
            {
                "worker": "tcp://10.0.0.1:1",
                "runs": 5,
                "seconds": 7.5,
                "usual_seconds": 0.76,
                "longest": 1.6,
            }
        ],
    },
    "task_group": _FIRST,
}

ROWS: dict[str, list[dict[str, Any]]] = r0030.ROWS | {
    table: [row | new for row in r0030.ROWS[table]] for table, new in _NEW.items()
}
