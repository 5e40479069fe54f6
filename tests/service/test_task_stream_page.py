"""The page of a task stream: its table, and what its script asks for."""

from __future__ import annotations

import html
import re
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import requests

from daskscope.codec import unpack_columns
from daskscope.protocol import STREAM_UNIT, WorkerShare
from daskscope_service.db import schema
from daskscope_service.pages import task_stream
from tests.insight.constructed import runs
from tests.seed_writer import SETTINGS, SeedWriter
from tests.service.beats import make_beat, make_cluster, make_computation, make_task_group, post
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

NOW = time.time()
WORKSPACE = "streams"
WORKERS = ("tcp://10.0.0.1:4000", "tcp://10.0.0.2:4000")
PREFIXES = ("load", "sum")
#: Worker, prefix, outcome, start, length, count, seconds, longest, transfer, disk.
RUNS = (
    (0, 0, 0, 0.0, 0.5, 1, 0.0, 0.0, 0.0, 0.25),
    (0, 0, 1, 1.0, 0.25, 1, 0.0, 0.0, 0.0, 0.0),
    (1, 0, 0, 2.0, 3.0, 1, 0.0, 0.0, 0.5, 0.0),
    (1, 1, 0, 4.0, 2.0, 30, 1.5, 0.125, 0.0, 0.0),
)
BEGAN = -600.0

Ask = Callable[..., requests.Response]


@pytest.fixture(scope="module")
def ask(shared_service: ServiceProcess) -> Ask:
    writer = SeedWriter(WORKSPACE, NOW)
    for name in ("ran", "long", "wide", "named", "never", "off", "old"):
        writer.cluster(name, name=name, user="ada", started=-5000, stopped=-100, workers=2)
    settings = {"off": SETTINGS | {"stream.transmit": "false"}, "old": {"logs.transmit": "true"}}
    for name, values in settings.items():
        writer.rows(schema.cluster, id=name)[0]["settings"] = values
    writer.stream("ran", "s1", BEGAN, WORKERS, PREFIXES, RUNS)
    writer.stream("ran", "s2", BEGAN + 10, WORKERS, PREFIXES, RUNS[:1])
    many = [(i % 2, 0, 0, i * 0.002, 0.0015 + i % 7 / 1e4, 1, 0, 0, 0, 0) for i in range(4000)]
    for part in range(40):
        writer.stream("long", f"s{part:02}", BEGAN + 10 * part, WORKERS, PREFIXES, many)
    # Rows that can hardly be compressed, so that few of them fit into an answer.
    workers = [f"tcp://10.0.0.1:{port}" for port in range(1000)]
    chance = writer.chance.random
    odd = [
        (
            int(1000 * chance()),
            0,
            0,
            9 * chance(),
            6 * chance(),
            1,
            0,
            0,
            6 * chance(),
            6 * chance(),
        )
        for _ in range(4000)
    ]
    for part in range(40):
        writer.stream("wide", f"s{part:02}", BEGAN + 10 * part, workers, PREFIXES, odd)
    # Rows of one run, with as long names as a heartbeat can have.
    for part in range(30):
        names = [f"tcp://{part}-{number}".ljust(4_000, "x") for number in range(75)]
        writer.stream("named", f"s{part:02}", BEGAN + 10 * part, names, PREFIXES, RUNS[:1])
    writer.write(shared_service.engine)
    session = requests.Session()
    form = {"token": shared_service.token(["read"], WORKSPACE)}
    assert session.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok

    def get(cluster: str, end: str = "", status: int = 200, **query: object) -> requests.Response:
        address = f"{shared_service.url}/clusters/{cluster}/stream{end}"
        answer = session.get(address, params={k: str(v) for k, v in query.items()}, timeout=30)
        assert answer.status_code == status, answer.text
        return answer

    return get


def _words(page: str) -> str:
    """Return what a reader sees of a page, or of a part of it."""
    return words(html.unescape(re.sub(r"<[^>]*>", " ", page)))


def _table(page: str) -> dict[tuple[str, str], list[str]]:
    """Return the cells of each worker and prefix."""
    found = {}
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    for row in body.split("<tr>")[1:]:
        cells = [_words(cell) for cell in re.findall(r"<td.*?</td>", row, re.S)]
        found[cells[0].strip(), cells[1].strip()] = [cell.strip() for cell in cells[2:]]
    return found


def test_the_table_adds_up_the_runs_of_each_worker_and_prefix(ask: Ask) -> None:
    page = ask("ran").text
    assert _table(page) == {
        (WORKERS[0], "load"): ["3", "1.2 s", "500 ms", "0 s", "500 ms", "1"],
        (WORKERS[1], "load"): ["1", "3.0 s", "3.0 s", "500 ms", "0 s", "0"],
        (WORKERS[1], "sum"): ["30 30 merged", "1.5 s", "125 ms", "0 s", "0 s", "0"],
    }
    said = _words(page)
    assert "34 task runs on 2 workers computed for 5.8 s; 1 of them failed." in said
    assert "30 runs were merged by the cluster" in said


def test_the_address_chooses_runs_by_time_worker_prefix_and_failure(ask: Ask) -> None:
    def pairs(**query: object) -> dict[tuple[str, str], str]:
        return {pair: cells[0] for pair, cells in _table(ask("ran", **query).text).items()}

    at = NOW + BEGAN
    first, second = ((worker, "load") for worker in WORKERS)
    assert pairs(until=at + 1.5) == {first: "2"}
    assert pairs(since=at + 1.1, until=at + 2.1) == {first: "1", second: "1"}
    assert pairs(worker=WORKERS[1], prefix="load") == {second: "1"}
    assert pairs(failed="yes") == {first: "1"}
    assert pairs(prefix="no-such") == {}
    ask("ran", status=400, failed="no")
    ask("ran", status=400, since=at, until=at - 1)
    ask("ran", status=400, user="ada")


