"""Rows of revision 0043."""

from __future__ import annotations

from tests.service.revisions import r0042

_CAUSE = {
    "rule": "spilling",
    "findings": 1,
    "seconds": 12.0,
    "cost": {"USD": 0.1},
    "sources": ["list"],
}

ROWS = r0042.ROWS | {
    "job": [row | {"saves_most": _CAUSE, "saves_most_seconds": 12.0} for row in r0042.ROWS["job"]],
}
