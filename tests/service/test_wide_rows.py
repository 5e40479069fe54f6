"""Of rows of megabytes only what is needed is in memory, and only some of them at a time."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, select, update

from daskscope.codec import encode
from daskscope.protocol import CodeFrame, Heartbeat, WorkerShare
from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.db.last_entry import last_entry
from daskscope_service.db.scope import Scope, Selection
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.jobs.namer import Namer
from daskscope_service.queries import computations, jobs, sequences
from daskscope_service.retention.code import remove_unused_code
from daskscope_service.retention.throttle import Throttle
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings
from tests.service.beats import make_beat, make_cluster, make_code, make_computation

NOW = time.time()
Keep = Callable[[Heartbeat], object]
#: Runs, which have 1.1 megabytes each, and what reading them may take. Eight are read at once.
RUNS, MOST = 48, 22_000_000
WIDE = "\N{GRINNING FACE}" * 1_400
FRAMES = tuple(CodeFrame(f"{n}{WIDE}", 1) for n in range(100))
SHARES = tuple(WorkerShare(f"{n}{WIDE}", 5, 7.5, 0.76, 1.6) for n in range(100))


@pytest.fixture
def keep(engine: Engine) -> Iterator[Keep]:
    """Stores beats in the workspace ``w``."""
    metrics = ServiceMetrics()
    writer = Writer(engine, capacity=2, instruments=metrics)
    store = BeatStore(engine, writer, Quotas(engine, Settings(), metrics))
    token = tokens.id_of(tokens.create(engine, workspace="w", label="beats"))
    yield lambda beat: store.keep(encode(beat), "w", NOW, token)
    writer.close()


def wide_beat(n: int) -> Heartbeat:
    began = NOW - 1000 + 10 * n
    run = make_computation(
        f"c{n}",
        status="finished",
        started_at=began,
        stopped_at=began + 5,
        ended_at=began + 5,
        completed=100,
        erred=0,
        annotations={"job": "wide"},
        worker_seconds={"busy": 3.0, "idle": 7.0},
        frames=FRAMES,
        worker_shares=SHARES,
    )
    return make_beat(make_cluster("k"), n + 1, computations=(run,), code=(make_code(),))


def peak(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_wide_rows_are_read_some_at_a_time(engine: Engine, keep: Keep) -> None:
    for n in range(RUNS):
        keep(wide_beat(n))
    namer = Namer(engine, 60.0)
    peaks = {"namer": peak(namer.round)}
    while namer.round():
        pass
    peaks["unused code"] = peak(lambda: [*remove_unused_code(engine, "w", Throttle(1.0))])
    with engine.connect() as connection:
        scope = Scope(connection, "w", NOW, 60.0)
        [job] = jobs.list_jobs(scope, Selection()).items
        ids = [f"c{n}" for n in range(RUNS)]
        peaks["job"] = peak(lambda: jobs.one_job(scope, job["id"]))
        peaks["titles"] = peak(lambda: computations.titles_of(scope, "k", ids))
        peaks["loops"] = peak(lambda: sequences.loops(scope, "k"))
        [loop] = sequences.loops(scope, "k")
        titles = computations.titles_of(scope, "k", ids)
    assert {name: one for name, one in peaks.items() if one > MOST} == {}
    # What they say is right for all that.
    assert job["runs"] == loop.times == len(titles) == RUNS
    assert set(titles.values()) == {f"99{WIDE}"[:299] + "…"}
    assert loop.line == f"99{WIDE}:1"


@pytest.mark.parametrize("frames", [None, [], [{"file": "a"}], [{"file": "a"}, {"file": "b"}]])
def test_the_last_entry_is_that_of_the_whole_array(
    engine: Engine, keep: Keep, frames: list[dict[str, str]] | None
) -> None:
    keep(make_beat(computations=(make_computation(),)))
    table = schema.computation
    with writing(engine) as connection:
        connection.execute(update(table).values(frames=frames))
    with engine.connect() as connection:
        found = connection.execute(select(last_entry(table.c.frames))).scalar_one()
    assert found == (frames[-1] if frames else None)
