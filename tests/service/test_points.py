"""Points that rest before they move on to where they are kept: what is read does not change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select

from daskscope_service.db import points, schema
from daskscope_service.db.data_ownership import Whose
from daskscope_service.db.engine import open_database, writing
from daskscope_service.db.statements import Upsert
from daskscope_service.export.rows import Choice, parts
from daskscope_service.retention import deletion
from daskscope_service.retention.throttle import Throttle
from daskscope_service.settings import Settings
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests import sqlite_template

EVERY = 10_000
KINDS = ("gauge", "counter")
COUNT = 3_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Two series of another cluster, and a gauge and a counter."""
    settings = Settings(data_dir=tmp_path)
    sqlite_template.copy_to(tmp_path)
    engine = open_database(settings)
    with writing(engine) as connection:
        for id, cluster in enumerate(("other", "c", "c", "other")):
            connection.execute(
                insert(schema.series).values(
                    id=id,
                    workspace="default",
                    cluster=cluster,
                    metric="m",
                    field=str(id),
                    kind=KINDS[id % 2],
                    unit="",
                    attributes="{}",
                )
            )
    yield engine
    engine.dispose()


class Sender:
    """Writes points as the service does."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.upsert = Upsert(engine, points.written_to(engine), replace=["value"])
        self.moving = points.Moving(engine)

    def send(self, first: int, last: int) -> None:
        """Write these of the four series' points, together."""
        rows = [(id, n * EVERY, float(n + id)) for id in range(4) for n in range(first, last)]
        with writing(self.engine) as connection:
            self.upsert.run(connection, rows)
            self.moving.after(connection, len(rows))


def told(engine: Engine, step: float) -> Any:
    found = EmbeddedSeries(engine).query("default", "c", ["m"], 0.0, COUNT * EVERY / 1000, step)
    return [(line.field, line.times, line.values) for line in found["m"]]


def exported(engine: Engine) -> list[Any]:
    choice = Choice(Whose("default", cluster="c"))
    return [(row["field"], row["at"]) for rows in parts(engine, "series", choice) for row in rows]


def number(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


@pytest.mark.parametrize("step", [10, 60, 300])
def test_what_is_read_is_the_same_wherever_points_rest(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    sender = Sender(engine)
    sender.send(0, COUNT)
    assert number(engine, schema.recent_point) == 4 * COUNT
    resting, files = told(engine, step), exported(engine)
    assert [len(times) for _, times, _ in resting] == [COUNT * 10 / max(step, 60)] * 2
    assert len(files) == 2 * COUNT
    place = points.BEFORE_ALL
    for _ in range(5):  # in the middle of the second series
        with writing(engine) as connection:
            moved, place = points.move(connection, place, 1_000)
        assert moved == 1_000
        assert (told(engine, step), exported(engine)) == (resting, files)
    # Sent once more, one is in both.
    sender.send(COUNT - 10, COUNT)
    sender.send(0, 10)
    assert (told(engine, step), exported(engine)) == (resting, files)
    with writing(engine) as connection:
        assert points.move(connection, points.BEFORE_ALL, 10**6)[1] == points.BEFORE_ALL
    assert not number(engine, schema.recent_point)
    assert number(engine, schema.point) == 4 * COUNT
    assert (told(engine, step), exported(engine)) == (resting, files)


def test_no_more_than_so_many_rest_and_each_series_has_its_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "RESTING", 400)
    sender = Sender(engine)
    for n in range(0, COUNT, 10):
        sender.send(n, n + 10)
        assert number(engine, schema.recent_point) <= 400 + 50
    with engine.connect() as connection:
        left = connection.execute(
            select(func.count())
            .select_from(schema.recent_point)
            .group_by(schema.recent_point.c.series)
        ).scalars()
        assert max(left) < 400
    assert number(engine, points.where(lambda table: table.c.series >= 0).subquery()) == 4 * COUNT
    # Who begins anew counts what is there.
    another = Sender(engine)
    for n in range(COUNT, COUNT + 100, 10):
        another.send(n, n + 10)
    assert number(engine, schema.recent_point) <= 400 + 50


def test_points_that_rest_go_with_their_series(engine: Engine) -> None:
    Sender(engine).send(0, 100)
    whose = Whose("default", cluster="c")
    assert deletion.count(engine, whose)["point"] == 200
    for _ in deletion.delete_rows(engine, whose, Throttle(1.0)):
        pass
    assert number(engine, schema.recent_point) == 200
    with engine.connect() as connection:
        ids = connection.execute(select(schema.recent_point.c.series).distinct()).scalars()
        assert sorted(ids) == [0, 3]
