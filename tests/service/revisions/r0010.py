"""Rows of revision 0010."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0009

ROWS: dict[str, list[dict[str, Any]]] = r0009.ROWS | {
    "retention": [{"workspace": "default", "kind": "spans", "days": 3}],
    "retention_mark": [{"workspace": "default", "kind": "series", "until": 1_700_000_000.0}],
    "series_generation": [{"id": 1, "value": 7}],
    "lease": [{"name": "retention", "holder": None, "expires_at": 0.0, "done_at": 1.0}],
    "code": [{**row, "unused_since": 1_700_000_000.5} for row in r0009.ROWS["code"]],
}
