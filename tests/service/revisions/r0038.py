"""Rows of revision 0038."""

from __future__ import annotations

from tests.service.revisions import r0037

ROWS = r0037.ROWS | {
    "profile": [row | {"unsampled": 2.5} for row in r0037.ROWS["profile"]],
}
