"""Rows of revision 0042."""

from __future__ import annotations

from tests.service.revisions import r0041

_ALL = [row | {"user": "", "tag": ""} for row in r0041.ROWS["budget"]]

ROWS = r0041.ROWS | {
    "budget": [
        *_ALL,
        *[row | {"user": "anna"} for row in _ALL],
        *[row | {"tag": "team=imaging"} for row in _ALL],
    ]
}
