"""Rows of revision 0024."""

from __future__ import annotations

from tests.service.revisions import r0023

ROWS = r0023.ROWS
