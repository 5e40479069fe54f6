"""The writer acknowledges only what is committed, and one failure is one batch's alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, select
from sqlalchemy.exc import OperationalError

from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from daskscope_service.db.statements import Upsert
from daskscope_service.ingest.writer import Ask, Make, Outdated, Rows, Writer
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web.problems import Problem
from tests.service.conftest import standstill


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    writer = Writer(engine, capacity=4, instruments=ServiceMetrics())
    yield writer
    writer.close()


def names(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(connection.execute(select(schema.workspace.c.id)).scalars()) - {"default"}


def write_together(
    writer: Writer, engine: Engine, batches: Sequence[Rows | Make], shown: Sequence[str | None] = ()
) -> list[Exception | None]:
    """Write ``batches`` from a thread each, all in the queue before the first is taken.

    ``shown``: the ids of the tokens that they came with.
    """
    errors: list[Exception | None] = [None] * len(batches)

    def write(index: int) -> None:
        try:
            writer.write(batches[index], token=shown[index] if shown else None)
        except Exception as error:
            errors[index] = error

    threads = [threading.Thread(target=write, args=(i,)) for i in range(len(batches))]
    with standstill(engine):  # the writer waits
        blocker = threading.Thread(target=writer.write, args=({},))
        blocker.start()
        for thread in threads:
            thread.start()
    for thread in (*threads, blocker):
        thread.join(30)
        assert not thread.is_alive()
    return errors


def test_what_comes_with_a_revoked_token_is_not_written_and_all_else_is(
    writer: Writer, engine: Engine
) -> None:
    good, bad = (tokens.create(engine, workspace="default", label="") for _ in range(2))
    tokens.revoke(engine, "default", tokens.id_of(bad))
    upsert = Upsert(engine, schema.workspace)
    shown = [tokens.id_of(token) for token in (good, bad, good)]
    errors = write_together(
        writer, engine, [{upsert: [(name, 1.0)]} for name in ("a", "b", "c")], shown
    )
    assert [type(error) for error in errors] == [type(None), Outdated, type(None)]
    assert names(engine) == {"a", "c"}


def test_what_is_acknowledged_is_committed(writer: Writer, engine: Engine) -> None:
    writer.write({Upsert(engine, schema.workspace): [("a", 1.0)]})
    assert names(engine) == {"a"}


def test_one_bad_batch_does_not_take_the_others_with_it(writer: Writer, engine: Engine) -> None:
    upsert = Upsert(engine, schema.workspace)
    batches: list[Rows] = [
        {upsert: [("a", 1.0)]},
        {upsert: [("b", None)]},  # the column must not be empty
        {upsert: [("c", 1.0)]},
    ]
    errors = write_together(writer, engine, batches)

    assert [error is None for error in errors] == [True, False, True]
    assert not isinstance(errors[1], Problem)  # sending it again would not help
    assert names(engine) == {"a", "c"}
    writer.write({upsert: [("d", 1.0)]})  # the thread is still there
    assert names(engine) == {"a", "c", "d"}


def test_rows_that_the_writer_makes_are_written_and_what_fails_there_is_its_senders_alone(
    writer: Writer, engine: Engine
) -> None:
    upsert = Upsert(engine, schema.workspace)

    def broken() -> Rows:
        raise Problem(400, "Not a heartbeat.")

    errors = write_together(
        writer, engine, [lambda: {upsert: [("a", 1.0)]}, broken, {upsert: [("c", 1.0)]}]
    )
    assert [type(error) for error in errors] == [type(None), Problem, type(None)]
    assert names(engine) == {"a", "c"}
    with pytest.raises(Problem, match="Not a heartbeat"):
        writer.write(broken)  # and alone
    writer.write(lambda: {upsert: [("d", 1.0)]})
    assert names(engine) == {"a", "c", "d"}


def test_more_rows_than_one_statement_holds_are_written(writer: Writer, engine: Engine) -> None:
    rows = [(f"w{number}", 1.0) for number in range(2777)]
    writer.write({Upsert(engine, schema.workspace): rows})
    assert len(names(engine)) == 2777


def test_of_rows_with_one_key_in_a_batch_the_last_is_kept_unless_it_is_older(
    writer: Writer, engine: Engine
) -> None:
    def kept(upsert: Upsert, *seconds: float) -> list[float]:
        writer.write({upsert: [("w", "c", seq, "p", str(seq)) for seq in seconds]})
        query = select(schema.activity.c.seq)
        with engine.connect() as connection:
            return list(connection.execute(query).scalars())

    latest = Upsert(engine, schema.activity, replace=["seq", "seconds"], unless_newer="seq")
    assert kept(Upsert(engine, schema.activity), 3, 5) == [3]
    assert kept(latest, 4, 7, 6) == [7]
    assert kept(latest, 5, 2) == [7]
    assert kept(Upsert(engine, schema.activity, replace=["seq"]), 9, 8) == [8]


def test_two_writers_of_the_same_rows_do_not_stand_in_each_others_way(engine: Engine) -> None:
    upsert = Upsert(engine, schema.workspace, replace=["created_at"])
    rows = [(f"w{number}", 1.0) for number in range(300)]
    errors: list[Exception] = []

    def write(rows: list[tuple[str, float]]) -> None:
        writer = Writer(engine, capacity=1, instruments=ServiceMetrics())
        try:
            for _ in range(20):
                writer.write({upsert: rows})
        except Exception as error:
            errors.append(error)
        finally:
            writer.close()

    threads = [threading.Thread(target=write, args=(some,)) for some in (rows, rows[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(names(engine)) == 300


def test_a_full_queue_is_a_429_that_says_when_to_come_again(writer: Writer) -> None:
    places = [writer.place() for _ in range(4)]
    for place in places:
        place.__enter__()
    with pytest.raises(Problem) as problem:
        writer.place().__enter__()
    assert problem.value.status == 429
    assert problem.value.headers["Retry-After"] == "1"
    places[0].__exit__(None, None, None)
    with writer.place():
        pass
    for place in places[1:]:
        place.__exit__(None, None, None)


@pytest.mark.parametrize("when", ["begin", "commit"])
def test_a_full_disk_is_a_503_and_nothing_is_acknowledged(
    writer: Writer, engine: Engine, when: str
) -> None:
    full = True

    def fail(*_: Any) -> None:
        if full:
            raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    event.listen(engine, when, fail)
    rows: Rows = {Upsert(engine, schema.workspace): [("a", 1.0)]}
    with pytest.raises(Problem) as problem:
        writer.write(rows)
    assert problem.value.status == 503
    assert problem.value.headers["Retry-After"]
    full = False
    assert names(engine) == set()
    writer.write(rows)
    assert names(engine) == {"a"}


def test_a_closed_writer_has_written_what_waited_and_takes_no_more(engine: Engine) -> None:
    writer = Writer(engine, capacity=4, instruments=ServiceMetrics())
    writer.write({Upsert(engine, schema.workspace): [("a", 1.0)]})
    writer.close()
    assert names(engine) == {"a"}
    assert "daskscope-writer" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(Problem) as problem:
        writer.place().__enter__()
    assert problem.value.status == 503


def test_each_is_told_what_it_asked_for_once_it_is_committed(
    writer: Writer, engine: Engine
) -> None:
    upsert = Upsert(engine, schema.workspace)

    def ask(_: Connection, wanted: Sequence[Any]) -> Sequence[Any]:
        return [(name, name in names(engine)) for name in wanted]

    def other(_: Connection, wanted: Sequence[Any]) -> Sequence[Any]:
        return [(name, len(wanted)) for name in wanted]

    def write(name: str, question: Ask) -> Any:
        return writer.write({upsert: [(name, 1.0)]}, question, name)

    with ThreadPoolExecutor(4) as pool, standstill(engine):
        told = [pool.submit(write, n, ask) for n in "ab"] + [pool.submit(write, "c", other)]
    assert [one.result(30) for one in told] == [("a", True), ("b", True), ("c", 1)]
