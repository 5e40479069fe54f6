"""What a step of a time series tells, whether it is short or long."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, insert

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.telemetry.embedded import EmbeddedSeries
from daskscope_service.telemetry.store import MOST_AVERAGED, SeriesLine

#: A point every ten seconds for two hours, but for a quarter of an hour; its value is its number.
EVERY, BEGAN, COUNT = 10_000, 1_700_000_000_000, 720
POINTS = [n for n in range(COUNT) if not 300 <= n < 390]


@pytest.fixture
def store(engine: Engine) -> EmbeddedSeries:
    with writing(engine) as connection:
        for id, (workspace, kind) in enumerate(
            (("default", "gauge"), ("default", "counter"), ("other", "gauge"))
        ):
            row: dict[str, Any] = {"id": id, "cluster": "c", "metric": "m", "unit": "1"}
            row |= {"workspace": workspace, "field": kind, "kind": kind, "attributes": "{}"}
            connection.execute(insert(schema.series), row)
            connection.execute(
                insert(schema.point),
                [{"series": id, "time": BEGAN + n * EVERY, "value": float(n)} for n in POINTS],
            )
    return EmbeddedSeries(engine)


def lines(store: EmbeddedSeries, first: int, last: int, step: float) -> dict[str, SeriesLine]:
    since, until = BEGAN + first * EVERY, BEGAN + last * EVERY
    found = store.query("default", "c", ["m"], since / 1000, until / 1000, step)["m"]
    assert len(found) == 2
    return {line.field: line for line in found}


def expected(first: int, last: int, step: int, most: int) -> dict[int, list[int]]:
    """Return the last ``most`` points in each step, by when it begins."""
    steps: dict[int, list[int]] = {}
    for n in POINTS:
        if first <= n < last:
            time = BEGAN + n * EVERY
            steps.setdefault(time - time % step, []).append(n)
    return {time: found[-most:] for time, found in steps.items()}


@pytest.mark.parametrize(
    ("step", "most"), [(60, 6), (120, 12), (180, MOST_AVERAGED), (600, MOST_AVERAGED)]
)
def test_a_step_is_its_mean_or_its_last_total_and_where_nothing_was_measured_there_is_none(
    store: EmbeddedSeries, step: int, most: int
) -> None:
    first, last = 7, 701  # in the middle of a step
    found = lines(store, first, last, step)
    steps = expected(first, last, step * 1000, most)
    assert found["gauge"].times == found["counter"].times == list(steps)
    assert found["gauge"].values == pytest.approx([sum(s) / len(s) for s in steps.values()])
    assert found["counter"].values == [float(s[-1]) for s in steps.values()]
    assert (found["gauge"].sampled, found["counter"].sampled) == (step > 120, False)


def test_no_more_points_are_returned_than_a_chart_has_room_for(store: EmbeddedSeries) -> None:
    assert len(lines(store, 0, COUNT, 1)["gauge"].times) <= 501
    until = BEGAN / 1000 + 30 * 86_400
    (line, _) = store.query("default", "c", ["m"], BEGAN / 1000 - 30 * 86_400, until, 1)["m"]
    assert line.values
