"""Columns that are encrypted: what users' programs say, which may be or quote their code.

Whoever reads them by SQLAlchemy gets the text; the database and its files hold ciphertext. Where a
key is missing, reading goes on: the value is :class:`Unreadable` and says why.

A sealed value is a byte for the format, the key's id, a nonce, and the text by AES-256-GCM-SIV.
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from cryptography.exceptions import InvalidTag
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

from daskscope_service.db.keys import Key, Keys

_FORMAT = b"\x01"
_NONCE_BYTES = 12
#: Bytes of a sealed value that name its key; the same for all that are sealed with one.
MARK_BYTES = 5

_keys: WeakKeyDictionary[Dialect, Keys] = WeakKeyDictionary()


class Unreadable(str):
    """Stands for a value that cannot be decrypted: a sentence that says why, to follow "it is"."""

    __slots__ = ()


def attach(dialect: Dialect, keys: Keys) -> None:
    """Have the database of ``dialect`` read and write with ``keys``."""
    _keys[dialect] = keys


def keys_of(dialect: Dialect) -> Keys:
    """Return the keys of the database of ``dialect``."""
    return _keys[dialect]


def mark(key: Key) -> bytes:
    """Return how all values begin that are sealed with ``key``."""
    return _FORMAT + bytes.fromhex(key.id)


def seal(key: Key, value: bytes) -> bytes:
    """Return ``value``, encrypted."""
    nonce = os.urandom(_NONCE_BYTES)
    return mark(key) + nonce + key.cipher.encrypt(nonce, value, None)


def unseal(keys: Keys, sealed: bytes) -> bytes | Unreadable:
    """Return what was sealed, or why it cannot be read."""
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
    """Text that is encrypted. It can be neither compared nor sorted by the database."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Encrypt what a statement of SQLAlchemy's writes; services write by Upsert."""
        return None if value is None else _seal_newest(dialect, value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Decrypt what a statement reads."""
        if value is None:
            return None
        found = unseal(_keys[dialect], value)
        return found if isinstance(found, Unreadable) else found.decode()


class SealedJSON(TypeDecorator[Any]):
    """As :class:`Sealed`, of what JSON knows. None is JSON's null."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:
        """Encrypt what a statement of SQLAlchemy's writes; services write by Upsert."""
        return _seal_newest(dialect, msgspec.json.encode(value).decode())

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Decrypt what a statement reads."""
        if value is None:
            return None
        found = unseal(_keys[dialect], value)
        return found if isinstance(found, Unreadable) else msgspec.json.decode(found)


def _seal_newest(dialect: Dialect, text: str) -> bytes:
    key = _keys[dialect].newest
    if key is None:
        raise LookupError("no key of code has been made: key_register.check makes the first")
    return seal(key, text.encode())
