"""Rows of revision 0019."""

from __future__ import annotations

from tests.service.revisions import r0018

ROWS = r0018.ROWS
