"""Series become coarser with age, and say the same; a removed one does not leak into another."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from sqlalchemy import Engine, insert, select

from daskscope_service.db import schema
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.retention.removal import remove_series
from daskscope_service.retention.thinning import Point, coarser, thin
from daskscope_service.retention.throttle import Removed, Throttle
from daskscope_service.telemetry.embedded import EmbeddedSeries
from daskscope_service.telemetry.store import SeriesLine, rate
from tests.service.rows import POINTS
from tests.service.test_otlp import AT, metrics_request
from tests.service_process import ServiceProcess

WIDTH = 300_000
SINCE = 1_800_000_000_000 // WIDTH * WIDTH


def put_series(engine: Engine, points: Sequence[Point], kind: str, id: int = 1) -> None:
    names = {"workspace": "default", "cluster": "c", "metric": f"m{id}", "field": "value"}
    with writing(engine) as connection:
        connection.execute(
            insert(schema.series).values(**names, id=id, kind=kind, unit="", attributes="{}")
        )
        connection.execute(
            insert(schema.point), [{"series": id, "time": t, "value": v} for t, v in points]
        )


def points_of(engine: Engine, id: int = 1) -> list[Point]:
    found = POINTS.c
    query = select(found.time, found.value).where(found.series == id).order_by(found.time)
    with engine.connect() as connection:
        return [(time, value) for time, value in connection.execute(query)]


def run(engine: Engine, since: int, until: int, *, rows: int = 256) -> int:
    pace = Throttle(1.0)
    gone = 0
    for step in thin(engine, "default", WIDTH, since, until, pace):
        assert isinstance(step, Removed)
        gone += step.rows
        pace.rows = rows
    return gone


def growth(points: Sequence[Point]) -> float:
    times, values = [t for t, _ in points], [v for _, v in points]
    line = rate(SeriesLine({}, "value", "counter", "", times, values))
    spans = [b - a for a, b in itertools.pairwise(times)]
    return sum(value * span / 1000 for value, span in zip(line.values, spans, strict=True))


def totals(seed: int, number: int, *, step: int = 10_000) -> list[Point]:
    """Return a counter that is started anew now and then."""
    chance, total, points = random.Random(seed), 50.0, []
    for index in range(number):
        total = float(chance.randrange(3)) if chance.random() < 0.02 else total
        total += chance.randrange(5)
        points.append((SINCE + index * step, total))
    return points


@pytest.mark.parametrize("rows", [7, 16, 5000])
def test_a_thinned_counter_has_grown_by_as_much_and_a_gauge_keeps_its_means(
    engine: Engine, rows: int
) -> None:
    counter, gauge = totals(1, 700), [(t, v % 17) for t, v in totals(2, 700)]
    put_series(engine, counter, "counter", 1)
    put_series(engine, gauge, "gauge", 2)
    until = SINCE + 20 * WIDTH
    run(engine, 0, until, rows=rows)

    left, means = points_of(engine, 1), points_of(engine, 2)
    assert growth(left) == pytest.approx(growth(counter))
    assert left[0] == counter[0]
    young = [one for one in counter if one[0] >= until]
    assert left[-len(young) :] == young
    assert len(left) < len(young) + 20 + 40
    assert [t // WIDTH for t, _ in means if t < until] == [SINCE // WIDTH + n for n in range(20)]
    for time, mean in means[:20]:
        bucket = [v for t, v in gauge if t // WIDTH == time // WIDTH]
        assert mean == pytest.approx(sum(bucket) / len(bucket))
    # Once more changes nothing.
    assert run(engine, 0, until) == 0
    assert (points_of(engine, 1), points_of(engine, 2)) == (left, means)


def test_a_chart_of_thinned_totals_is_the_chart_of_all(engine: Engine) -> None:
    put_series(engine, [(t, float(i)) for i, (t, _) in enumerate(totals(3, 600))], "counter")
    store, hour = EmbeddedSeries(engine), 3600.0
    wanted = ("default", "c", ["m1"], SINCE / 1000, SINCE / 1000 + 2 * hour, WIDTH / 1000)
    before = store.query(*wanted)
    assert before["m1"]
    assert run(engine, 0, SINCE + 20 * WIDTH) > 500
    assert store.query(*wanted) == before


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1))
def test_coarser_points_are_few_and_have_grown_by_as_much(raw: list[tuple[int, int]]) -> None:
    points = [(time, float(value)) for time, value in sorted(dict(raw).items())]
    kept = coarser(points, 10, counter=True)
    assert growth(kept) == pytest.approx(growth(points))
    assert kept[-1] == points[-1]
    assert coarser(kept, 10, counter=True) == kept
    for cut in range(0, 50, 10):  # in two parts, it is the same
        early = [one for one in points if one[0] < cut]
        late = [one for one in points if one[0] >= cut]
        before = early[-1][1] if early else None
        parts = coarser(early, 10, counter=True) + coarser(late, 10, before, counter=True)
        assert parts == kept
    means = coarser(points, 10, counter=False)
    assert len(means) == len({time // 10 for time, _ in points})


def send(service: ServiceProcess, token: str, name: str, second: int) -> requests.Response:
    metric = Metric(name=name)
    metric.gauge.data_points.add(time_unix_nano=AT + second * 10**9, as_double=float(second))
    return requests.post(
        f"{service.url}/v1/metrics",
        data=metrics_request(metric).SerializeToString(),
        headers={"Content-Type": "application/x-protobuf", "Authorization": f"Bearer {token}"},
        timeout=30,
    )


def test_points_do_not_go_to_who_has_the_id_of_a_removed_series(service: ServiceProcess) -> None:
    engine, token = service.engine, service.token()
    assert send(service, token, "removed", 1).ok
    with engine.connect() as connection:
        (id,) = connection.execute(select(schema.series.c.id)).scalars()
    for _ in remove_series(engine, "default", [id], unless_points=False):
        pass
    # Another workspace's series, the next that is made, does not get the id.
    with writing(engine) as connection:
        make_workspace(connection, "other")
        row = insert(schema.series).values(
            workspace="other", cluster="c", metric="others", field="value", kind="gauge", unit="",
            attributes="{}",
        )  # fmt: skip
        others = connection.execute(row.returning(schema.series.c.id)).scalar_one()
    assert others > id
    answer = send(service, token, "removed", 2)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert points_of(engine, id) == []
    assert send(service, token, "removed", 2).ok
    assert points_of(engine, id) == points_of(engine, others) == []
    query = select(schema.series.c.id).where(schema.series.c.metric == "removed")
    with engine.connect() as connection:
        (again,) = connection.execute(query).scalars()
    assert points_of(engine, again) == [(AT // 10**6 + 2000, 2.0)]


def test_no_acknowledged_point_is_lost_while_series_are_removed(service: ServiceProcess) -> None:
    """One sends, another removes what has no points: what was acknowledged is there."""
    engine, token = service.engine, service.token()
    stop = threading.Event()
    acknowledged: list[tuple[str, int]] = []

    def sending() -> None:
        second = 0
        while not stop.is_set():
            second += 1
            name = f"m{second % 3}-{second // 30}"
            answer = send(service, token, name, second)
            assert answer.status_code in (200, 503)
            if answer.ok:
                acknowledged.append((name, second))

    thread = threading.Thread(target=sending)
    thread.start()
    try:
        removed = 0
        for _ in range(30):
            with writing(engine) as connection:
                row = insert(schema.series).values(
                    workspace="default", cluster="c", metric="another", field="value",
                    kind="gauge", unit="", attributes="{}",
                )  # fmt: skip
                id = connection.execute(row.returning(schema.series.c.id)).scalar_one()
            for _ in remove_series(engine, "default", [id], unless_points=True):
                removed += 1
    finally:
        stop.set()
        thread.join()
    assert removed == 30
    point, series = POINTS, schema.series
    query = select(series.c.metric, point.c.time).join(point, point.c.series == series.c.id)
    with engine.connect() as connection:
        there = {tuple(row) for row in connection.execute(query)}
    assert acknowledged
    assert {(name, AT // 10**6 + second * 1000) for name, second in acknowledged} <= there
