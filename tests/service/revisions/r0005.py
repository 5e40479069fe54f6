"""Rows of revision 0005."""

from __future__ import annotations

from typing import Any

from tests.service.revisions import r0004

#: The key that sealed these rows, of which those of 0004 say the same.
KEY = bytes(range(32)).hex()

_SEALED = {
    "code": {
        "text": "8dceb4efef265e63a59722d7aa8abd4d32a3d033c08c69bc2e563d3fc3f53da71634a4a3096b",
    },
    "event": {
        "message": "65084771b89b8492772a60367eb99735d2b6adf936d9a486fc551ae97658",
    },
    "failure": {
        "message": "42570f140a11f29774b6729779d0e9bc0bcbe07cd32f0f7781e5d3a01ae2e299"
        "53a79f974ce46d69e58acde2a7b88f56afc8",
    },
    "log_record": {
        "body": "2c1c85b218c2320f3125593df2b054d0e8003e43780ad7f58acfb644ca3c544207094b147d76",
        "attributes": "22d8d36bc1d702adc2ef215c2fefba4ce8cde10d61ef8e89de60577d4e80",
    },
    "profile": {
        "lines": "1ef496bf3ffb7a02a292387c01786a37f7c14e9a7654d1adad5a662803e818a0"
        "0634ef94d8ec1edc903ffb34bcd2",
    },
    "span": {
        "attributes": "c7a1df573d703cb304a38c72036d6bb156ec6fd9553944b3f70a77fb7faf08b4d8821b64",
    },
    "worker_loss": {
        "log": "4f91ef4f2f9a4ebadb0de0b2440415c4aea97a5eef366f1e4e25b34f9247bd9b7d5192ff415a",
    },
}
_MARK = "0117155091"  # the format, and the key's id


def _sealed(table: str) -> list[dict[str, Any]]:
    (row,) = r0004.ROWS[table]
    values = {name: bytes.fromhex(_MARK + text) for name, text in _SEALED[table].items()}
    return [row | values]


ROWS: dict[str, list[dict[str, Any]]] = (
    r0004.ROWS
    | {table: _sealed(table) for table in _SEALED}
    | {
        "code_key": [
            {
                "id": "17155091",
                "made_at": 1_700_000_000.5,
                "hash_secret": bytes.fromhex(
                    _MARK
                    + "2bbda63be94db90f9b9abbbfbe8d2dd90a95bbc4fdc75840980f7cf03b2e47625918d739"
                    "518af9f4acb440c29f62eb8901b312cb50e7e1026ca4352d"
                ),
            }
        ]
    }
)
