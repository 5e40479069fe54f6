"""Rows of revision 0002."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0001

ROWS: dict[str, list[dict[str, Any]]] = r0001.ROWS | {
    "user": [
        {
            "id": "u1",
            "name": "Maria@example.org",
            "name_key": "maria@example.org",
            "display_name": "Maria Lindqvist",
            "password_hash": "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaA",
            "created_at": 1_700_000_000.5,
            "disabled_at": 1_700_000_100.5,
        }
    ],
    "member": [{"workspace": "default", "user": "u1", "role": "owner"}],
    "session": [
        *r0001.ROWS["session"],
        {
            "id_hash": b"\xff\1",
            "workspace": "default",
            "created_at": 1.0,
            "expires_at": 2e10,
            "user": "u1",
            "token": None,
            "role": None,
            "last_seen_at": 2.5,
            "browser": "Firefox 144, Linux",
        },
    ],
    "sign_in_attempt": [{"id": "a1", "key_hash": b"\0\1", "at": 1_700_000_000.5}],
}
