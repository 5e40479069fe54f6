"""Rows of revision 0012: those of 0011, which it finds by another index."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0011

ROWS: dict[str, list[dict[str, Any]]] = r0011.ROWS
