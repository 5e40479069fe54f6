"""A body that takes long to decode keeps nobody waiting but those of its own kind."""

from __future__ import annotations

import functools
import json
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from daskscope.codec import encode, pack_columns, unpack_columns
from daskscope.protocol import MAX_STREAM, STREAM_UNIT
from daskscope_service.accounts import tokens
from daskscope_service.application import close_app, create_app
from daskscope_service.ingest import otlp_json, otlp_size
from daskscope_service.ingest.decoding_turns import MOST_OF_ONE, DecodingTurns
from daskscope_service.ingest.heartbeat import parse
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.problems import Problem
from tests import sqlite_template
from tests.patience import PATIENCE, wait_until
from tests.service.beats import make_beat

pytestmark = pytest.mark.sqlite


def beat(**fields: Any) -> tuple[str, bytes]:
    return "/api/v1/heartbeats", json.dumps(json.loads(encode(make_beat())) | fields).encode()


def packed_runs(number: int) -> list[dict[str, Any]]:
    """Return task streams of equal runs, which take few bytes."""
    columns = [[0] * MAX_STREAM for _ in range(5)] + [[1] * MAX_STREAM]
    columns += [[0] * MAX_STREAM for _ in range(4)]
    stream = {
        "started_at": time.time() - 60,
        "stopped_at": time.time() - 60 + STREAM_UNIT,
        "runs": MAX_STREAM,
        "merged": 0,
        "workers": ["tcp://10.0.0.1:4000"],
        "prefixes": ["inc"],
        "columns": pack_columns(columns),
    }
    return [stream | {"id": str(place)} for place in range(number)]


POINT = {"timeUnixNano": "1", "asDouble": 1.5}
METRIC = {"name": "a", "gauge": {"dataPoints": [POINT] * 8_000}}
OTLP = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [METRIC]}]}]}

COSTLY = {
    "a small beat to correct": beat(events=[{}] * 10),
    "a small beat of many runs": beat(task_streams=packed_runs(50)),
    "a beat to correct": beat(events=[{}] * 40_000),
    "a beat of many rows": beat(
        activities=[{"prefix": str(number), "seconds": {}} for number in range(9_000)]
    ),
    "OTLP as JSON": ("/v1/metrics", json.dumps(OTLP).encode()),
}


@pytest.mark.parametrize("what", COSTLY)
def test_what_takes_long_to_decode_waits_without_a_place(tmp_path: Path, what: str) -> None:
    sqlite_template.copy_to(tmp_path)
    app = create_app(Settings(data_dir=tmp_path, queue_size=1))
    engine = services(app).engine
    of = {
        workspace: tokens.create(engine, workspace=workspace, label="test", scopes=["ingest"])
        for workspace in ("ours", "theirs")
    }

    def post(workspace: str, path: str, body: bytes) -> int:
        headers = {"Authorization": f"Bearer {of[workspace]}", "Content-Type": "application/json"}
        return app.test_client().post(path, data=body, headers=headers).status_code

    try:
        with ThreadPoolExecutor(MOST_OF_ONE + 1) as pool:
            with services(app).turns.turn("another"):
                costly = [
                    pool.submit(post, "theirs", *COSTLY[what]) for _ in range(MOST_OF_ONE + 1)
                ]
                # The last one comes when as many as may be wait.
                done, _ = wait(costly, PATIENCE, FIRST_COMPLETED)
                assert [one.result() for one in done] == [429]
                assert post("ours", *beat()) == 200
            assert sorted(one.result(PATIENCE) for one in costly) == [200] * MOST_OF_ONE + [429]
    finally:
        close_app(app)


def test_a_stream_that_hides_how_many_runs_it_has_is_not_unpacked() -> None:
    [stream] = packed_runs(1)
    assert len(stream["columns"]) < 2_000
    with pytest.raises(ValueError, match="does not have the size"):
        unpack_columns(stream["columns"], most=1)
    found = parse(beat(task_streams=[stream | {"runs": 1}])[1], time.time())
    assert (found.rows_left_out, found.reported[0].field) == (1, "$.task_streams[0].columns")


def test_turns_go_round_among_workspaces() -> None:
    turns = DecodingTurns(2)
    order: list[str] = []

    def take(workspace: str) -> None:
        with turns.turn(workspace):
            order.append(workspace)

    def number_wait(number: int) -> bool:
        return sum(map(len, turns._waiting.values())) == number

    with ThreadPoolExecutor() as pool:
        with turns.turn("a"):
            for number, workspace in enumerate(("b", "b", "a", "c"), start=1):
                pool.submit(take, workspace)
                wait_until(functools.partial(number_wait, number))
            with pytest.raises(Problem, match="2 large requests of the workspace b") as refused:
                take("b")
            assert refused.value.status == 429
    assert order == ["b", "a", "c", "b"]


def test_usual_bodies_are_not_costly() -> None:
    few = METRIC | {"gauge": {"dataPoints": [POINT] * 500}}
    usual = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [few]}]}]}
    assert not otlp_json.is_costly(json.dumps(usual).encode())
    assert otlp_json.is_costly(json.dumps(OTLP).encode())
    assert not otlp_size.is_costly(b"\n\0" * 1_000)
    assert otlp_size.is_costly(b"\n\0" * 100_000)


def test_those_who_wait_leave_threads_to_others_however_many_workspaces_they_are_of() -> None:
    turns = DecodingTurns(2, most_of_all=3)
    with ThreadPoolExecutor(2) as pool, turns.turn("first"):
        waiting = [pool.submit(_take, turns, name) for name in ("second", "third")]
        assert wait_until(lambda: len(turns._count) == 3)
        with pytest.raises(Problem, match="3 large requests"), turns.turn("fourth"):
            pass
        assert not any(one.done() for one in waiting)
    for one in waiting:
        one.result()


def test_a_workspace_leaves_as_many_turns_to_others_as_it_has() -> None:
    turns = DecodingTurns(most_of_all=4)
    with ThreadPoolExecutor(3) as pool, turns.turn("first"):
        waiting = [pool.submit(_take, turns, "first")]
        assert wait_until(lambda: turns._count == {"first": 2})
        with pytest.raises(Problem, match="2 large requests of the workspace first"):
            pool.submit(_take, turns, "first").result(PATIENCE)
        waiting.append(pool.submit(_take, turns, "second"))
        assert wait_until(lambda: turns._count == {"first": 2, "second": 1})
    for one in waiting:
        one.result()


def _take(turns: DecodingTurns, workspace: str) -> None:
    with turns.turn(workspace):
        pass
