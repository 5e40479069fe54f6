"""Rows of revision 0006."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0005

ROWS: dict[str, list[dict[str, Any]]] = r0005.ROWS | {
    name: [row | {"user": "ada"} for row in r0005.ROWS[name]]
    for name in ("event", "failure", "profile")
}
