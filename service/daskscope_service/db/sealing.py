"""Encrypted columns: texts of users' programs, which may be or quote their code.

Reading by SQLAlchemy returns the text; the database and its files hold ciphertext. If a key is
missing, reading goes on: the value is :class:`Unreadable` and says why.

An encrypted value is a byte for the format, the key's id, a nonce, and the text by AES-256-GCM-SIV.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from cryptography.exceptions import InvalidTag
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

from daskscope_service.db.keys import CodeKey, Keys
from daskscope_service.db.unreadable import Unreadable

_FORMAT = b"\x01"
_NONCE_BYTES = 12
#: How many bytes name the key at the start of an encrypted value.
MARK_BYTES = 5

_keys: WeakKeyDictionary[Dialect, Keys] = WeakKeyDictionary()


def attach(dialect: Dialect, keys: Keys) -> None:
    """Set the keys with which the database of ``dialect`` encrypts and decrypts."""
    _keys[dialect] = keys


def keys_of(dialect: Dialect) -> Keys:
    """Return the keys of the database of ``dialect``."""
    return _keys[dialect]


def mark(key: CodeKey) -> bytes:
    """Return the first bytes of all values that ``key`` has encrypted."""
    return _FORMAT + bytes.fromhex(key.id)


def seal(key: CodeKey, value: bytes) -> bytes:
    """Return ``value``, encrypted with ``key``."""
    nonce = os.urandom(_NONCE_BYTES)
    return mark(key) + nonce + key.cipher.encrypt(nonce, value, None)


def unseal(keys: Keys, sealed: bytes) -> bytes | Unreadable:
    """Return the decrypted value, or why it cannot be decrypted."""
    id = sealed[1:MARK_BYTES].hex()
    key = keys.find(id) if sealed[:1] == _FORMAT else None
    if key is None:
        return Unreadable(f"encrypted with the key {id}, which this service does not have")
    try:
        nonce = sealed[MARK_BYTES : MARK_BYTES + _NONCE_BYTES]
        return key.cipher.decrypt(nonce, sealed[MARK_BYTES + _NONCE_BYTES :], None)
    except (InvalidTag, ValueError):
        return Unreadable(f"damaged: it has changed since it was encrypted with the key {id}")


class Sealed(TypeDecorator[str]):
    """Text that is encrypted. The database can neither compare nor sort it."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Encrypt a value that a statement of SQLAlchemy writes; services write by Upsert."""
        return None if value is None else _seal_newest(dialect, value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Decrypt a value that a statement reads."""
        if value is None:
            return None
        text = unseal(_keys[dialect], value)
        return text if isinstance(text, Unreadable) else text.decode()


class SealedJSON(TypeDecorator[Any]):
    """As :class:`Sealed`, for values of JSON. None is JSON's null."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:
        """Encrypt a value that a statement of SQLAlchemy writes; services write by Upsert."""
        return _seal_newest(dialect, msgspec.json.encode(value).decode())

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Decrypt a value that a statement reads."""
        if value is None:
            return None
        text = unseal(_keys[dialect], value)
        return text if isinstance(text, Unreadable) else msgspec.json.decode(text)


def _seal_newest(dialect: Dialect, text: str) -> bytes:
    key = _keys[dialect].newest
    if key is None:
        raise LookupError("no key of code has been made: key_register.check makes the first")
    return seal(key, text.encode())
