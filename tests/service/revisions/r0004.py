"""Rows of revision 0004."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0003

ROWS: dict[str, list[dict[str, Any]]] = r0003.ROWS | {
    "command": [
        {
            "workspace": "default",
            "id": "c1",
            "cluster": "Scheduler-1",
            "requested_by": "Maria@example.org",
            "requested_at": 1_700_000_000.5,
            "reason": "It is Friday.",
            "grace": 30.5,
            "even_if_busy": True,
            "expires_at": 1_700_003_600.5,
            "delivered_at": 1_700_000_010.5,
            "called_off_by": "li@example.org",
            "called_off_at": 1_700_000_020.5,
            "called_off_reason": "Not yet.",
        }
    ]
}
