"""Rows of revision 0009."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0008

ROWS: dict[str, list[dict[str, Any]]] = r0008.ROWS | {
    "token": [
        *r0008.ROWS["token"],
        {
            "id": "x7k2mq9abd",
            "workspace": "default",
            "label": "daskscope login on laptop",
            "scopes": "ingest read",
            "secret_hash": b"\0\2",
            "created_at": 1_700_000_000.5,
            "expires_at": None,
            "revoked_at": None,
            "last_used_at": None,
            "made_by": "Maria@example.org",
            "user": "u1",
        },
    ],
    "device_login": [
        {
            "code_hash": b"\0\3",
            "user_code": "BCDFGHJK",
            "host": "laptop",
            "address": "192.0.2.1",
            "scopes": "ingest read",
            "created_at": 1_700_000_000.5,
            "expires_at": 2e10,
            "interval": 5.0,
            "polled_at": 1_700_000_001.5,
            "answer": "allowed",
            "answered_by": "Maria@example.org",
            "workspace": "default",
            "user": "u1",
        }
    ],
    "identity": [
        {
            "issuer": "https://id.example",
            "subject": "248289761001",
            "user": "u1",
            "created_at": 1_700_000_000.5,
        }
    ],
    "openid_attempt": [
        {
            "state_hash": b"\0\4",
            "ticket_hash": b"\0\5",
            "nonce": "n",
            "verifier": "v",
            "target": "/",
            "user": None,
            "address": "192.0.2.1",
            "expires_at": 2e10,
        }
    ],
    "invitation": [
        {
            "id": "i1",
            "code_hash": b"\0\6",
            "workspace": "default",
            "name": "li@example.org",
            "role": "member",
            "made_by": "Maria@example.org",
            "user": "u1",
            "created_at": 1_700_000_000.5,
            "expires_at": 2e10,
        }
    ],
}
