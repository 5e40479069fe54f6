"""How findings are made beside everything else that a service does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select
from sqlalchemy.exc import StatementError

from daskscope.codec import encode
from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.findings import cluster_passes, evaluator
from daskscope_service.findings.cluster_passes import ClusterPasses
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.ingest.heartbeat import BeatStore
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.insight.findings.rules import Judgement
from daskscope_service.jobs import namer
from daskscope_service.jobs.repeats import Repeats
from daskscope_service.queries import evidence
from daskscope_service.retention.removal import remove_keys
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_status,
    make_task_group,
    make_tiny_tasks,
)

pytestmark = pytest.mark.sqlite

#: More than are judged together, twice.
COMPUTATIONS = 60

BUSY = make_status(threads=4, peak_threads=4, workers=2, peak_workers=2)


def test_while_heartbeats_are_being_written_judging_pauses(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    instruments = ServiceMetrics()
    writer = Writer(engine, capacity=2, instruments=instruments)
    store = BeatStore(engine, writer, Quotas(engine, Settings(), instruments))
    token = tokens.id_of(tokens.create(engine, workspace="default", label="beats"))
    rows = tuple(make_computation(f"number-{n}") for n in range(COMPUTATIONS))
    store.keep(encode(make_beat(computations=rows)), "default", time.time(), token)

    def due() -> int:
        table = schema.computation
        query = select(func.count()).where(table.c.judge_at <= time.time())
        with engine.connect() as connection:
            return connection.execute(query).scalar_one()

    # For as long as it takes: as if each look had taken very long.
    monkeypatch.setattr(evaluator, "_PAUSE", 1e6)
    monkeypatch.setattr(evaluator, "_SECONDS", 1e6)
    judging = Evaluator(engine, EmbeddedSeries(engine), 60.0, writer.is_busy)
    thread = threading.Thread(target=judging.round)
    try:
        with writer.place():
            thread.start()
            assert wait_until(lambda: due() < COMPUTATIONS)
            paused_at = due()
            assert paused_at > 0
            thread.join(4 * evaluator._LOOK_AGAIN)
            assert thread.is_alive()
            assert due() == paused_at
        thread.join()
        assert due() == 0
    finally:
        writer.close()


class Place:
    """A database with a workspace, into which beats come, and whose findings are made on call."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._instruments = ServiceMetrics()
        self.writer = Writer(engine, capacity=2, instruments=self._instruments)
        quotas = Quotas(engine, Settings(), self._instruments)
        self._store = BeatStore(engine, self.writer, quotas)
        self.evaluator = Evaluator(engine, EmbeddedSeries(engine), 60.0, self.writer.is_busy)

    def keep(self, workspace: str, **fields: Any) -> None:
        token = tokens.id_of(tokens.create(self.engine, workspace=workspace, label="beats"))
        self._store.keep(encode(make_beat(**fields)), workspace, time.time(), token)

    def found(self, workspace: str) -> set[tuple[str, str, str]]:
        table = schema.finding
        query = select(table.c.cluster, table.c.computation, table.c.rule)
        with self.engine.connect() as connection:
            rows = connection.execute(query.where(table.c.workspace == workspace))
            return {(row.cluster, row.computation, row.rule) for row in rows}


@pytest.fixture
def place(engine: Engine) -> Iterator[Place]:
    found = Place(engine)
    yield found
    found.writer.close()


def test_what_cannot_be_judged_keeps_back_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    of_computation, of_cluster = evidence.of_computation, evidence.of_cluster

    def computation(scope: Any, series: Any, cluster: str, id: str) -> Any:
        if id == "bad":
            raise KeyError("as if a row were of a kind that nobody thought of")
        return of_computation(scope, series, cluster, id)

    def cluster(scope: Any, series: Any, id: str, *, briefly: bool = False) -> Any:
        if id == "Scheduler-bad":
            raise KeyError("likewise")
        return of_cluster(scope, series, id, briefly=briefly)

    monkeypatch.setattr(evidence, "of_computation", computation)
    monkeypatch.setattr(evidence, "of_cluster", cluster)
    idle, now = make_status(idle_seconds=7_200.0), time.time()
    for workspace in ("mine", "theirs"):
        rows = ("bad", "good") if workspace == "mine" else ("good",)
        ones = ("Scheduler-bad", "Scheduler-good") if workspace == "mine" else ("Scheduler-good",)
        for id in rows:
            place.keep(workspace, status=BUSY, **make_tiny_tasks(id, now - 300, now - 283.6))
        for one in ones:
            made = make_cluster(one, started_at=now - 8_000)
            place.keep(workspace, cluster=made, status=idle)
    place.evaluator.round()
    for workspace in ("mine", "theirs"):
        found = place.found(workspace)
        assert "good" in {computation for _, computation, _ in found}
        assert ("Scheduler-good", "", "idle-cluster") in found
    assert "of computation bad of cluster" in caplog.text
    assert "of cluster Scheduler-bad in workspace mine" in caplog.text


