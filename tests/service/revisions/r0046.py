"""Rows of revision 0046."""

from __future__ import annotations

from tests.service.revisions import r0045

ROWS = r0045.ROWS | {
    "mute": [
        *[row | {"job": ""} for row in r0045.ROWS["mute"]],
        *[
            row | {"id": "m2", "cluster": "", "computation": "", "job": "0123456789abcdef"}
            for row in r0045.ROWS["mute"]
        ],
    ],
}
