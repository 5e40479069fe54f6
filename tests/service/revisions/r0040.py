"""Rows of revision 0040."""

from __future__ import annotations

from tests.service.revisions import r0039

ROWS = r0039.ROWS | {
    "cluster": [row | {"peak_memory_limit": 2**33} for row in r0039.ROWS["cluster"]]
}
