"""Rows of revision 0007."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0006

ROWS: dict[str, list[dict[str, Any]]] = r0006.ROWS | {
    "cluster": [row | {"idle_timeout": 3600.5} for row in r0006.ROWS["cluster"]],
    "policy": [
        {
            "workspace": "default",
            "id": "y1",
            "name": "nights",
            "after": 1800.5,
            "action": "shutdown",
            "users": ["ada", "li*"],
            "tags": {"team": "climate"},
            "begins": "20:00",
            "ends": "06:00",
            "time_zone": "Europe/Berlin",
            "enabled": True,
            "changed_at": 1_700_000_000.5,
            "changed_by": "Maria@example.org",
        }
    ],
    "decision": [
        {
            "workspace": "default",
            "id": "d1",
            "cluster": "Scheduler-1",
            "policy": "y1",
            "policy_name": "nights",
            "at": 1_700_000_000.5,
            "outcome": "shutdown",
            "sentence": "Idle for 42 min; so it is asked to shut down.",
            "command": "c1",
        }
    ],
}
