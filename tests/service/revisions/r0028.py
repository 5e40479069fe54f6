"""Rows of revision 0028."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0027

_NEW: dict[str, dict[str, Any]] = {"worker_loss": {"deployment": {"slurm.job.id": "4711"}}}

ROWS: dict[str, list[dict[str, Any]]] = r0027.ROWS | {
    table: [row | new for row in r0027.ROWS[table]] for table, new in _NEW.items()
}
