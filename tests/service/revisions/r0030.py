"""Rows of revision 0030."""

from __future__ import annotations

from tests.service.revisions.r0029 import ROWS as ROWS
