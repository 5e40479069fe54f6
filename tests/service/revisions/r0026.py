"""Rows of revision 0026."""

from __future__ import annotations

from tests.service.revisions import r0025

ROWS = r0025.ROWS | {
    "computation": [row | {"judge_at": 5.0} for row in r0025.ROWS["computation"]],
    "finding": [
        {
            "workspace": row["workspace"],
            "cluster": row["cluster"],
            "id": f"{row['id']}:failed",
            "computation": row["id"],
            "rule": "failed",
            "version": 1,
            "position": 0,
            "severity": "critical",
            "user": row["user"],
            "at": row["started_at"],
            "found_at": row["started_at"],
            "sentence": "1 of 2 tasks raised ValueError; 1 task is done.",
            "evidence": [],
            "actions": [],
            "seconds": None,
            "share": None,
            "cost": 0.25,
            "currency": "USD",
            "saving": None,
            "confidence": "high",
            "suppressed_by": None,
        }
        for row in r0025.ROWS["computation"][:1]
    ],
}
