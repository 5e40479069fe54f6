"""Several service processes on one PostgreSQL behave as one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
import requests
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from sqlalchemy import func, select

from daskscope.codec import decode_reply
from daskscope.protocol import CodeFrame, Heartbeat
from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from tests.patience import wait_until
from tests.postgresql import PostgresServer
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_event,
    make_failure,
    make_shutdown,
    make_status,
    make_task_group,
    post,
)
from tests.service.people import browser_of, follow, make_user
from tests.service.rows import POINTS
from tests.service.test_otlp import AT, metrics_request
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgresServer
) -> Iterator[tuple[ServiceProcess, ServiceProcess]]:
    """Two processes, started at the same moment on a database that was empty."""
    url = postgresql.url(postgresql.create())
    first, second = (
        ServiceProcess(
            tmp_path_factory.mktemp("service"), database_url=url, code_keys=("c0de" * 16,)
        )
        for _ in range(2)
    )
    with ThreadPoolExecutor() as pool:
        starting = [pool.submit(service.start) for service in (first, second)]
        try:
            for start in starting:
                start.result()
            yield first, second
        finally:
            for service, start in zip((first, second), starting, strict=True):
                if start.exception() is None:
                    service.stop()


@pytest.fixture
def workspace() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


def test_one_of_two_that_start_at_once_makes_the_tables(
    two: tuple[ServiceProcess, ServiceProcess],
) -> None:
    said = ["The database was empty" in service.output for service in two]
    assert sorted(said) == [False, True]


def test_a_token_is_good_and_revoked_at_all_of_them_at_once(
    two: tuple[ServiceProcess, ServiceProcess], workspace: str
) -> None:
    first, second = two
    token = first.token(workspace=workspace)
    assert post(second.url, token, make_beat()).ok
    assert post(first.url, token, make_beat()).ok
    assert tokens.revoke(second.engine, workspace, token.split("_")[1])
    for service in two:
        assert post(service.url, token, make_beat()).status_code == 401


def test_who_signs_in_at_one_is_signed_in_at_the_other_and_signs_out_of_both(
    two: tuple[ServiceProcess, ServiceProcess],
) -> None:
    first, second = two
    with requests.Session() as browser:
        assert follow(first.sign_in_link, browser).ok
        assert browser.get(f"{second.url}/api/v1/clusters", timeout=30).ok
        cookies = dict(browser.cookies)
        assert browser.post(f"{second.url}/sign-out", timeout=30).ok
    answer = requests.get(f"{first.url}/api/v1/clusters", cookies=cookies, timeout=30)
    assert answer.status_code == 401


def test_beats_of_one_cluster_through_both_in_any_order_end_up_the_same(
    two: tuple[ServiceProcess, ServiceProcess], workspace: str
) -> None:
    cluster = make_cluster()
    beats = [beat_of(cluster, seq) for seq in range(1, 31)]
    orders = (beats, beats[::-1])
    sent: list[dict[str, Any]] = []
    for number, (forward, backward) in enumerate((orders, orders[::-1])):
        own = f"{workspace}-{number}"
        token = two[0].token(workspace=own)

        def send(service: ServiceProcess, order: list[Heartbeat], token: str = token) -> None:
            for beat in order:
                answer = post(service.url, token, beat)
                assert answer.ok, answer.text

        # All beats through both, in opposite orders at the same time.
        with ThreadPoolExecutor() as pool:
            sending = [
                pool.submit(send, *each) for each in zip(two, (forward, backward), strict=True)
            ]
        for one in sending:
            one.result()
        sent.append(stored(two[0], own))

    once = f"{workspace}-once"
    token = two[1].token(workspace=once)
    for beat in beats:
        assert post(two[1].url, token, beat).ok
    expected = stored(two[1], once)
    assert len(expected["computation"]) == len(beats) + 1
    assert sent == [expected, expected]


def beat_of(cluster: Any, seq: int) -> Heartbeat:
    """Return a beat of which some rows are in all beats, and some in this one alone."""
    alone = make_computation(f"c{seq}", frames=())
    return make_beat(
        cluster,
        seq,
        status=make_status(at=1000.0 + seq, workers=seq, tasks={"memory": seq}),
        computations=(
            make_computation("all", completed=seq, started_at=cluster.started_at, frames=()),
            alone,
        ),
        task_groups=(make_task_group("all", "a", completed=seq), make_task_group("all", "b")),
        failures=(make_failure(computation="all", count=seq),),
        events=(make_event(id=f"e{seq}"),),
    )


#: Columns that differ between two workspaces that got the same.
_BY_THE_CLOCK = ("workspace", "first_seen_at", "last_seen_at", "token", "judge_at", "job_due_at")


def stored(service: ServiceProcess, workspace: str) -> dict[str, Any]:
    """Return all rows of the workspace but for when and with which token they came.

    When their findings are to be made is by the service's clock, too.
    """
    found = {}
    for name in ("cluster", "computation", "task_group", "failure", "event"):
        table = schema.metadata.tables[name]
        columns = [column for column in table.columns if column.name not in _BY_THE_CLOCK]
        query = select(*columns).where(table.c.workspace == workspace)
        with service.engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        # A row that is in each beat says nothing of the others: seq is that of the last one.
        found[name] = sorted(rows, key=lambda row: [str(value) for value in row.values()])
    return found


def test_code_that_one_was_sent_no_other_asks_for(
    two: tuple[ServiceProcess, ServiceProcess], workspace: str
) -> None:
    token = two[0].token(workspace=workspace)
    code = make_code(text=f"uuid = '{uuid.uuid4()}'\n")
    named = (make_computation(frames=(CodeFrame(code.file, 12, code.hash),)),)
    first = post(two[0].url, token, make_beat(computations=named))
    assert decode_reply(first.content).code_wanted == (code.hash,)
    assert post(two[1].url, token, make_beat(computations=named, code=(code,))).ok
    again = post(two[0].url, token, make_beat(computations=named))
    assert decode_reply(again.content).code_wanted == ()


def test_what_is_asked_of_a_cluster_at_one_is_handed_over_by_the_other(
    two: tuple[ServiceProcess, ServiceProcess], workspace: str
) -> None:
    first, second = two
    token, cluster = first.token(workspace=workspace), make_cluster()
    owner = make_user(first, {workspace: "owner"})
    browser, beats = browser_of(second, owner.name), count(1)

    def beat(service: ServiceProcess, **fields: Any) -> list[tuple[str, str]]:
        answer = post(service.url, token, make_beat(cluster, next(beats), **fields))
        commands = decode_reply(answer.content).commands
        return [(command.action, command.id) for command in commands]

    def beat_until_asked(service: ServiceProcess) -> list[tuple[str, str]]:
        return wait_until(lambda: beat(service), what="a command")

    def ask(path: str, **body: Any) -> requests.Response:
        return browser.post(f"{second.url}/api/v1/commands{path}", json=body, timeout=30)

    assert beat(first) == beat(second) == []
    # Of many who press the button at once, at both, one shutdown comes.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask("", cluster=cluster.id), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    (command,) = {answer.json()["id"] for answer in answers}
    assert beat_until_asked(first) == [("shutdown", command)]
    assert beat_until_asked(second) == [("shutdown", command)]
    assert ask(f"/{command}/call-off").ok
    assert beat(first) == beat(second) == [("call off", command)]
    row = make_shutdown(id=command, state="called off", closes_at=None)
    assert beat(first, shutdowns=(row,)) == []
    assert beat(second) == []


def test_points_of_one_series_through_both_are_one_line(
    two: tuple[ServiceProcess, ServiceProcess], workspace: str
) -> None:
    token = two[0].token(workspace=workspace)

    def send(number: int) -> int:
        metric = Metric(name="m")
        for series in range(20):
            # Both meet the series for the first time, in opposite orders.
            key = series if number % 2 else 19 - series
            point = metric.gauge.data_points.add(
                time_unix_nano=AT + (number + 1) * 10**9, as_double=1.0
            )
            point.attributes.add(key="k").value.string_value = str(key)
        return requests.post(
            f"{two[number % 2].url}/v1/metrics",
            data=metrics_request(metric).SerializeToString(),
            headers={
                "Content-Type": "application/x-protobuf",
                "Authorization": f"Bearer {token}",
            },
            timeout=30,
        ).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(16))) == {200}
    table, point = schema.series, POINTS
    with two[0].engine.connect() as connection:
        counts = connection.execute(
            select(table.c.id, func.count())
            .join(point, point.c.series == table.c.id)
            .where(table.c.workspace == workspace)
            .group_by(table.c.id)
        ).all()
    assert [count for _, count in counts] == [16] * 20
