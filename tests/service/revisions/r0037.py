"""Rows of revision 0037."""

from __future__ import annotations

from tests.service.revisions import r0036

ROWS = r0036.ROWS | {
    "threshold": [
        {
            "workspace": row["workspace"],
            "own": {"mass.seconds": 60.0},
            "findings_due": False,
            "changed_at": row["started_at"],
            "changed_by": "ada",
        }
        for row in r0036.ROWS["computation"][:1]
    ],
}
