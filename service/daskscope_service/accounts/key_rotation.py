"""Replaces the key that encrypts users' code, while services run.

First, a new key is put into use: from then on nothing is encrypted with the old ones. Then all
values of old keys are encrypted again, in small transactions. At the end the old keys leave the
register. If a run is interrupted, all values stay readable, and the next run continues.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    MetaData,
    RowMapping,
    Table,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
    update,
)

from daskscope.errors import ConfigurationError
from daskscope_service.accounts import audit
from daskscope_service.db import key_register, schema
from daskscope_service.db.engine import alone, writing
from daskscope_service.db.keys import CodeKey
from daskscope_service.db.sealing import (
    MARK_BYTES,
    Sealed,
    SealedJSON,
    keys_of,
    mark,
    seal,
    unseal,
)
from daskscope_service.db.unreadable import Unreadable

#: Rows that one transaction changes: on SQLite, services cannot write until it ends.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Start:
    """The key that is in use from now on, and whether an earlier run had put it into use."""

    key: CodeKey
    resumed: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress: the rows handled since the step before, and why values could not be decrypted."""

    rows: int
    unreadable: list[Unreadable]


@dataclass(frozen=True, slots=True)
class _Values:
    """The encrypted columns of ``table``, read as raw ciphertext."""

    table: Table
    primary: list[Any]
    columns: list[Any]

    def of_others(self, key: CodeKey) -> ColumnElement[bool]:
        return or_(
            *(
                and_(column.is_not(None), func.substr(column, 1, MARK_BYTES) != mark(key))
                for column in self.columns
            )
        )


def begin(engine: Engine) -> Start:
    """Put a new key into use: the first of the given keys, or a new one, which the key file gets.

    Raises
    ------
    ConfigurationError
        There is no new key, or an old one is missing. The message says what to do.
    """
    with alone(engine) as connection:
        key_register.check(connection)
        keys = keys_of(engine.dialect)
        entries = key_register.registered(connection)
        newest = keys.newest
        if newest is not None and newest.id in entries and not entries[newest.id].retired:
            if len(entries) > 1:
                return Start(newest, resumed=True)
            newest = None
        key = newest or keys.make()
        key_register.use(connection, key)
        audit.write(connection, "key changed", detail=f"code is encrypted with {key.id}")
    return Start(key, resumed=False)


def outstanding(engine: Engine, key: CodeKey) -> int:
    """Return the number of rows with values that another key than ``key`` encrypted."""
    with engine.connect() as connection:
        return sum(
            connection.execute(
                select(func.count()).select_from(values.table).where(values.of_others(key))
            ).scalar_one()
            for values in _all_values()
        )


def renew(engine: Engine, key: CodeKey) -> Iterator[Progress]:
    """Encrypt the values of other keys again with ``key``, which is in use; yield the progress.

    Raises
    ------
    ConfigurationError
        Meanwhile, another key was put into use.
    """
    for values in _all_values():
        query = (
            select(*values.primary, *values.columns)
            .where(values.of_others(key))
            .order_by(*values.primary)
            .limit(_AT_ONCE)
        )
        part = query
        while True:
            with engine.connect() as connection:
                rows = connection.execute(part).mappings().all()
            if not rows:
                break
            began = time.monotonic()
            with writing(engine) as connection:
                _still_in_use(connection, key)
                unreadable = _renew(connection, key, values, rows)
            yield Progress(len(rows), unreadable)
            time.sleep(time.monotonic() - began)  # give services as much time as they had to wait
            last = tuple_(*(rows[-1][column.name] for column in values.primary))
            part = query.where(tuple_(*values.primary) > last)


def finish(engine: Engine, key: CodeKey) -> list[str]:
    """After :func:`renew`, remove all keys but ``key`` from the register; return their ids.

    Raises the same error as :func:`renew`.
    """
    with alone(engine) as connection:
        _still_in_use(connection, key)
        gone = [id for id, entry in key_register.registered(connection).items() if id != key.id]
        for id in gone:
            key_register.forget(connection, id)
            audit.write(connection, "key changed", detail=f"no data is encrypted with {id}")
    return gone


def forget(engine: Engine, id: str) -> None:
    """Remove a lost key from the register, and give up the values that it encrypted.

    Raises
    ------
    ConfigurationError
        The key is not lost, or the database does not use it.
    """
    with alone(engine) as connection:
        keys = keys_of(engine.dialect)
        if keys.find(id) is not None:
            raise ConfigurationError(
                f"the key {id} is not lost: it is in {keys.source}. 'daskscope keys rotate' "
                "replaces it"
            )
        if not key_register.forget(connection, id):
            names = ", ".join(key_register.registered(connection)) or "none"
            raise ConfigurationError(f"the database uses no key {id}; it uses {names}")
        audit.write(connection, "key forgotten", detail=id)


def _all_values() -> Iterator[_Values]:
    # All workspaces are included: the values that are read here are only written back.
    for table in schema.metadata.sorted_tables:
        sealed = [c.name for c in table.columns if isinstance(c.type, Sealed | SealedJSON)]
        raw = table.to_metadata(MetaData())
        for name in sealed:
            raw.c[name].type = LargeBinary()
        if sealed:
            yield _Values(raw, list(raw.primary_key), [raw.c[name] for name in sealed])


def _renew(
    connection: Connection, key: CodeKey, values: _Values, rows: Iterable[RowMapping]
) -> list[Unreadable]:
    unreadable = list[Unreadable]()
    # By the columns that change, in rows of one statement.
    changes = defaultdict[tuple[str, ...], list[dict[str, Any]]](list)
    primary = [column.name for column in values.primary]
    for row in rows:
        new: dict[str, bytes] = {}
        for column in values.columns:
            before = row[column.name]
            if before is None or before.startswith(mark(key)):
                continue
            value = unseal(keys_of(connection.dialect), before)
            if isinstance(value, Unreadable):
                unreadable.append(value)
            else:
                new[column.name] = seal(key, value)
        if new:
            read = {f"read_{name}": row[name] for name in (*primary, *new)}
            changes[tuple(new)].append(read | {f"new_{name}": value for name, value in new.items()})
    columns = values.table.c
    for names, rows_of_them in changes.items():
        # A service may have replaced a row since it was read, with the key in use: then leave it.
        same = [columns[name] == bindparam(f"read_{name}") for name in (*primary, *names)]
        sealed: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
        connection.execute(update(values.table).where(*same).values(sealed), rows_of_them)
    return unreadable


def _still_in_use(connection: Connection, key: CodeKey) -> None:
    if key_register.key_in_use(connection).id != key.id:
        raise ConfigurationError(
            f"another run is already replacing the key {key.id}; let it finish"
        )
