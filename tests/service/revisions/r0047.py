"""Rows of revision 0047."""

from __future__ import annotations

from tests.service.revisions import r0046

ROWS = r0046.ROWS | {
    "job": [row | {"assign_before": 1e12} for row in r0046.ROWS["job"]],
    "job_correction": [
        {
            "workspace": row["workspace"],
            "id": f"c{number}",
            "job": row["id"],
            "kind": kind,
            "value": value,
            "changed_at": 1.7e9,
            "changed_by": "ada",
        }
        for row in r0046.ROWS["job"]
        for number, (kind, value) in enumerate([("merge", "0123456789abcdef"), ("name", "etl")])
    ],
}
