"""Rows of revision 0034."""

from __future__ import annotations

from tests.service.revisions import r0033

ROWS = r0033.ROWS | {
    "mute": [
        {
            "workspace": row["workspace"],
            "id": "m1",
            "rule": "failed",
            "cluster": row["cluster"],
            "computation": row["id"],
            "reason": "known",
            "until": row["started_at"] + 86400.0,
            "changed_at": row["started_at"],
            "changed_by": "ada",
        }
        for row in r0033.ROWS["computation"][:1]
    ],
}
