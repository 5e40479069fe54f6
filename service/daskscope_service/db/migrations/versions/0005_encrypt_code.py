"""Encrypt what may be users' code, and key its hashes."""

from __future__ import annotations

import hmac
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from daskscope_service.db.keys import CodeKey
from daskscope_service.db.sealing import keys_of, seal

revision = "0005"
down_revision = "0004"

#: By table, the columns that are sealed.
_SEALED = {
    "code": ("text",),
    "computation": (),  # its frames have hashes of code
    "event": ("message",),
    "failure": ("message", "traceback"),
    "log_record": ("body", "attributes"),
    "profile": ("lines",),
    "span": ("attributes",),
    "worker_loss": ("log",),
}
#: Columns with a hash of what is sealed.
_HASHED = {"code": "hash", "log_record": "id"}

_AT_ONCE = 500

Hash = Callable[[str], str]


def upgrade() -> None:
    """Apply it."""
    connection = op.get_bind()
    code_key = op.create_table(
        "code_key",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("retired_at", sa.Float()),
        sa.Column("hash_secret", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    tables = sa.MetaData()
    tables.reflect(connection, only=list(_SEALED))
    secret = os.urandom(32)

    def keyed(text: str) -> str:
        return hmac.digest(secret, text.encode(), "sha256").hex()

    key: CodeKey | None = None
    if any(connection.execute(sa.select(1).select_from(tables.tables[t])).first() for t in _SEALED):
        # Else the first start of the service makes the first key.
        keys = keys_of(connection.dialect)
        key = keys.newest or keys.make()
        connection.execute(
            code_key.insert().values(id=key.id, made_at=time.time(), hash_secret=seal(key, secret))
        )
    for name in _SEALED:
        _write_anew(connection, tables.tables[name], key, keyed)


def _write_anew(connection: sa.Connection, old: sa.Table, key: CodeKey | None, keyed: Hash) -> None:
    # Into another table: were rows changed where they are, PostgreSQL would keep them as they had
    # been beside the new ones.
    new = old.to_metadata(sa.MetaData(), name=f"sealed_{old.name}")
    new.indexes.clear()
    new.primary_key.name = None
    for name in _SEALED[old.name]:
        new.c[name].type = sa.LargeBinary()
    new.create(connection)
    for rows in _in_parts(connection, old):
        for row in rows:
            _change(row, old, key, keyed)
        connection.execute(new.insert(), rows)
    old.drop(connection)
    op.rename_table(new.name, old.name)
    if connection.dialect.name == "postgresql":
        op.execute(f'ALTER INDEX "{new.name}_pkey" RENAME TO "{old.name}_pkey"')
    for index in old.indexes:
        op.create_index(index.name, old.name, [column.name for column in index.columns])


def _change(row: dict[str, Any], table: sa.Table, key: CodeKey | None, keyed: Hash) -> None:
    for name in _SEALED[table.name]:
        is_json = isinstance(table.c[name].type, sa.JSON)
        if row[name] is not None or is_json:  # None is JSON's null
            assert key is not None
            text = json.dumps(row[name]) if is_json else row[name]
            row[name] = seal(key, text.encode())
    if table.name in _HASHED:
        row[_HASHED[table.name]] = keyed(row[_HASHED[table.name]])
    for frame in row.get("frames") or ():
        frame["code"] = frame["code"] and keyed(frame["code"])


def _in_parts(connection: sa.Connection, table: sa.Table) -> Iterator[list[dict[str, Any]]]:
    keys = list(table.primary_key)
    query = sa.select(table).order_by(*keys).limit(_AT_ONCE)
    after: tuple[Any, ...] | None = None
    while True:
        part = query if after is None else query.where(sa.tuple_(*keys) > sa.tuple_(*after))
        rows = [dict(row) for row in connection.execute(part).mappings()]
        if not rows:
            return
        after = tuple(rows[-1][column.name] for column in keys)
        yield rows
