"""Rows of revision 0033."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0032

_NEW: dict[str, dict[str, Any]] = {
    "computation": {
        "worker_seconds": {"busy": 12.5, "idle": 4.0, "paused": 0.0},
        "spilled_bytes": 2**30,
        "unspilled_bytes": 2**29,
        "transferred_bytes": 2**28,
        "loop_interval": 1.25,
        "heartbeat_age": 2.5,
        "host_load": 0.75,
        "unrunnable_seconds": 31.5,
        "asks": {"GPU=1": 2},
    },
}

ROWS: dict[str, list[dict[str, Any]]] = r0032.ROWS | {
    table: [row | new for row in r0032.ROWS[table]] for table, new in _NEW.items()
}
