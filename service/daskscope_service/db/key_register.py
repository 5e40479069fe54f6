"""What the database stores about keys: their ids, which one is in use, and a value to check them.

Each row holds the same secret, encrypted with the row's key, which shows whether a key is the right
one. With that secret, hashes of code are hashed again before they are stored. Otherwise, whoever
has only the database could guess code: hash it, and see whether the hash is there.

A key that is being replaced is *retired*: nothing new is encrypted with it. Its row is removed once
no value is encrypted with it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from daskscope.errors import ConfigurationError
from daskscope_service.db.keys import CodeKey
from daskscope_service.db.schema import code_key as table
from daskscope_service.db.sealing import keys_of, seal, unseal
from daskscope_service.db.unreadable import Unreadable

_SECRET_BYTES = 32

_NONE_YET = "the database has no encryption key yet; 'daskscope serve' creates the first"

# Held until the transaction ends: on PostgreSQL, whoever retires the key waits for all transactions
# that encrypt.
_in_use = select(table.c.id).where(table.c.retired_at.is_(None)).with_for_update(read=True)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A registered key, in use since ``made_at``; ``hash_secret`` is encrypted with it."""

    made_at: float
    retired: bool
    hash_secret: bytes


class KeyMissing(ConfigurationError):
    """This process lacks a key that is needed."""


def check(connection: Connection) -> None:
    """Check that this process has all registered keys; register a key if none is in use.

    Call it in a transaction that writes, and in which no other process does the same:
    ``engine.alone``.

    Raises
    ------
    KeyMissing
        It lacks one, or has another key with that id. The message says what to do.
    ConfigurationError
        The file of keys cannot be read or created.
    """
    keys = keys_of(connection.dialect)
    entries = registered(connection)
    hash_secret = secrets.token_bytes(_SECRET_BYTES)
    for id, entry in entries.items():
        if keys.find(id) is None:
            raise _missing(connection, id)
        hash_secret = _unsealed(connection, entry.hash_secret)
    if all(entry.retired for entry in entries.values()):
        _register(connection, keys.newest or keys.make(), hash_secret)


def registered(connection: Connection) -> dict[str, KeyEntry]:
    """Return the registered keys, by their ids."""
    columns = (table.c.made_at, table.c.retired_at.is_not(None), table.c.hash_secret)
    rows = connection.execute(select(table.c.id, *columns).order_by(table.c.made_at))
    return {id: KeyEntry(*rest) for id, *rest in rows}


def key_in_use(connection: Connection) -> CodeKey:
    """Return the key to encrypt with. It stays in use until the transaction ends.

    Raises
    ------
    KeyMissing
        This process does not have it, or none is registered yet.
    """
    # If the first query waited for a lock, its key is not in use any more; the second finds the new
    # one.
    id = connection.execute(_in_use).scalar() or connection.execute(_in_use).scalar()
    if id is None:
        raise KeyMissing(_NONE_YET)
    key = keys_of(connection.dialect).find(id)
    if key is None:
        raise _missing(connection, id)
    return key


def use(connection: Connection, key: CodeKey) -> None:
    """Put ``key`` into use and retire the others. The transaction must be as for :func:`check`."""
    secret = _hash_secret(connection)
    connection.execute(
        table.update().where(table.c.retired_at.is_(None)).values(retired_at=time.time())
    )
    forget(connection, key.id)
    _register(connection, key, secret)


def forget(connection: Connection, id: str) -> bool:
    """Remove the key with this id from the register; return whether it was there."""
    return connection.execute(delete(table).where(table.c.id == id)).rowcount > 0


def hasher(connection: Connection) -> Callable[[str], str]:
    """Return the function that turns a hash of code into the hash that is stored.

    Raises KeyMissing if this process lacks the key, or there is none yet.
    """
    return keyed_by(_hash_secret(connection))


def keyed_by(secret: bytes) -> Callable[[str], str]:
    """Return the function that hashes a text with ``secret``, to 64 hex digits."""
    return lambda text: hmac.digest(secret, text.encode(), "sha256").hex()


def _register(connection: Connection, key: CodeKey, hash_secret: bytes) -> None:
    row = {"id": key.id, "made_at": time.time(), "hash_secret": seal(key, hash_secret)}
    connection.execute(insert(table).values(row))


def _hash_secret(connection: Connection) -> bytes:
    for entry in registered(connection).values():
        return _unsealed(connection, entry.hash_secret)
    raise KeyMissing(_NONE_YET)


def _unsealed(connection: Connection, sealed: bytes) -> bytes:
    value = unseal(keys_of(connection.dialect), sealed)
    if isinstance(value, Unreadable):
        raise KeyMissing(
            f"the value that verifies the encryption keys cannot be read: it is {value}"
        )
    return value


def _missing(connection: Connection, id: str) -> KeyMissing:
    keys = keys_of(connection.dialect)
    have = "which has others" if keys.newest else "which has none"
    return KeyMissing(
        f"code in the database is encrypted with the key {id}. It is not in {keys.source}, "
        f"{have}. Restore it from your copy, or copy it from the machine that made it. If the "
        f"key is lost, code that it encrypted is lost too; 'daskscope keys forget {id}' lets "
        "the service start without it"
    )
