"""Whatever clusters sent, every page, file and list answers.

All addresses are those of the application's own map of routes, and what its pages link to.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from sqlalchemy import Engine, event, select, update

from daskscope import names
from daskscope.codec import encode
from daskscope.protocol import MAX_AMOUNT, MAX_COUNT, MAX_ENTRIES, Heartbeat, Prices
from daskscope_service.accounts import sessions, tokens
from daskscope_service.application import close_app, create_app
from daskscope_service.costs.usage_totals import sum_up
from daskscope_service.db import engine as database
from daskscope_service.db import schema
from daskscope_service.db.engine import upgrade_database, writing
from daskscope_service.db.rows import select_in
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.ingest import heartbeat
from daskscope_service.ingest.correction import Corrected
from daskscope_service.jobs.namer import Namer
from daskscope_service.notifications import due_notices
from daskscope_service.periodic import Lease
from daskscope_service.queries.cluster_filter import SORTS
from daskscope_service.queries.computation_filter import STATUSES
from daskscope_service.retention.rounds import run_round
from daskscope_service.retention.throttle import Throttle
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.telemetry.store import SeriesStore
from tests.patience import PATIENCE, wait_until
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_profile,
    make_status,
    make_task_group,
)
from tests.service.conftest import NewDatabase
from tests.service.extreme_telemetry import (
    REQUESTS,
    extremes_of_telemetry,
    full_telemetry,
    telemetry,
)
from tests.service.extremes import (
    CLUSTERS,
    COMPUTATIONS,
    FINGERPRINT,
    PROFILE,
    Extreme,
    beats,
    extremes_of,
    in_groups,
)
from tests.service.pages import words

#: Addresses that tell nothing of what clusters sent, and change who is signed in or ask elsewhere.
_ELSEWHERE = ("/static", "/sign-", "/activate", "/invitation", "/api/v1/openapi.json", "/metrics")

#: The most that pages link to and is asked for, of one example.
_MOST_LINKS = 40

#: It would hide what failed.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

examples = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],  # to find a smaller example would take minutes
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Flask]:
    chosen = Settings(data_dir=Path(tmp_path_factory.mktemp("data")), database_url=new_database())
    with pytest.MonkeyPatch.context() as patch:
        # Reports wait so long for SQLite's write lock; the disk of a busy machine may take longer.
        patch.setattr(database, "_BUSY_SECONDS", PATIENCE)
        upgrade_database(chosen)
        app = create_app(chosen)
    yield app
    close_app(app)


def sign_in(engine: Engine, client: FlaskClient, workspace: str) -> None:
    """Make ``client`` an owner's browser."""
    with writing(engine) as connection:
        session = sessions.start(connection, workspace=workspace, role="owner")
    client.set_cookie(sessions.COOKIE, session)
    assert client.get("/settings/workspace").status_code == 200


def sent(app: Flask, *some: Heartbeat, bodies: Mapping[str, bytes]) -> FlaskClient:
    """Send ``some`` beats, and OTLP ``bodies`` by their address, to a workspace of its own.

    Return who is signed in there.
    """
    engine = services(app).engine
    workspace = f"w-{uuid.uuid4().hex[:8]}"
    token = tokens.create(engine, workspace=workspace, label="test", scopes=["ingest"])
    client = app.test_client()
    for beat in some:
        answer = client.post(
            "/api/v1/heartbeats",
            data=encode(beat),
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200, answer.text
    for path, body in bodies.items():
        answer = client.post(
            path,
            data=body,
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/x-protobuf",
            },
        )
        assert answer.status_code == 200, answer.data
    if bodies:
        with engine.connect() as connection:
            found = connection.execute(select_in(workspace, schema.series, schema.series.c.id))
            assert len(found.all()) >= len(names.METRICS)
    sign_in(engine, client, workspace)
    return client


