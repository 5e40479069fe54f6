"""Rows of revision 0032."""

from __future__ import annotations

from tests.service.revisions import r0031

_HELD = {"gib_seconds": 4.0, "gpu_seconds": 1.0}

ROWS = r0031.ROWS | {
    "cluster": [row | _HELD for row in r0031.ROWS["cluster"]],
    "usage": [row | _HELD for row in r0031.ROWS["usage"]],
    "finding": [row | {"price_source": "cluster"} for row in r0031.ROWS["finding"]],
    "price": [row | {"source": "workspace", "findings_due": True} for row in r0031.ROWS["price"]],
}
