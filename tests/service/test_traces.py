"""The spans of a computation: as the API answers them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests
from sqlalchemy import Engine, event, select

from daskscope import names
from daskscope_service.db import schema
from daskscope_service.db.scope import weight
from daskscope_service.telemetry import spans as spans_of_computations
from daskscope_service.telemetry.spans import EmbeddedSpans
from tests.seed_spans import spans
from tests.seed_writer import SeedWriter
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

WORKSPACE = "traces"

Computations = dict[str, tuple[str, str]]


def fill(service: ServiceProcess, workspace: str) -> SeedWriter:
    """Add three computations of one trace, without spans."""
    writer = SeedWriter(workspace, time.time())
    cluster = writer.cluster("Scheduler-1", name="one", user="li", started=-5000, workers=2)
    writer.computation(cluster, "erred", "erred", -2400, -2310, None, call=1)
    writer.computation(cluster, "finished", "finished", -900, -655, None, call=1)
    writer.computation(cluster, "running", "running", -90, None, None, call=1)
    return writer


@pytest.fixture(scope="module")
def computations(shared_service: ServiceProcess) -> Computations:
    writer = fill(shared_service, WORKSPACE)
    found = {name: ("Scheduler-1", name) for name in ("erred", "finished", "running")}
    spans(writer, found["finished"])
    spans(writer, found["erred"], failed_in="hash-join-p2p")
    writer.write(shared_service.engine)
    return found


def ask(service: ServiceProcess, workspace: str, where: tuple[str, str]) -> requests.Response:
    return requests.get(
        f"{service.url}/api/v1/clusters/{where[0]}/computations/{where[1]}/trace",
        headers={"Authorization": f"Bearer {service.token(scopes=['read'], workspace=workspace)}"},
        timeout=30,
    )


def trace_of(service: ServiceProcess, id: str) -> str:
    """Return the id of the trace of a computation."""
    with service.engine.connect() as connection:
        found: str | None = connection.scalars(
            select(schema.computation.c.trace_id).where(
                schema.computation.c.workspace == WORKSPACE, schema.computation.c.id == id
            )
        ).one()
    assert found is not None
    return found


def test_a_computations_spans_come_level_by_level(
    shared_service: ServiceProcess, computations: Computations
) -> None:
    answer = ask(shared_service, WORKSPACE, computations["erred"])
    assert answer.status_code == 200, answer.text
    trace: dict[str, Any] = answer.json()
    root, *below = trace["spans"]
    assert (names.SPAN_COMPUTATION.includes(root["name"]), root["status"]) == (True, "error")
    groups = [span for span in below if names.SPAN_TASK_GROUP.includes(span["name"])]
    tasks = below[len(groups) :]
    assert len(groups) == 5
    assert {span["parent_span_id"] for span in groups} == {root["span_id"]}
    assert {span["parent_span_id"] for span in tasks} == {span["span_id"] for span in groups}
    failed = [span for span in tasks if span["status"] == "error"]
    assert [span["attributes"][names.EXCEPTION_TYPE] for span in failed] == ["ValueError"] * 2
    for level in (groups, tasks):
        started = [span["started_at"] for span in level]
        assert started == sorted(started)
    assert trace["more"] is False
    # Another computation of the same trace has its own.
    other = ask(shared_service, WORKSPACE, computations["finished"]).json()
    assert {span["span_id"] for span in other["spans"]}.isdisjoint(
        span["span_id"] for span in trace["spans"]
    )


def test_what_did_not_arrive_is_an_empty_list_and_no_error(
    shared_service: ServiceProcess, computations: Computations
) -> None:
    trace = ask(shared_service, WORKSPACE, computations["running"]).json()
    assert trace["spans"] == []
    assert trace["trace_id"] is not None
    gone = ask(shared_service, WORKSPACE, ("Scheduler-1", "nothing"))
    assert gone.status_code == 404
    assert "no computation 'nothing'" in gone.json()["detail"]


def test_no_other_workspace_has_them(
    shared_service: ServiceProcess, computations: Computations
) -> None:
    fill(shared_service, "traces-too").write(shared_service.engine)
    assert ask(shared_service, WORKSPACE, computations["erred"]).json()["spans"]
    assert ask(shared_service, "traces-too", computations["erred"]).json()["spans"] == []


def test_of_too_many_the_failed_and_the_longest_are_kept(
    shared_service: ServiceProcess, computations: Computations
) -> None:
    _, id = computations["erred"]
    trace_id = trace_of(shared_service, id)
    reader = EmbeddedSpans(shared_service.engine)
    whole = reader.of_computation(WORKSPACE, trace_id, id)
    some = reader.of_computation(WORKSPACE, trace_id, id, most=9)
    tasks = some.spans[6:]
    assert some.more
    assert len(tasks) == 3
    assert sum(span.status == "error" for span in tasks) == 2
    longest = max(whole.spans[6:], key=lambda span: span.stopped_at - span.started_at)
    assert longest in tasks
    few = reader.of_computation(WORKSPACE, trace_id, id, most=4)
    assert (few.spans, few.more) == (whole.spans[:4], True)


def test_of_large_spans_no_more_are_read_than_there_is_room_for(
    shared_service: ServiceProcess, computations: Computations, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, id = computations["erred"]
    trace_id = trace_of(shared_service, id)
    reader = EmbeddedSpans(shared_service.engine)
    whole = reader.of_computation(WORKSPACE, trace_id, id)
    sizes = [weight(one.attributes or {}) for one in whole.spans]
    groups = sum(names.SPAN_TASK_GROUP.includes(one.name) for one in whole.spans)
    for room, least in ((sum(sizes[:3]), 3), (sum(sizes[: 3 + groups]), 1 + groups)):
        monkeypatch.setattr(spans_of_computations, "MOST_BYTES", room)
        some = reader.of_computation(WORKSPACE, trace_id, id)
        assert some.more
        assert least <= len(some.spans) < len(whole.spans)
        assert some.spans[0] == whole.spans[0]
        assert sum(weight(one.attributes or {}) for one in some.spans) <= room + max(sizes)


def test_no_statement_holds_the_spans_of_a_trace_against_each_other(engine: Engine) -> None:
    # PostgreSQL compares each with each where it has not counted them yet: minutes for 80,000.
    said: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *about: said.append(about[2]))
    assert EmbeddedSpans(engine).of_computation("w", "ab" * 16, "c1").spans == ()
    assert [one.count("FROM span") for one in said if "span" in one] == [1, 1]
