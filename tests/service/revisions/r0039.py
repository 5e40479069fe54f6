"""Rows of revision 0039."""

from __future__ import annotations

from tests.service.revisions import r0038

ROWS = r0038.ROWS
