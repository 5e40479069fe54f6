"""Rows of revision 0025."""

from __future__ import annotations

from tests.service.revisions import r0024

ROWS = r0024.ROWS | {
    "session": [row | {"proven": True} for row in r0024.ROWS["session"]],
    "openid_attempt": [row | {"again": False} for row in r0024.ROWS["openid_attempt"]],
}
