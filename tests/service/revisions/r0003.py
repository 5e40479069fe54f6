"""Rows of revision 0003."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0002

ROWS: dict[str, list[dict[str, Any]]] = r0002.ROWS | {
    "audit_entry": [
        {
            "id": "e1",
            "at": 1_700_000_000.5,
            "action": "signed in",
            "actor": "Maria@example.org",
            "detail": "by password",
            "workspace": "default",
            "address": "192.0.2.1",
        }
    ]
}