@pytest.mark.parametrize(
    "odd",
    [
        {
            "tasks": 2**53,
            "completed": 10_000,
            "seconds": {"compute": 1e-310},
            "worker_seconds": {"busy": 1e-305},
        },
        {
            "tasks": 10,
            "completed": 10,
            "retried": 10,
            "seconds": {"compute": 1e12},
            "worker_seconds": {"busy": 1e-300},
        },
    ],
    ids=["tiny", "huge"],
)
def test_numbers_beyond_all_bounds_are_not_measured(
    place: Place, odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time()
    times = {"started_at": now - 300, "stopped_at": now - 280}
    computation = make_computation("odd", status="finished", **times, **({"retried": 0} | odd))
    status = make_status(threads=4, peak_threads=8, workers=2, peak_workers=4)
    place.keep("mine", status=status, computations=(computation,))
    place.evaluator.round()
    table = schema.finding
    with place.engine.connect() as connection:
        for saving, measures in connection.execute(select(table.c.saving, table.c.evidence)):
            assert saving is None or isfinite(saving["high"])
            assert all(isfinite(one["value"]) for one in measures)
    assert "no findings can be made" not in caplog.text


def test_what_has_no_job_keeps_back_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    look = namer.Namer._look

    def looked(self: Any, scope: Any, one: Any, steps: Any) -> Any:
        if one.row["id"] == "bad":
            raise KeyError("as if a row were of a kind that nobody thought of")
        return look(self, scope, one, steps)

    monkeypatch.setattr(namer.Namer, "_look", looked)
    now = time.time()
    for id in ("bad", "good"):
        place.keep("mine", status=BUSY, **make_tiny_tasks(id, now - 300, now - 283.6))
    namer.Namer(place.engine, 60.0).round()
    table = schema.computation
    with place.engine.connect() as connection:
        rows = connection.execute(select(table.c.id, table.c.job))
        jobs = {row.id: row.job for row in rows}
        due = select(table.c.id).where(table.c.job_due_at <= now)
        assert not connection.execute(due).all()
    assert jobs["bad"] is None
    assert jobs["good"] is not None
    assert "no job can be found of computation bad of cluster" in caplog.text


def job_of(place: Place) -> Any:
    """Return the only job."""
    with place.engine.connect() as connection:
        return connection.execute(select(schema.job)).one()


def test_a_job_whose_run_is_removed_while_it_is_summed_up_is_summed_up_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed, now = namer._values, time.time()
    for n in range(3):
        rows = make_tiny_tasks("c", now - 300, now - 283.6)
        place.keep("mine", cluster=make_cluster(f"Scheduler-{n}"), status=BUSY, **rows)

    def remove(cluster: str) -> None:
        remove_keys(place.engine, schema.computation, [("mine", cluster, "c")])

    def meanwhile(*arguments: Any) -> Any:
        values = summed(*arguments)
        remove("Scheduler-1")
        return values

    naming = namer.Namer(place.engine, 60.0)
    naming.round()
    assert job_of(place).runs == 3
    remove("Scheduler-0")
    with monkeypatch.context() as patch:
        patch.setattr(namer, "_values", meanwhile)
        naming.round()
    assert job_of(place).runs == 2
    naming.round()
    assert job_of(place).runs == 1


def test_no_group_is_noted_of_a_computation_that_is_removed_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, found = time.time(), Repeats.repeated_in
    rows = make_tiny_tasks("one", now - 300, now - 283.6)
    [group] = rows["task_groups"]
    group = replace(group, tokenized=True, seconds={"compute": 10.0})
    for id in ("one", "two"):
        computations = [replace(one, id=id) for one in rows["computations"]]
        groups = (replace(group, computation=id),)
        made = make_cluster(f"Scheduler-{id}")
        place.keep("mine", cluster=made, computations=tuple(computations), task_groups=groups)

    def meanwhile(*arguments: Any) -> Any:
        groups = found(*arguments)
        remove_keys(place.engine, schema.computation, [("mine", "Scheduler-one", "one")])
        return groups

    monkeypatch.setattr(Repeats, "repeated_in", meanwhile)
    namer.Namer(place.engine, 60.0).round()
    with place.engine.connect() as connection:
        noted = connection.execute(select(schema.group_run.c.computation)).scalars().all()
    assert noted == ["two"]


def test_a_job_is_summed_up_when_a_finding_has_gone_and_each_day_while_a_mute_may_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    place.keep("mine", status=BUSY, **make_tiny_tasks("one", now - 300, now - 283.6))
    naming = namer.Namer(place.engine, 60.0)
    naming.round()
    place.evaluator.round()
    naming.round()
    assert job_of(place).saves_most["rule"] == "tiny-tasks"
    monkeypatch.setattr(evaluator, "judge", lambda _: Judgement((), {}, None))
    evaluator.mark_all(place.engine, "mine")
    place.evaluator.round()
    naming.round()
    job = job_of(place)
    assert (job.saves_most, job.cost) == (None, None)
    assert job.due_at is not None


def test_a_workspace_with_much_to_name_leaves_others_their_turn(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namer, "_MOST_SECONDS", 0.0)
    ended = {"status": "finished", "stopped_at": time.time()}
    for workspace, number in (("a-first", 100), ("b-second", 1)):
        rows = tuple(make_computation(f"c{n}", **ended) for n in range(number))
        place.keep(
            workspace,
            cluster=make_cluster(workspace),
            computations=rows,
            task_groups=tuple(make_task_group(row.id) for row in rows),
        )

    namer.Namer(place.engine, 60.0).round()

    table = schema.computation
    named = select(table.c.workspace, func.count().label("named")).where(table.c.job.is_not(None))
    with place.engine.connect() as connection:
        found = connection.execute(named.group_by(table.c.workspace)).all()
    counts = {row.workspace: row.named for row in found}
    assert 0 < counts["a-first"] < 100
    assert counts["b-second"] == 1


def test_no_number_is_stored_that_json_has_no_word_for(engine: Engine) -> None:
    row = {"workspace": "default", "id": "a", "change": {"ratio": float("inf")}}
    with pytest.raises(StatementError, match="not JSON compliant"), writing(engine) as connection:
        connection.execute(insert(schema.job), row)


def test_of_very_many_clusters_a_round_reads_some_and_the_next_ones_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_passes, "_MOST_READ", 2)
    for number in range(5):
        place.keep("default", cluster=make_cluster(f"c{number}"), status=BUSY)
    passes = ClusterPasses(place.engine, EmbeddedSeries(place.engine), 60.0, lambda _: None)
    now = time.time()
    assert [passes.round("default", now, 0.0) for _ in range(3)] == [
        (2, False),
        (2, False),
        (1, True),
    ]


