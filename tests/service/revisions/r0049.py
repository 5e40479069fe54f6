"""Rows of revision 0049."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0048

_COST = {"operator_cost": 1.25, "operator_currency": "USD", "operator_source": "instances"}
_USE: dict[str, Any] = {"seconds": 100.0, "thread_seconds": 400.0, "gib_seconds": 1600.0}

ROWS: dict[str, list[dict[str, Any]]] = r0048.ROWS | {
    "cluster": [
        row | _COST | {"instances": [{"type": "m5.xlarge", **_USE}]}
        for row in r0048.ROWS["cluster"]
    ],
    "usage": [row | _COST for row in r0048.ROWS["usage"]],
}
