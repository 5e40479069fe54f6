"""Rows of revision 0045."""

from __future__ import annotations

from tests.service.revisions import r0044

ROWS = r0044.ROWS | {
    "computation": [
        row | {"completed_later": 4, "seconds_later": 9.75} for row in r0044.ROWS["computation"]
    ]
}
