"""Tables and rows follow what the protocol declares: no list of fields beside it."""

from __future__ import annotations

import dataclasses
import typing
from operator import attrgetter
from typing import Annotated, Any, Literal

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, MetaData, String, Table, Text

from daskscope import protocol
from daskscope.protocol import Count, Encrypted, Entries, Id, Name, PartOfKey, Quote, Seconds
from daskscope_service.db import schema
from daskscope_service.db.sealing import Sealed, SealedJSON
from daskscope_service.db.wire import RowMaker, columns_of, fields_of, to_json
from daskscope_service.ingest.beat_schema import ROWS
from daskscope_service.ingest.cluster_rows import cluster_row
from daskscope_service.ingest.heartbeat import TABLES
from tests.service.beats import full_beat


@dataclasses.dataclass(frozen=True)
class Step:
    """A row as the protocol might have it."""

    name: Annotated[Name, PartOfKey()]
    state: Literal["on", "off"]
    count: Count
    size: Count | None
    seconds: Seconds
    done: bool
    detail: protocol.Text
    code: Quote | None
    by_name: protocol.Counts
    frames: Annotated[tuple[Id, ...], Entries(3)] | None
    lines: Annotated[tuple[Id, ...], Entries(3), Encrypted()]


def test_a_field_is_a_column_of_its_name_and_of_the_type_that_holds_it() -> None:
    made = [(c.name, c.type, c.nullable, c.primary_key) for c in columns_of(Step)]
    assert [(name, type(kind), *rest) for name, kind, *rest in made] == [
        ("name", String, False, True),
        ("state", String, False, False),
        ("count", BigInteger, False, False),
        ("size", BigInteger, True, False),
        ("seconds", Float, False, False),
        ("done", Boolean, False, False),
        ("detail", Text, False, False),
        ("code", Sealed, True, False),
        ("by_name", JSON, False, False),
        ("frames", JSON, False, False),
        ("lines", SealedJSON, False, False),
    ]


def test_a_row_has_the_values_of_its_fields_between_what_it_is_given() -> None:
    columns = columns_of(Step, seconds=None, size=Column("bytes", BigInteger))
    table = Table("t", MetaData(), Column("seq", BigInteger), *columns, Column("user", String))
    step = Step("a", "on", 1, 2, 3.0, True, "d", None, {"x": 1}, None, ("l",))
    maker = RowMaker(table, name=str.upper)

    [row] = maker.rows([step], {"seq": 7, "user": "ada", "more": 0})

    assert dict(zip(table.columns.keys(), row, strict=True)) == {
        "seq": 7,
        "name": "A",
        "state": "on",
        "count": 1,
        "bytes": 2,
        "done": True,
        "detail": "d",
        "code": None,
        "by_name": '{"x":1}',
        "frames": "null",
        "lines": '["l"]',
        "user": "ada",
    }


@pytest.mark.parametrize("field", sorted(ROWS))
def test_each_field_of_a_row_of_a_heartbeat_is_stored_in_its_column(field: str) -> None:
    table, [sent, *_] = TABLES[field], getattr(full_beat(), field)
    given = {"workspace": "w", "cluster": "c", "seq": 1, "user": "u"}
    given |= {"unused_since": None, "judge_at": 5.0, "job": None, "job_due_at": 5.0}

    [made] = RowMaker(table).rows([sent], given)

    row = dict(zip(table.columns.keys(), made, strict=True))
    for name in fields_of(ROWS[field]):
        value = getattr(sent, name)
        is_json = isinstance(table.c[name].type, JSON | SealedJSON)
        assert row[name] == (to_json(value) if is_json else value), name


def test_what_quotes_users_code_is_encrypted_and_nothing_else() -> None:
    def sealed(table: Any) -> set[str]:
        return {c.name for c in table.columns if isinstance(c.type, Sealed | SealedJSON)}

    assert {field: names for field, table in TABLES.items() if (names := sealed(table))} == {
        "code": {"text"},
        "events": {"message"},
        "failures": {"message", "traceback"},
        "profiles": {"lines"},
        "worker_losses": {"log"},
    }
    assert not sealed(schema.cluster)


@pytest.mark.parametrize("field", sorted(ROWS))
def test_the_key_of_a_row_is_the_key_of_its_table(field: str) -> None:
    hints = typing.get_type_hints(ROWS[field], include_extras=True)
    keys = [name for name in hints if PartOfKey() in getattr(hints[name], "__metadata__", ())]
    stored = [column.name for column in TABLES[field].primary_key]
    assert [name for name in stored if name not in ("workspace", "cluster")] == keys


def test_a_cluster_s_row_has_what_its_beat_says_of_it() -> None:
    beat = full_beat()
    now, table = beat.sent_at, schema.cluster

    made = cluster_row(beat, 7, "w", "token", now)

    row = dict(zip(table.columns.keys(), made, strict=True))
    for column in table.columns:
        if "field" in column.info:
            value = attrgetter(column.info["field"])(beat)
            is_json = isinstance(column.type, JSON)
            assert row.pop(column.name) == (to_json(value) if is_json else value), column.name
    assert row == {
        "workspace": "w",
        "seq": 7,
        "first_seen_at": now,
        "last_seen_at": now,
        "thread_seconds": 412.5,
        "thread_idle_seconds": 400.0,
        "may_end": False,
        "token": "token",
        "operator_cost": None,
        "operator_currency": None,
        "operator_source": None,
    }
    sent = {*fields_of(protocol.Cluster), *fields_of(protocol.Status)} - {"workspace"}
    assert sent - set(table.columns.keys()) == {"in_client", "at_work", "at"}


def test_what_a_cluster_is_at_is_null_where_nobody_looked() -> None:
    beat = full_beat()
    beat = dataclasses.replace(beat, status=dataclasses.replace(beat.status, busy_by=None))

    made = cluster_row(beat, 7, "w", "token", 0.0)

    assert dict(zip(schema.cluster.columns.keys(), made, strict=True))["busy_by"] is None
