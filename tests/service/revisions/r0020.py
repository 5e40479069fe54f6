"""Rows of revision 0020."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0019

ROWS: dict[str, list[dict[str, Any]]] = r0019.ROWS | {
    "cluster": [row | {"may_end": False} for row in r0019.ROWS["cluster"]],
}
