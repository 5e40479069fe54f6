"""Rows of revision 0029."""

from __future__ import annotations

from tests.service.revisions.r0028 import ROWS as ROWS
