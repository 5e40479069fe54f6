"""Rows of revision 0035."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0034

_NEW: dict[str, dict[str, Any]] = {
    "cluster": {
        "connected": [
            {
                "user": "ada",
                "host": "10.0.0.2",
                "since": 1_700_000_000.5,
                "results": 8,
                "bytes": 2**29,
            }
        ],
        "last_held_by": {"clients": 1, "results": 8},
    },
}

ROWS: dict[str, list[dict[str, Any]]] = r0034.ROWS | {
    table: [row | new for row in r0034.ROWS[table]] for table, new in _NEW.items()
}
