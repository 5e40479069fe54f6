"""Very many rows of one subject cost no more than the few that are shown: memory has bounds."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from msgspec.json import encode as encoded
from sqlalchemy import Connection, Engine, event, func, insert, select, text, update
from sqlalchemy.exc import OperationalError

from daskscope.codec import encode
from daskscope.protocol import MAX_WORDS, Activity, Heartbeat, Mismatch, Prices, ProfileLine
from daskscope_service.accounts import device_login, members, sessions, tokens, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.application import close_app, create_app
from daskscope_service.db import schema, time_limit
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.scope import MOST_BYTES, Scope, Selection
from daskscope_service.ingest.correction import MOST_OF_MISMATCHES
from daskscope_service.notifications import due_notices, notifier
from daskscope_service.notifications.wording import MOST_LINES
from daskscope_service.queries import overview, profiles
from daskscope_service.queries.activities import MOST_PREFIXES
from daskscope_service.queries.computations import MOST_FAILURES, MOST_GROUPS
from daskscope_service.queries.evidence import of_computation
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_profile,
    make_status,
    make_task_group,
    make_worker_loss,
)
from tests.service.conftest import NewDatabase
from tests.service.pages import words

#: Sends a beat to the test's workspace.
Send = Callable[[Heartbeat], None]


@pytest.fixture
def app(tmp_path: Path, new_database: NewDatabase) -> Iterator[Flask]:
    chosen = Settings(data_dir=tmp_path, database_url=new_database())
    if not chosen.database_url:
        sqlite_template.copy_to(tmp_path)
    app = create_app(chosen)
    yield app
    close_app(app)


@pytest.fixture
def engine(app: Flask) -> Engine:
    return services(app).engine


@pytest.fixture
def workspace(engine: Engine) -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(app: Flask, engine: Engine, workspace: str) -> FlaskClient:
    """An owner's browser."""
    client = app.test_client()
    with writing(engine) as connection:
        client.set_cookie(
            sessions.COOKIE, sessions.start(connection, workspace=workspace, role="owner")
        )
    return client


@pytest.fixture
def send(app: Flask, engine: Engine, workspace: str) -> Send:
    """Send a beat to the workspace."""
    token = tokens.create(engine, workspace=workspace, label="test", scopes=["ingest"])

    def send(beat: Heartbeat) -> None:
        answer = app.test_client().post(
            "/api/v1/heartbeats", data=encode(beat), headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 200, answer.text

    return send


def test_of_very_many_groups_and_failures_the_first_are_read_and_the_answer_says_so(
    app: Flask, engine: Engine, client: FlaskClient, workspace: str, send: Send
) -> None:
    cluster = make_cluster("c")
    group = make_task_group(name="a")
    send(make_beat(cluster, computations=(make_computation(),), task_groups=(group,)))
    where = "/clusters/c/computations/c1"
    told = client.get(f"/api/v1{where}").json
    assert told is not None
    assert (told["more_task_groups"], told["more_failures"]) == (False, False)
    assert "There are more" not in client.get(where).text

    groups = tuple(
        make_task_group(name=f"b{n:04}", dependencies=(), durations=()) for n in range(MOST_GROUPS)
    )
    failures = tuple(
        make_failure(fingerprint=f"1:{n:04}", message=None, traceback=None)
        for n in range(MOST_FAILURES + 1)
    )
    prefixes = tuple(Activity(f"p{n:04}", {"executor": 1.0}) for n in range(MOST_PREFIXES + 1))
    send(make_beat(cluster, 2, task_groups=groups, failures=failures, activities=prefixes))
    told = client.get(f"/api/v1{where}").json
    assert told is not None
    assert len(told["task_groups"]) == MOST_GROUPS
    assert len(told["failures"]) == MOST_FAILURES
    assert (told["more_task_groups"], told["more_failures"]) == (True, True)
    page = words(client.get(where).text)
    assert f"There are more; only {MOST_GROUPS:,} are shown." in page
    assert f"There are more; only {MOST_FAILURES:,} are shown." in page
    told = client.get("/api/v1/clusters/c").json
    assert told is not None
    assert len(told["activities"]) == MOST_PREFIXES
    # What findings are made of, in the background and each minute.
    with engine.connect() as connection:
        found = of_computation(
            Scope(connection, workspace, 0.0, 60.0), services(app).series, "c", "c1"
        )
    assert found is not None
    assert found.run is not None
    assert (len(found.run.groups), len(found.run.failures)) == (MOST_GROUPS, MOST_FAILURES)


def test_of_very_many_notices_only_those_that_are_shown_are_read(
    engine: Engine, workspace: str, send: Send
) -> None:
    target = {
        "workspace": workspace, "id": "t", "name": "t", "address": "json://x",
        "kinds": ["worker lost"], "told_until": 0.0, "next_at": 0.0, "changed_at": 0.0,
        "changed_by": "x",
    }  # fmt: skip
    with writing(engine) as connection:
        connection.execute(insert(schema.notification_target).values(target))
    lost = tuple(make_worker_loss(id=f"w{n}") for n in range(5 * MOST_LINES))
    send(make_beat(make_cluster("c"), worker_losses=lost))
    with writing(engine) as connection:
        connection.execute(update(schema.notice).values(found_at=1.0))
    claimed = notifier._claim(engine, workspace, "t")
    assert claimed is not None
    assert len(claimed.notices) == MOST_LINES
    assert claimed.counts == {"worker lost": 5 * MOST_LINES}


def test_notices_are_counted_while_others_can_write(
    engine: Engine, workspace: str, send: Send
) -> None:
    with writing(engine) as connection:
        connection.execute(
            insert(schema.notification_target).values(
                workspace=workspace, id="t", name="t", address="json://x", kinds=["worker lost"],
                told_until=0.0, next_at=0.0, changed_at=0.0, changed_by="x",
            )
        )  # fmt: skip
    send(make_beat(make_cluster("c"), worker_losses=(make_worker_loss(),)))
    with writing(engine) as connection:
        connection.execute(update(schema.notice).values(found_at=1.0))
    read_in: list[bool] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Connection, _c: object, statement: str, *_: object) -> None:
        if "FROM notice" in statement:
            read_in.append(connection.get_execution_options().get("daskscope_writes", False))

    assert notifier._claim(engine, workspace, "t") is not None
    assert read_in == [False, False]
    assert notifier._claim(engine, workspace, "t") is None  # it is this one's for a while


