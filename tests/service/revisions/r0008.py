"""Rows of revision 0008."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0007

ROWS: dict[str, list[dict[str, Any]]] = r0007.ROWS | {
    "notice": [
        {
            "workspace": "default",
            "id": "worker lost:Scheduler-1:w1",
            "kind": "worker lost",
            "cluster": "Scheduler-1",
            "found_at": 1_700_000_000.5,
            "sentence": "nightly lost the worker w1: out of memory.",
            "path": "/clusters/Scheduler-1",
        }
    ],
    "notification_target": [
        {
            "workspace": "default",
            "id": "n1",
            "name": "the team",
            # jsons://hooks.example.org/secret
            "address": bytes.fromhex(
                "0117155091113d6cc754fad44a92045533d9d03059dd460bca277006b834f0de7fde68a2120c81c3"
                "b3abee21198ed8789b2c08ccbbc2deae6b553eaff3a9cc9c2f"
            ),
            "kinds": ["worker lost"],
            "changed_at": 1_700_000_000.5,
            "changed_by": "Maria@example.org",
            "told_until": 1_700_000_000.5,
            "next_at": 1_700_000_300.5,
            "sent_at": 1_700_000_000.5,
            "failed_at": 1_700_000_001.5,
            "failure": "HTTP 500",
        }
    ],
    "budget": [
        {
            "workspace": "default",
            "amount": 500.5,
            "currency": "EUR",
            "changed_at": 1_700_000_000.5,
            "changed_by": "Maria@example.org",
        }
    ],
}