def addresses(app: Flask) -> Iterator[str]:
    """Return the address of everything that can be read."""
    values: dict[str, Any] = {
        "cluster_id": CLUSTERS[0],
        "computation_id": COMPUTATIONS[0],
        "fingerprint": FINGERPRINT,
        "profile_id": PROFILE,
    }
    with app.test_request_context():
        for rule in app.url_map.iter_rules():
            if "GET" in (rule.methods or ()) and not rule.rule.startswith(_ELSEWHERE):
                yield app.url_for(
                    rule.endpoint, **{name: values.get(name, "x") for name in rule.arguments}
                )


def pages_of(beat: Heartbeat) -> list[str]:
    """Return the addresses of the pages that show a beat's cluster and its computations."""
    page = f"/clusters/{quote(beat.cluster.id, safe='')}"
    runs = (f"{page}/computations/{quote(run.id, safe='')}" for run in beat.computations)
    return [page, *runs, f"{page}/stream", f"{page}/stream.json"]


def links(page: str) -> Iterator[str]:
    """Return what a page links to by other parameters of an address: orders, times, next pages."""
    for found in re.findall(r'href="(/[^"#]*\?[^"#]*)', page):
        if not found.startswith(_ELSEWHERE):
            yield unescape(found)


def broken(app: Flask, client: FlaskClient) -> list[str]:
    """Return what does not answer."""
    wrong: list[str] = []
    linked: dict[str, str] = {}
    for one in addresses(app):
        answer = client.get(one)
        if answer.status_code >= 500:
            wrong.append(f"{one}: {answer.status_code}")
        if answer.mimetype == "text/html":
            for link in links(answer.text):
                # One of each kind: by its path and the names of its parameters.
                linked.setdefault(re.sub(r"=[^&]{9,}", "=", link), link)
    for link in list(linked.values())[:_MOST_LINKS]:
        answer = client.get(link)
        if answer.status_code >= 500:
            wrong.append(f"{link}: {answer.status_code}")
    return wrong


Bodies = Mapping[str, bytes]


def check_sent(app: Flask, first: Heartbeat, second: Heartbeat, bodies: Bodies) -> None:
    assert broken(app, sent(app, first, second, bodies=bodies)) == []


def check_stored_before(
    app: Flask,
    monkeypatch: pytest.MonkeyPatch,
    first: Heartbeat,
    second: Heartbeat,
    bodies: Bodies,
) -> None:
    by_body = {encode(beat): beat for beat in (first, second)}
    with monkeypatch.context() as patch:
        patch.setattr(heartbeat, "parse", lambda body, now, **_: Corrected(by_body[body]))
        client = sent(app, first, second, bodies=bodies)
    assert broken(app, client) == []


@settings(examples, max_examples=2)
@given(first=beats(), second=beats(), bodies=telemetry())
def test_every_page_answers_whatever_clusters_send(
    app: Flask, first: Heartbeat, second: Heartbeat, bodies: Bodies
) -> None:
    check_sent(app, first, second, bodies)


@settings(examples, max_examples=2)
@given(first=beats(wide=True), second=beats(wide=True), bodies=telemetry())
def test_every_page_answers_whatever_was_stored_before_there_were_bounds(
    app: Flask, monkeypatch: pytest.MonkeyPatch, first: Heartbeat, second: Heartbeat, bodies: Bodies
) -> None:
    check_stored_before(app, monkeypatch, first, second, bodies)


def base(n: int) -> Heartbeat:
    """Return a full beat of a cluster of its own, whose computation has passed."""
    id, began = f"run-{n}", time.time() - 7200 + n
    beat = full_beat(make_cluster(f"cluster-{n}", prices=Prices("USD", {"thread": 0.06})))
    [run], groups = beat.computations, beat.task_groups
    run = dataclasses.replace(
        run,
        id=id,
        status="finished",
        started_at=began,
        began_at=began + 1,
        mostly_done_at=began + 9,
        ended_at=began + 10,
        stopped_at=began + 10,
        completed=100,
        erred=0,
        states={"memory": 100},
        annotations={"job": f"job {n // 100}"},
    )
    return dataclasses.replace(
        beat,
        computations=(run,),
        task_groups=tuple(dataclasses.replace(one, computation=id) for one in groups),
    )


