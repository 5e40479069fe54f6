"""Rows of revision 0017."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0016

_NEW: dict[str, Any] = {"thread_seconds": 103.75, "thread_idle_seconds": 3.25}

ROWS: dict[str, list[dict[str, Any]]] = r0016.ROWS | {
    "cluster": [row | _NEW for row in r0016.ROWS["cluster"]],
}
