"""Rows of revision 0011."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0010

ROWS: dict[str, list[dict[str, Any]]] = r0010.ROWS | {
    "usage": [
        {
            "workspace": "default",
            "day": 19_675,
            "cluster": "Scheduler-1",
            "seq": 12,
            "user": "ada",
            "started_at": 1_700_000_000.5,
            "up_seconds": 3600.5,
            "thread_seconds": 7201.5,
            "idle_seconds": 1800.5,
            "cost": 1.25,
            "idle_cost": 0.5,
            "prices": '{"currency":"USD","per_hour":{"thread":0.06}}',
        }
    ]
}
