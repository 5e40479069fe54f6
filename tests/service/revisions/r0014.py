"""Rows of revision 0014."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0013

ROWS: dict[str, list[dict[str, Any]]] = r0013.ROWS | {
    "price": [
        {
            "workspace": "default",
            "currency": "EUR",
            "per_hour": {"thread": 0.06, "cluster": 0.1},
            "changed_at": 1_700_000_000.5,
            "changed_by": "ada",
        }
    ]
}
