"""Task streams as files for Perfetto: the runs that are stored, in lanes without overlaps."""

from __future__ import annotations

import itertools
import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from flask import Flask

import daskscope
import daskscope.api
from daskscope.codec import encode, pack_columns
from daskscope.protocol import TaskStream
from daskscope_service.accounts import tokens
from daskscope_service.api import trace_events as module
from daskscope_service.application import close_app, create_app
from daskscope_service.db.engine import upgrade_database
from daskscope_service.queries import task_streams as queries
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests.service.beats import make_beat, make_cluster, make_stream, post
from tests.service.test_command_line import daskscope as daskscope_command
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

WORKERS, PREFIXES = ("tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000", ""), ("load", "sum", "mean")
MOST_ENTRIES = 40


def random_stream(number: int, seed: int) -> TaskStream:
    """Return a stream of some runs of up to two seconds, a few of them merged."""
    rng = random.Random(seed)
    entries = []
    for _ in range(MOST_ENTRIES):
        length, count = rng.randrange(20_000), rng.choice([1, 1, 1, 7])
        merged = (rng.randrange(length * 4 + 1), rng.randrange(length + 1)) if count > 1 else (0, 0)
        start, amounts = rng.randrange(500), (rng.randrange(3) * 100, rng.randrange(2) * 50)
        names = (rng.randrange(3), rng.randrange(3), rng.randrange(3))
        entries.append((*names, start, length, count, *merged, *amounts))
    columns = [list(column) for column in zip(*entries, strict=True)]
    ends = map(sum, zip(itertools.accumulate(columns[3]), columns[4], strict=True))
    began = time.time() - 600 + number
    return make_stream(
        f"t{number}",
        started_at=began,
        stopped_at=began + max(ends) * 1e-4,
        runs=sum(columns[5]),
        merged=sum(count for count in columns[5] if count > 1),
        workers=WORKERS,
        prefixes=PREFIXES,
        columns=pack_columns(columns),
    )


@pytest.fixture(scope="module")
def workspace() -> str:
    return f"trace-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def cluster(shared_service: ServiceProcess, workspace: str) -> str:
    """The id of a cluster whose intervals overlap, as they do where runs take long."""
    streams = tuple(random_stream(number, number) for number in range(5))
    beat = make_beat(make_cluster(name="traced"), task_streams=streams)
    assert post(shared_service.url, shared_service.token(workspace=workspace), beat).ok
    return beat.cluster.id


@pytest.fixture(autouse=True)
def configured(shared_service: ServiceProcess, workspace: str) -> Iterator[None]:
    token = shared_service.token(["read"], workspace)
    with dask.config.set(
        {"daskscope.endpoint": shared_service.url, "daskscope.token": token},
    ):
        yield


@contextmanager
def closing_app(settings: Settings) -> Iterator[Flask]:
    app = create_app(settings)
    try:
        yield app
    finally:
        close_app(app)


