"""Rows of revision 0040."""

from __future__ import annotations

from daskscope.protocol import pack_columns
from tests.service.revisions import r0040

_COLUMNS = pack_columns([[0], [0], [0], [0], [5_000], [1], [0], [0], [0], [0]])

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