def test_a_silent_cluster_is_judged_once_more_and_then_seldom(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[float] = []
    of_cluster = evidence.of_cluster

    def noted(scope: Any, *arguments: Any, **options: Any) -> Any:
        judged.append(scope.now - began)
        return of_cluster(scope, *arguments, **options)

    monkeypatch.setattr(evidence, "of_cluster", noted)
    place.keep("default", cluster=make_cluster("fallen-silent"), status=BUSY)
    began = time.time()
    passes = ClusterPasses(place.engine, EmbeddedSeries(place.engine), 60.0, lambda _: None)
    for minute in range(25):
        count, has_ended = passes.round("default", began + 60.0 * minute, 0.0)
        assert has_ended
        assert count == (1 if len(judged) and judged[-1] == 60.0 * minute else 0)
    # As it is heard, as its silence is found, and every ten minutes.
    assert [round(after / 60) for after in judged] == [0, 1, 10, 20]
    assert [one[2] for one in place.found("default")] == ["silent"]


def test_a_computation_is_judged_again_once_it_has_its_job_and_not_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, table = time.time(), schema.computation
    naming = namer.Namer(place.engine, 60.0)

    def judge_at(id: str) -> float | None:
        query = select(table.c.judge_at).where(table.c.id == id)
        with place.engine.connect() as connection:
            found: float | None = connection.execute(query).scalar_one()
            return found

    def send(id: str) -> None:
        tiny = make_tiny_tasks(id, now - 300, now - 283.6)
        place.keep("default", status=BUSY, cluster=make_cluster(started_at=now - 400), **tiny)

    send("judged-first")
    place.evaluator.round()
    assert judge_at("judged-first") is None
    naming.round()
    assert (judge_at("judged-first") or time.time() + 1) <= time.time()
    place.evaluator.round()
    assert judge_at("judged-first") is None
    naming.round()
    assert judge_at("judged-first") is None

    # It gets its job while it is judged without one.
    of_computation = evidence.of_computation

    def meanwhile(*args: Any) -> Any:
        naming.round()
        return of_computation(*args)

    send("named-meanwhile")
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "of_computation", meanwhile)
        place.evaluator.round()
    assert (judge_at("named-meanwhile") or time.time() + 1) <= time.time()
    place.evaluator.round()
    assert judge_at("named-meanwhile") is None
