"""Rows of revision 0022."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0021

_NEW: dict[str, Any] = {"busy_by": ["tasks are running"]}

ROWS: dict[str, list[dict[str, Any]]] = r0021.ROWS | {
    "cluster": [row | _NEW for row in r0021.ROWS["cluster"]],
}
