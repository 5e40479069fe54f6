"""Rows of revision 0027."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0026

_NEW: dict[str, dict[str, Any]] = {
    "cluster": {"peak_worker_memory": 2**32},
    "computation": {
        "ended_at": None,
        "lost_runs": 3,
        "blamed": 2,
        "blames": {"c0": "divide"},
    },
    "worker_loss": {"peak_memory": 2**33, "computations": {"c1": 2}},
}

ROWS: dict[str, list[dict[str, Any]]] = r0026.ROWS | {
    table: [row | new for row in r0026.ROWS[table]] for table, new in _NEW.items()
}
