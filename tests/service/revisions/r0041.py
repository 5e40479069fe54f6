"""Rows of revision 0041."""

from __future__ import annotations

from tests.service.revisions import r0040

#: One run of half a second.
_COLUMNS = "eJxjYGBgYGYEEgwdwowAAe8AoQ=="

ROWS = r0040.ROWS | {
    "task_stream": [
        {
            "workspace": row["workspace"],
            "cluster": row["cluster"],
            "seq": row["seq"],
            "id": "1764000000.000000",
            "started_at": row["started_at"],
            "stopped_at": row["started_at"] + 0.5,
            "runs": 1,
            "merged": 0,
            "workers": ["tcp://10.0.0.1:4000"],
            "prefixes": ["sum"],
            "columns": _COLUMNS,
        }
        for row in r0040.ROWS["profile"]
    ],
}
