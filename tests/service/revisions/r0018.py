"""Rows of revision 0018."""

from __future__ import annotations

from tests.service.revisions import r0017

ROWS = r0017.ROWS