def test_the_script_gets_the_stored_runs_packed(ask: Ask) -> None:
    answer = ask("ran", ".json").json()
    assert answer["workers"] == [*WORKERS]
    assert [name for name, _ in answer["prefixes"]] == [*PREFIXES]
    assert answer["next"] is None
    newest, oldest = answer["rows"]
    assert newest["at"] == pytest.approx(NOW + BEGAN + 10)
    columns = unpack_columns(oldest["columns"])
    got = [sum(columns[3][: n + 1]) * STREAM_UNIT for n in range(len(RUNS))]
    assert got == pytest.approx([run[3] for run in RUNS])
    assert [answer["workers"][oldest["workers"][w]] for w in columns[0]] == [
        WORKERS[run[0]] for run in RUNS
    ]
    before = ask("ran", ".json", since=NOW + BEGAN, until=NOW + BEGAN + 6).json()
    assert [row["id"] for row in before["rows"]] == ["s1"]


@pytest.mark.parametrize(("cluster", "rows"), [("wide", 40), ("named", 30)])
def test_an_answer_to_the_script_is_bounded_and_goes_on(ask: Ask, cluster: str, rows: int) -> None:
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    answers = 0
    while True:
        answer = ask(cluster, ".json", since=NOW - 5000, until=NOW, **cursor)
        assert len(answer.content) < 1.4 * task_stream.MOST_SENT
        found = answer.json()
        seen += [row["id"] for row in found["rows"]]
        answers += 1
        if found["next"] is None:
            break
        cursor = {"cursor": found["next"]}
    assert seen == [f"s{part:02}" for part in reversed(range(rows))]
    assert answers > 1


def test_a_table_reads_few_rows_that_have_long_names(ask: Ask) -> None:
    page = _words(ask("named").text)
    [entries] = re.findall(r"The table has the newest (\d+) entries of this time", page)
    assert 1 < int(entries) < 20


def test_a_table_of_too_much_says_what_it_has(ask: Ask) -> None:
    page = ask("long").text
    assert "The newest 8,000 task runs on 2 workers" in _words(page)
    assert "The table has the newest 8,000 entries of this time" in _words(page)
    assert [cells[0] for cells in _table(page).values()] == ["4,000", "4,000"]


def test_a_prefix_has_the_same_colour_everywhere(ask: Ask) -> None:
    colours = dict(ask("ran", ".json").json()["prefixes"])
    page = html.unescape(ask("ran").text)
    assert all(f'fill="{colours[prefix]}"' in page for prefix in PREFIXES)


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ("never", "No task has run on this cluster."),
        ("off", "its setting daskscope.stream.transmit is off"),
        ("old", "too old to report a task stream"),
    ],
)
def test_a_page_without_runs_says_why(ask: Ask, cluster: str, why: str) -> None:
    assert why in _words(ask(cluster).text)
    assert ask(cluster, ".json").json()["rows"] == []


def test_a_finding_about_a_worker_leads_to_its_runs(
    ask: Ask, shared_service: ServiceProcess
) -> None:
    slow = "tcp://10.0.0.2:4000"
    shares = (
        WorkerShare(slow, 5, 7.5, 0.76, 1.51),
        WorkerShare("tcp://10.0.0.1:4000", 39, 5.9, 6.0, 0.2),
    )
    ran: dict[str, Any] = {"tasks": 120, "completed": 120, "erred": 0, "seconds": {"compute": 25.0}}
    ran["states"] = {"memory": 120}
    when: dict[str, Any] = {"started_at": NOW - 100, "stopped_at": NOW - 92.5}
    where: dict[str, Any] = {"worker_seconds": {"busy": 25.0, "idle": 5.0}, "workers": 4}
    one = make_computation("c", status="finished", worker_shares=shares, **ran, **when, **where)
    durations = runs((115, 0.15), (5, 1.5))
    group = make_task_group("c", longest=1.51, durations=durations, **ran, **when)
    cluster = make_cluster()
    beat = make_beat(cluster, computations=(one,), task_groups=(group,))
    assert post(shared_service.url, shared_service.token(["ingest"], WORKSPACE), beat).ok
    page = html.unescape(ask(cluster.id, "/../computations/c").text)
    finding = page.partition('id="finding-slow-worker"')[2].partition("</li>")[0]
    assert f'href="#worker-{slow}"' in finding
    assert f'id="worker-{slow}"' in page
    (address,) = re.findall(r'href="([^"]*/stream[^"]*)"', finding)
    query = parse_qs(urlparse(address).query)
    assert query["worker"] == [slow]
    since, until = (datetime.fromisoformat(query[name][0]) for name in ("since", "until"))
    assert until - since == pytest.approx(timedelta(seconds=7.6), abs=timedelta(milliseconds=1))


def test_another_workspace_s_stream_is_not_found(ask: Ask, shared_service: ServiceProcess) -> None:
    session = requests.Session()
    form = {"token": shared_service.token(["read"], f"other-{uuid.uuid4().hex}")}
    assert session.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok
    for end in ("", ".json"):
        answer = session.get(f"{shared_service.url}/clusters/ran/stream{end}", timeout=30)
        assert answer.status_code == 404
        assert "10.0.0.1" not in answer.text
