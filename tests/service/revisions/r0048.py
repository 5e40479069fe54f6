"""Rows of revision 0048."""

from __future__ import annotations

from tests.service.revisions import r0047

ROWS = r0047.ROWS | {
    "notice": [
        *[row | {"severity": None, "seen_at": None} for row in r0047.ROWS["notice"]],
        *[
            row
            | {
                "id": "finding:spilling:job:0123456789abcdef",
                "kind": "finding",
                "severity": "warning",
                "seen_at": 1_700_000_001.5,
            }
            for row in r0047.ROWS["notice"]
        ],
    ]
}