def named(events: list[dict[str, Any]], what: str) -> dict[Any, str]:
    """Return the names of processes or threads, by their numbers."""
    return {
        (event["pid"], event["tid"]) if what == "thread" else event["pid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == f"{what}_name"
    }


def test_a_file_has_the_runs_that_are_stored(cluster: str) -> None:
    events = json.loads(daskscope.api.make_trace(cluster))["traceEvents"]
    stored = daskscope.task_stream(cluster)
    rows = [dict(zip(stored, row, strict=True)) for row in zip(*stored.values(), strict=True)]
    assert len(rows) == 5 * MOST_ENTRIES
    workers = named(events, "process")
    runs = [event for event in events if event["ph"] == "X"]
    found: Counter[Any] = Counter()
    for run in runs:
        more, length = run["args"], run["dur"] / 1e6
        found[
            workers[run["pid"]].replace("several workers", ""),
            run["name"],
            run["cat"],
            round(run["ts"] / 100),
            round(length, 4),
            more.get("count", 1),
            more.get("seconds", round(length, 4)),
            more.get("longest", round(length, 4)),
            more.get("transfer", 0.0),
            more.get("disk", 0.0),
        ] += 1
    numbers = ("count", "seconds", "longest", "transfer", "disk")
    assert found == Counter(
        (
            *(row["worker"], row["prefix"], row["outcome"]),
            round(row["started_at"].timestamp() * 1e4),
            round((row["stopped_at"] - row["started_at"]).total_seconds(), 4),
            *(row[name] for name in numbers),
        )
        for row in rows
    )


def test_runs_of_a_lane_do_not_overlap_and_lanes_are_as_few_as_can_be(cluster: str) -> None:
    events = json.loads(daskscope.api.make_trace(cluster))["traceEvents"]
    threads = named(events, "thread")
    runs = sorted((event for event in events if event["ph"] == "X"), key=lambda one: one["ts"])
    ends: dict[tuple[int, int], int] = {}
    for run in runs:
        track = run["pid"], run["tid"]
        assert run["ts"] >= ends.get(track, 0)
        ends[track] = run["ts"] + run["dur"]
        assert threads[track].startswith("merged" if "count" in run["args"] else "lane")
    assert set(threads) == set(ends)
    for process in named(events, "process"):
        alone = [run for run in runs if run["pid"] == process and "count" not in run["args"]]
        steps = [(run["ts"] + run["dur"], -1) for run in alone] + [(run["ts"], 1) for run in alone]
        together = max(itertools.accumulate(step for _, step in sorted(steps)))
        lanes = [name for (of, _), name in threads.items() if of == process and "lane" in name]
        assert len(lanes) == together


def test_the_command_prints_the_file(shared_service: ServiceProcess, cluster: str) -> None:
    token = dask.config.get("daskscope.token")
    done = daskscope_command(
        *("trace", cluster, "--since", "1 day"),
        DASK_DASKSCOPE__ENDPOINT=shared_service.url,
        DASK_DASKSCOPE__TOKEN=token,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == daskscope.api.make_trace(cluster) == daskscope.api.make_trace("traced")


def test_a_file_of_too_many_runs_says_so_and_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_MOST_ROWS", 2)
    monkeypatch.setattr(module, "MOST_EVENTS", MOST_ENTRIES + 1)
    settings = Settings(data_dir=tmp_path)
    upgrade_database(settings)
    with closing_app(settings) as app:
        token = tokens.create(
            services(app).engine, workspace="w", label="all", scopes=["ingest", "read"]
        )
        headers = {"Authorization": f"Bearer {token}"}
        streams = tuple(random_stream(number, number) for number in range(5))
        beat = make_beat(make_cluster(), task_streams=streams)
        client = app.test_client()
        assert client.post("/api/v1/heartbeats", data=encode(beat), headers=headers).text
        address = f"/api/v1/clusters/{beat.cluster.id}/stream/trace"
        begins, more = [], []
        while address:
            answer = client.get(address, headers=headers)
            file = answer.json
            assert file is not None
            more.append(file["otherData"]["more"])
            begins.append([event["ts"] for event in file["traceEvents"] if event["ph"] == "X"])
            address = answer.headers.get("Link", "").partition(">")[0].removeprefix("<")
    assert more == [True, True, False]
    assert [len(of) for of in begins] == [2 * MOST_ENTRIES, 2 * MOST_ENTRIES, MOST_ENTRIES]
    assert [min(of) for of in begins] == sorted(map(min, begins), reverse=True)


def test_a_cluster_without_runs_has_an_empty_file_and_one_that_is_not_there_none(
    shared_service: ServiceProcess, workspace: str
) -> None:
    beat = make_beat(make_cluster())
    token = shared_service.token(workspace=workspace)
    assert post(shared_service.url, token, beat).ok
    file = json.loads(daskscope.api.make_trace(beat.cluster.id))
    assert file == {"otherData": {"cluster": beat.cluster.id, "more": False}, "traceEvents": []}
    with pytest.raises(daskscope.NotFound):
        daskscope.api.make_trace("Scheduler-that-never-was")
