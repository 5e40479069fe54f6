"""Rows of revision 0023."""

from __future__ import annotations

from tests.service.revisions import r0022

ROWS = r0022.ROWS | {
    "user": [r0022.ROWS["user"][0] | {"made_in": "lab"}],
}