def test_old_notices_are_forgotten_some_at_a_time(
    engine: Engine, workspace: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "_TOGETHER", 3)
    lost = tuple(make_worker_loss(id=f"w{n}") for n in range(10))
    send(make_beat(make_cluster("c"), worker_losses=lost))
    with writing(engine) as connection:
        old = schema.notice.c.id.not_like("%:w0")
        connection.execute(update(schema.notice).where(old).values(found_at=1.0))
    forgotten: list[int] = []

    @event.listens_for(engine, "after_cursor_execute")
    def note(_c: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM notice"):
            forgotten.append(cursor.rowcount)

    notifier.delete_old_notices(engine)
    assert forgotten == [3, 3, 3]
    with engine.connect() as connection:
        left = connection.execute(select_in(workspace, schema.notice, schema.notice.c.id)).scalars()
        assert list(left) == ["worker lost:c:w0"]


def test_of_very_many_notices_the_overview_counts_the_newest(
    client: FlaskClient, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_COUNTED", 4)
    lost = tuple(make_worker_loss(id=f"w{n}") for n in range(10))
    send(make_beat(make_cluster("c"), worker_losses=lost))
    assert "4 workers were lost" in words(client.get("/").text)


def test_large_rows_are_read_few_at_a_time(client: FlaskClient, send: Send) -> None:
    log = 100 * ("x" * MAX_WORDS,)
    for first in range(0, 40, 8):
        lost = tuple(make_worker_loss(id=f"w{n}", log=log) for n in range(first, first + 8))
        send(make_beat(make_cluster("c"), worker_losses=lost))
    answer = client.get("/api/v1/clusters/c")
    assert len(answer.data) < 2 * MOST_BYTES  # all 40 are four times as much
    assert client.get("/clusters/c/workers-lost.csv").text.count("\r\n") == 1 + 40


def test_mismatches_for_which_there_is_no_room_are_left_out(
    app: Flask, engine: Engine, workspace: str
) -> None:
    token = tokens.create(engine, workspace=workspace, label="test", scopes=["ingest"])
    versions = {f"{n}{'v' * 290}": n for n in range(60)}
    many = tuple(Mismatch(f"p{n}", "1.0", versions, versions) for n in range(60))
    answer = app.test_client().post(
        "/api/v1/heartbeats",
        data=encode(make_beat(make_cluster("c"), status=make_status(mismatches=many))),
        headers={"Authorization": f"Bearer {token}"},
    ).json  # fmt: skip
    assert answer is not None
    [correction] = answer["corrections"]
    assert (correction["field"], correction["left_out"]) == ("$.status.mismatches", True)
    with engine.connect() as connection:
        row = connection.execute(select_in(workspace, schema.cluster)).mappings().one()
    assert 0 < len(row["mismatches"]) < 60
    assert row["mismatches"][0]["package"] == "p0"
    assert len(encoded(row["mismatches"])) <= MOST_OF_MISMATCHES


def test_of_prices_only_those_that_count_are_kept_for_each_day(
    engine: Engine, workspace: str, send: Send
) -> None:
    prices = Prices("EUR", {"thread": 0.5} | {f"{n}{'x' * 290}": 1.0 for n in range(90)})
    send(make_beat(make_cluster("c", prices=prices)))
    with engine.connect() as connection:
        stored = connection.execute(select_in(workspace, schema.usage, schema.usage.c.prices))
        assert stored.scalar_one() == '{"currency":"EUR","per_hour":{"thread":0.5}}'


def test_profiles_of_very_many_lines_are_not_all_read(
    engine: Engine, workspace: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "_MOST_BYTES", 5_000)
    lines = tuple(ProfileLine("/run.py", "f", n, "x" * 100) for n in range(15))
    send(
        make_beat(
            make_cluster("c"),
            profiles=tuple(make_profile(f"p{n}", lines=lines) for n in range(5)),
        )
    )
    with engine.connect() as connection:
        scope = Scope(connection, workspace, 0.0, 60.0)
        found = profiles.newest_profiles(scope, Selection(cluster="c"))
    assert found.more
    assert 0 < len(found.items) < 5


ENDLESS = text("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
               "SELECT count(*) FROM n")  # fmt: skip


def test_what_takes_the_database_too_long_is_given_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.1)
    with time_limit.limited(), engine.connect() as connection:
        with pytest.raises(OperationalError):
            connection.execute(ENDLESS)
        assert time_limit.is_over()
        connection.rollback()
        with pytest.raises(time_limit.TookTooLong):
            connection.execute(select(1))
    with time_limit.limited():
        with time_limit.asking_others():
            while not time_limit.is_over():
                pass
        assert not time_limit.is_over()  # that was no work of the database's
    with engine.connect() as connection:  # the same connection, without a limit
        assert connection.execute(select(1)).scalar_one() == 1


def test_a_page_that_takes_the_database_too_long_says_so(
    client: FlaskClient, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(make_beat(make_cluster("c")))
    monkeypatch.setattr(time_limit, "SECONDS", -1.0)
    answer = client.get("/api/v1/clusters")
    assert answer.status_code == 503
    assert answer.json is not None
    assert answer.json["reason"] == "took too long"
    assert client.get("/clusters").status_code == 503
    spelled = {"REQUEST_METHOD": "get"}
    assert client.get("/api/v1/clusters", environ_overrides=spelled).status_code == 503
    send(make_beat(make_cluster("c"), seq=2))  # what comes in has no such limit


def test_as_many_clusters_as_there_are_may_be_silent(
    engine: Engine, workspace: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_notices, "_AT_ONCE", 3)
    many: list[int] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _k: object, _s: object, parameters: object, *_: object) -> None:
        if isinstance(parameters, tuple | dict):
            many.append(len(parameters))

    for number in range(20):
        send(make_beat(make_cluster(f"c{number}")))
    with writing(engine) as connection:
        last = select(func.max(schema.cluster.c.last_seen_at)).scalar_subquery()
        connection.execute(update(schema.cluster).values(last_seen_at=last - 300.0))
    for _ in range(2):
        many.clear()
        due_notices.store_new_notices(engine, workspace, 60.0, listens=True)
        assert max(many) < 20  # a statement takes some thousand values, and no more
        with engine.connect() as connection:
            query = select_in(workspace, schema.notice, func.count())
            assert connection.execute(query).scalar_one() == 20


def test_of_all_who_invite_at_the_same_moment_no_more_get_in_than_may(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MOST_OPEN", 3)
    monkeypatch.setattr(device_login, "FROM_ADDRESS", 3)
    owner = users.create(engine, name="o", password="x" * 20, workspace="at-once", role="owner")
    caller = Caller(
        name="o", workspace="at-once", role="owner", user=owner.id, by_token=False, address=""
    )

    def invite(number: int) -> bool:
        with contextlib.suppress(members.TooManyOpen):
            return bool(members.invite(engine, caller, f"p{number}", "viewer"))
        return False

    def log_in(number: int) -> bool:
        with contextlib.suppress(TooManyAttempts):
            return bool(device_login.begin(engine, host=f"h{number}", address="192.0.2.9"))
        return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(invite, range(24))) == 3
        assert sum(pool.map(log_in, range(24))) == 3
