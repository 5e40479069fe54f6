"""Rows of revision 0015."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0014

_NEW: dict[str, Any] = {
    "settings": {"logs.level": "WARNING"},
    "mismatches": [
        {"package": "numpy", "scheduler": "2.1.0", "workers": {"2.1.0": 2}, "clients": {"2.2.0": 1}}
    ],
}

ROWS: dict[str, list[dict[str, Any]]] = r0014.ROWS | {
    "cluster": [row | _NEW for row in r0014.ROWS["cluster"]],
}
