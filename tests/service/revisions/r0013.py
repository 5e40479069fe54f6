"""Rows of revision 0013: those of 0012, found by another index."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0012

ROWS: dict[str, list[dict[str, Any]]] = r0012.ROWS
