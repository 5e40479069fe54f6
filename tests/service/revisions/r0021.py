"""Rows of revision 0021."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0020

_NEW: dict[str, Any] = {"token": "x7k2mq9abc"}

ROWS: dict[str, list[dict[str, Any]]] = r0020.ROWS | {
    "cluster": [row | _NEW for row in r0020.ROWS["cluster"]],
}
