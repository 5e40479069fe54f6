"""Rows of revision 0016."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0015

ROWS: dict[str, list[dict[str, Any]]] = r0015.ROWS | {
    "recent_point": [{"series": 1, "time": 1_700_000_010_000, "value": 5.0}],
    "usage_sum": [
        {
            "workspace": "default",
            "days": 7,
            "first_day": 20_608,
            "sums": [
                {
                    "user": "ada",
                    "prices": {"currency": "USD", "per_hour": {"thread": 0.06}},
                    "clusters": 2,
                    "up_seconds": 3600.0,
                    "thread_seconds": 14_400.0,
                    "idle_seconds": 900.0,
                    "cost": 0.24,
                    "idle_cost": 0.015,
                }
            ],
        }
    ],
}