def not_finite(value: Any) -> bool:
    """Return whether a number in a value of a row is infinite or none."""
    if isinstance(value, Mapping):
        return any(map(not_finite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(not_finite, value))
    return isinstance(value, float) and not math.isfinite(value)


def rows_not_finite(engine: Engine) -> set[str]:
    """Return what the service itself stored with such numbers."""
    with engine.connect() as connection:
        return {
            f"{table.name}: {dict(row)}"
            for table in (schema.job, schema.finding, schema.usage_sum, schema.notice)
            for row in connection.execute(select(table)).mappings()
            if not_finite(dict(row))
        }


def refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


Groups = Sequence[Sequence[Extreme]]


def check_in_groups(groups: Groups, wrong_with: Callable[[Groups], list[str]]) -> None:
    """Check all that is shown with a cluster for each group of extremes.

    Of what fails, find the group, and then the fields, by halves.
    """
    wrong = wrong_with(groups)
    if wrong:
        [group] = smallest(groups, wrong_with)
        fields = smallest(group, lambda some: wrong_with([some]))
        pytest.fail(f"{wrong[:20]}\nfor one, with {[(one.field, one.what) for one in fields]}")


def smallest(some: Sequence[Any], fails: Callable[[Sequence[Any]], Any]) -> Sequence[Any]:
    """Return some of ``some`` that fail, of which half would not."""
    for half in (some[: len(some) // 2], some[len(some) // 2 :]):
        if half and len(half) < len(some) and fails(half):
            return smallest(half, fails)
    return some


def wrong_with_beats(app: Flask, caplog: pytest.LogCaptureFixture, groups: Groups) -> list[str]:
    """Return what is wrong in a workspace that has a beat for each group of extremes."""
    caplog.clear()
    beats = [
        functools.reduce(lambda beat, one: one.change(beat), group, base(n))
        for n, group in enumerate(groups)
    ]
    usual = len(groups)
    opened, series = services(app).engine, services(app).series
    before = rows_not_finite(opened)
    client = sent(app, base(usual), *beats, bodies={})
    work(opened, series)
    wrong = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    wrong += rows_not_finite(opened) - before
    jobs: Any = client.get("/api/v1/jobs?limit=1000").json
    asked = ["/jobs", "/jobs?sort=cost", "/jobs.csv", "/api/v1/jobs?sort=cost"]
    for job in jobs["items"]:
        id = job["id"]
        asked += [f"/jobs/{id}", f"/jobs/{id}?measure=cost", f"/api/v1/jobs/{id}"]
        asked += [f"/api/v1/runs/{id}"]
    for beat in beats:
        asked += pages_of(beat)
        asked += [f"/comparisons?a=run-{usual}&b={run.id}" for run in beat.computations]
    for one in asked:
        answer = client.get(one)
        if answer.status_code != 200:
            wrong.append(f"{one}: {answer.status_code}")
        elif answer.mimetype == "application/json":
            json.loads(answer.text, parse_constant=refused)
    # Whatever else is there, each list shows it beside all of the others.
    wrong += broken(app, client)
    runs = sum(job["runs"] for job in jobs["items"])
    if runs <= 0.9 * usual:
        wrong.append(f"only {runs} of them are runs of jobs")
    lease = Lease(opened, "test")
    assert lease.take()
    run_round(opened, lease, Throttle(1.0))
    lease.give_back(done=True)
    return wrong


def test_next_to_nothing_in_some_fields_spoils_no_page_nor_work_in_the_background(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    extremes = [one for one in extremes_of(base(0)) if one.what == "5e-324"]
    check_in_groups(
        in_groups(extremes, most=8, times=2), functools.partial(wrong_with_beats, app, caplog)
    )


@pytest.mark.slow
def test_no_values_of_some_fields_spoil_a_page_or_work_in_the_background(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    if services(app).engine.dialect.name == "sqlite":
        pytest.skip("PostgreSQL is the one that refuses numbers, and this takes long")
    check_in_groups(
        in_groups([*extremes_of(base(0))], most=12, times=2),
        functools.partial(wrong_with_beats, app, caplog),
    )


def traced(beat: Heartbeat) -> Heartbeat:
    """Return it with a trace of its computation, whose span is found by the computation's id."""
    [run] = beat.computations
    run = dataclasses.replace(run, id=uuid.uuid4().hex, trace_id=uuid.uuid4().hex)
    groups = (dataclasses.replace(one, computation=run.id) for one in beat.task_groups)
    return dataclasses.replace(beat, computations=(run,), task_groups=tuple(groups))


def wrong_with_telemetry(app: Flask, groups: Groups) -> list[str]:
    """Return what does not answer where each group of extremes of OTLP has a cluster of its own."""
    beats = [traced(base(n)) for n in range(len(groups))]
    bodies: dict[str, Message] = {path: kind() for path, kind in REQUESTS.items()}
    asked: list[str] = []
    for beat, group in zip(beats, groups, strict=True):
        cluster, run = beat.cluster.id, beat.computations[0].id
        usual = full_telemetry(cluster, run, bytes.fromhex(beat.computations[0].trace_id or ""))
        changed = functools.reduce(lambda bodies, one: one.change(bodies), group, usual)
        for path, body in changed.items():
            bodies[path].MergeFrom(body)
        page = f"/clusters/{cluster}"
        asked += [*pages_of(beat), f"{page}/charts", f"/api/v1{page}/computations/{run}/trace"]
    sent_bodies = {path: body.SerializeToString() for path, body in bodies.items()}
    client = sent(app, *beats, bodies=sent_bodies)
    answers = ((one, client.get(one).status_code) for one in asked)
    wrong = [f"{one}: {code}" for one, code in answers if code >= 500]
    return wrong + broken(app, client)


@pytest.mark.slow
def test_no_values_of_some_fields_of_otlp_spoil_a_page(app: Flask) -> None:
    extremes = [*extremes_of_telemetry(full_telemetry("a cluster", "0" * 32, b"t" * 16))]
    # Without a part, none of the values in it is seen: those are in groups of their own.
    without, others = (
        [one for one in extremes if (one.what == "none") == is_none] for is_none in (True, False)
    )
    groups = [*in_groups(without, most=400, times=1), *in_groups(others, most=400, times=1)]
    check_in_groups(groups, functools.partial(wrong_with_telemetry, app))


def test_attributes_of_any_kind_are_shown(app: Flask) -> None:
    usual = full_telemetry("a cluster", "0" * 32, b"t" * 16)
    values = [
        one
        for one in extremes_of_telemetry(usual)
        if "].value." in one.field and names.COMPUTATION_ID not in one.field
    ]
    groups = [
        [one for one in values if one.field.endswith(kind) and one.what == what]
        for kind, what in (
            ("double_value", "1e+30"),
            ("bool_value", "True"),
            ("kvlist_value", "empty"),
            ("array_value", "empty"),
        )
    ]
    assert all(groups)
    assert wrong_with_telemetry(app, groups) == []


def work(engine: Engine, series: SeriesStore) -> None:
    """Do what services do in the background."""
    namer, evaluator = Namer(engine, 60.0), Evaluator(engine, series, 60.0, lambda: False)
    table = schema.computation

    def is_done() -> bool:
        namer.round()
        evaluator.round()
        soon = time.time() - 1
        due = select(table.c.id).where((table.c.job_due_at < soon) | (table.c.judge_at < soon))
        jobs = select(schema.job.c.id).where(schema.job.c.due_at < soon)
        with engine.connect() as connection:
            return not [*connection.execute(due), *connection.execute(jobs)]

    assert wait_until(is_done, what="the end of what is due", seconds=240)
    sum_up(engine)
    with engine.connect() as connection:
        workspaces = connection.execute(select(schema.workspace.c.id)).scalars().all()
    for name in workspaces:
        due_notices.store_new_notices(engine, name, 60.0, listens=True)


def test_the_overview_compares_counts_of_any_size(app: Flask) -> None:
    cluster = make_cluster(id=CLUSTERS[0])
    beat = make_beat(cluster, status=make_status(held_by={"unrunnable": MAX_COUNT}))
    client = sent(app, beat, bodies={})
    assert client.get("/").status_code == 200


def test_threads_time_of_next_to_nothing_spoils_no_comparison_and_no_cost(app: Flask) -> None:
    now, almost_none = time.time(), {"busy": 5e-324}
    when: dict[str, Any] = {"started_at": now - 100, "stopped_at": now - 50}
    runs = tuple(
        make_computation(
            f"next-to-nothing-{n}", status="finished", worker_seconds=almost_none, **when
        )
        for n in range(2)
    )
    groups = tuple(
        make_task_group(run.id, tokenized=True, completed=100, seconds={"compute": 1e12}, **when)
        for run in runs
    )
    beat = make_beat(
        make_cluster(prices=Prices("USD", {"thread": 1.0})),
        status=make_status(cost=1e12, worker_seconds=almost_none),
        computations=runs,
        task_groups=groups,
    )
    opened = services(app).engine
    client = sent(app, beat, bodies={})
    work(opened, services(app).series)
    costs = select(schema.group_run.c.cost).where(
        schema.group_run.c.computation.in_([run.id for run in runs])
    )
    with opened.connect() as connection:
        assert connection.execute(costs).scalars().all() == [1e12, 1e12]
    answer = client.get(f"/comparisons?a={runs[0].id}&b={runs[1].id}")
    assert answer.status_code == 200


def test_times_of_next_to_nothing_leave_each_order_of_the_clusters(app: Flask) -> None:
    # PostgreSQL calls a product or a quotient that is too small, or too large, an error.
    next_to_nothing = {"busy": 5e-324, "idle": 1e-300, "paused": 0.0}
    for id, seconds in zip(CLUSTERS, (next_to_nothing, {"idle": 1e15}), strict=False):
        status = make_status(worker_seconds=seconds, gib_seconds=5e-324)
        client = sent(app, make_beat(make_cluster(id), status=status), bodies={})
        for order in SORTS:
            assert client.get(f"/clusters?sort={order}").status_code == 200, order


@pytest.mark.parametrize("seconds", [5e-324, 1e12])
def test_counts_and_times_of_any_size_leave_each_list_of_the_computations(
    app: Flask, seconds: float
) -> None:
    counts = {
        "tasks": MAX_COUNT,
        "completed": MAX_COUNT,
        "erred": MAX_COUNT,
        "cancelled": MAX_COUNT,
    }
    states = dict.fromkeys(("memory", "erred", "released", "forgotten"), MAX_COUNT)
    for id, stopped_at in zip(CLUSTERS, (None, 1_800_000_000.0), strict=False):
        beat = make_beat(
            make_cluster(id),
            status=make_status(stopped_at=stopped_at),
            computations=[make_computation(f"{id}-c", frames=(), states=states, **counts)],
            task_groups=[
                make_task_group(f"{id}-c", name, prefix="load", seconds={"compute": seconds})
                for name in ("load-1", "load-2")
            ],
        )
        client = sent(app, beat, bodies={})
    for chosen in ("sort=status", *(f"status={one}" for one in STATUSES)):
        assert client.get(f"/computations?{chosen}").status_code == 200, chosen
    assert "tasks of load" in client.get("/computations").text


@pytest.mark.parametrize(
    ("count", "said"),
    [(MAX_COUNT, f"more than {MAX_COUNT:,}"), (MAX_COUNT // 2, f"{MAX_COUNT:,}")],
)
def test_sums_are_right_or_said_to_be_too_large(app: Flask, count: int, said: str) -> None:
    beats = [
        make_beat(make_cluster(id), failures=[make_failure(count=count)]) for id in CLUSTERS[:2]
    ]
    client = sent(app, *beats, bodies={})
    listed: Any = client.get("/api/v1/exceptions").json
    assert listed["items"][0]["count"] == 2 * count
    assert f",{2 * count}," in client.get("/exceptions.csv").text
    for path in ("/exceptions", f"/exceptions/{beats[0].failures[0].fingerprint}"):
        page = words(client.get(path).text)
        assert said in page
        assert ("more than" in page) == (count == MAX_COUNT)


@pytest.mark.parametrize(
    ("count", "said"),
    [(MAX_COUNT, f"more than {MAX_COUNT:,}"), (MAX_COUNT // 2 - 1, f"{MAX_COUNT - 2:,}")],
)
def test_sums_of_workers_and_threads_are_right_or_said_to_be_too_large(
    app: Flask, count: int, said: str
) -> None:
    status = make_status(workers=count, threads=count)
    beats = [make_beat(make_cluster(id), status=status) for id in CLUSTERS[:2]]
    page = words(sent(app, *beats, bodies={}).get("/").text)
    assert f"with {said} workers and {said} threads." in page


@pytest.mark.parametrize(("bytes", "said"), [(MAX_COUNT, "16 PiB"), (2**40 + 2**38, "2.5 TiB")])
def test_sums_of_tasks_and_bytes_are_right(app: Flask, bytes: int, said: str) -> None:
    states = {"processing": MAX_COUNT, "memory": MAX_COUNT}
    groups = [
        make_task_group(f"{CLUSTERS[0]}-c", name, tasks=MAX_COUNT, output_bytes=bytes, states={})
        for name in ("sum-1", "sum-2")
    ]
    run = make_computation(f"{CLUSTERS[0]}-c", tasks=MAX_COUNT, states=states, frames=())
    beat = make_beat(make_cluster(CLUSTERS[0]), computations=[run], task_groups=groups)
    client = sent(app, beat, bodies={})
    page = words(client.get(f"/clusters/{CLUSTERS[0]}/computations/{run.id}").text)
    assert f"{said}" in page
    answer: Any = client.get(f"/api/v1/clusters/{CLUSTERS[0]}/computations/{run.id}").json
    assert [one["output_bytes"] for one in answer["task_groups"]] == [bytes, bytes]
    assert [one["tasks"] for one in answer["task_groups"]] == [MAX_COUNT, MAX_COUNT]


def test_sums_of_threads_time_and_of_costs_are_right_to_the_cent(app: Flask) -> None:
    amount = MAX_AMOUNT - 0.25
    status = make_status(
        worker_seconds={"busy": amount, "idle": amount}, cost=amount, idle_cost=amount
    )
    prices = Prices("USD", {"thread": 1.0})
    beats = [make_beat(make_cluster(id, prices=prices), status=status) for id in CLUSTERS[:2]]
    client = sent(app, *beats, bodies={})
    [used] = client.get("/api/v1/usage?weeks=4").json["items"]  # type: ignore[index]
    assert used["thread_seconds"] == 4 * amount
    assert used["idle_seconds"] == used["cost"] == used["idle_cost"] == 2 * amount
    assert f",{2 * amount}," in client.get("/people.csv?weeks=4").text
    page, overview = (words(client.get(one).text) for one in ("/people?weeks=4", "/"))
    assert "1,999,999,999,999.50" in page
    assert "1,111,111,111 h" in page
    assert "1,999,999,999,999.50 USD</b>, of it 1,999,999,999,999.50 USD idle" in overview
    assert "1,111,111,111 h</b> of threads" in overview


def test_sums_of_costs_beyond_what_is_exact_are_said_to_be_too_large(app: Flask) -> None:
    seconds = {f"state {n}": MAX_AMOUNT for n in range(MAX_ENTRIES)}
    status = make_status(worker_seconds=seconds)
    beats = [make_beat(make_cluster(id), status=status) for id in CLUSTERS[:2]]
    client = sent(app, *beats, bodies={})
    headers = {"Origin": "http://localhost"}
    given = {"source": "workspace", "currency": "USD", "thread": "1000000"}
    assert client.post("/settings/prices", data=given, headers=headers).status_code == 303
    [used] = client.get("/api/v1/usage?weeks=4").json["items"]  # type: ignore[index]
    assert used["thread_seconds"] == 2 * MAX_ENTRIES * MAX_AMOUNT
    cost = used["thread_seconds"] / 3600 * 1e6
    assert used["cost"] == pytest.approx(cost, rel=1e-14)
    too_large = f"more than {MAX_COUNT:,}"
    for one in ("/people?weeks=4", "/", "/clusters", "/settings/prices"):
        page = words(client.get(one).text)
        assert too_large in page, one
        assert f"{cost:,.2f}"[:18] not in page, one


def test_a_profile_that_cannot_be_shown_says_so_and_the_others_are_shown(app: Flask) -> None:
    ids = [uuid.uuid4().hex for _ in range(2)]
    client = sent(app, make_beat(profiles=tuple(map(make_profile, ids))), bodies={})
    assert "cannot be shown" not in client.get("/profile").text
    pages = []
    for id in ids:  # one of them, then both are as they were stored before there were bounds
        with writing(services(app).engine) as connection:
            profile = schema.profile
            connection.execute(update(profile).where(profile.c.id == id).values(parent=[5]))
        pages.append(words(client.get("/profile").text))
    assert "1 profile cannot be shown: the calls in it do not make a tree." in pages[0]
    assert "1 profile of 1 cluster" in pages[0]
    assert "2 profiles cannot be shown: the calls in them do not make a tree." in pages[1]


def test_nothing_that_is_for_signed_in_people_is_kept_by_browsers_or_proxies(app: Flask) -> None:
    beat = make_beat(
        make_cluster(CLUSTERS[0]),
        computations=(make_computation(COMPUTATIONS[0]),),
        failures=(make_failure(fingerprint=FINGERPRINT),),
        profiles=(make_profile(PROFILE),),
    )
    client = sent(app, beat, bodies={})
    asked = 0
    for one in addresses(app):
        answer = client.get(one)
        allowed = {"private, no-store", "no-store"}
        if one.startswith("/api/"):
            allowed.add("private, no-cache")  # kept by this browser, and asked for anew
        assert answer.headers["Cache-Control"] in allowed, one
        asked += answer.status_code == 200
    assert asked > 40


@pytest.mark.parametrize("character", ["x", "_", "%"])
def test_texts_of_any_length_can_be_looked_for(app: Flask, character: str) -> None:
    client = sent(app, make_beat(make_cluster(CLUSTERS[0])), bodies={})
    text = character * 55_000  # as many as a request has room for
    for path, filters in {
        "/clusters": ("name", "kind", "tag", "user"),
        "/clusters.csv": ("name", "tag"),
        "/computations": ("user", "cluster"),
        "/exceptions": ("user", "cluster"),
        "/events": ("topic", "cluster"),
        "/logs": ("text", "computation"),
        "/jobs": ("user",),
    }.items():
        for name in filters:
            answer = client.get(path, query_string={name: text})
            assert answer.status_code in (200, 400), (path, name, answer.status_code)


def test_only_reports_wait_for_who_writes(app: Flask) -> None:
    opened = services(app).engine
    if opened.dialect.name != "sqlite":
        pytest.skip("PostgreSQL has no lock that only one may hold")

    def hurry(connection: Any, *_: object) -> None:
        connection.execute("PRAGMA busy_timeout=50").close()

    client = sent(app, make_beat(make_cluster(id=CLUSTERS[0])), bodies={})
    event.listen(opened, "checkout", hurry)
    try:
        with writing(opened):
            # They stand in the audit log before they leave.
            assert sorted(broken(app, client)) == [
                f"/api/v1/clusters/{CLUSTERS[0]}/report: 503",
                f"/clusters/{CLUSTERS[0]}/report.html: 503",
            ]
    finally:
        event.remove(opened, "checkout", hurry)
        opened.dispose()  # the connections that hurry


@pytest.mark.slow
@settings(examples, max_examples=4)
@given(first=beats(), second=beats(), bodies=telemetry())
def test_every_page_answers_whatever_clusters_send_at_length(
    app: Flask, first: Heartbeat, second: Heartbeat, bodies: Bodies
) -> None:
    check_sent(app, first, second, bodies)


@pytest.mark.slow
@settings(examples, max_examples=4)
@given(first=beats(wide=True), second=beats(wide=True), bodies=telemetry())
def test_every_page_answers_whatever_was_stored_before_at_length(
    app: Flask, monkeypatch: pytest.MonkeyPatch, first: Heartbeat, second: Heartbeat, bodies: Bodies
) -> None:
    check_stored_before(app, monkeypatch, first, second, bodies)
