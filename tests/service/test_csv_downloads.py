"""Tables as CSV: all that their pages list, by the same filters, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import time
import tracemalloc
import uuid
from dataclasses import dataclass
from datetime import datetime

import pytest
import requests
from flask import Flask, Response, g
from sqlalchemy import insert, text

from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.web.downloads import csv_answer, lead_on, make_columns
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_computation,
    make_event,
    make_failure,
    post,
)
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


@dataclass(frozen=True)
class Place:
    """A workspace with one cluster that has told all that it can."""

    service: ServiceProcess
    workspace: str
    cluster: str
    token: str
    browser: requests.Session

    def get(self, path: str) -> requests.Response:
        return self.browser.get(f"{self.service.url}{path}", timeout=30)

    def rows(self, path: str) -> list[dict[str, str]]:
        answer = self.get(path)
        assert answer.ok, answer.text
        assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
        return list(csv.DictReader(answer.text.splitlines()))


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    workspace, id = f"tables-{uuid.uuid4().hex}", f"Scheduler-{uuid.uuid4().hex}"
    token = shared_service.token(workspace=workspace)
    assert post(shared_service.url, token, full_beat(make_cluster(id))).ok
    browser = requests.Session()
    browser.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    return Place(shared_service, workspace, id, token, browser)


PAGES = (
    "/clusters",
    "/clusters/{cluster}",
    "/clusters/{cluster}/computations",
    "/clusters/{cluster}/computations/c1",
    "/computations",
    "/exceptions",
    "/exceptions/1:abc",
    "/events",
    "/profile",
    "/people",
    "/settings/tokens",
    "/settings/members",
)


@pytest.mark.parametrize("page", PAGES)
def test_beside_each_table_are_files_that_can_be_had(place: Place, page: str) -> None:
    html = words(place.get(page.format(cluster=place.cluster)).text)
    tables = html.count("<table")
    links = re.findall(r'<p class="downloads.*?</p>', html)
    # The two tables of people are one in a file.
    assert len(links) >= (1 if page == "/people" else tables)
    for address in re.findall(r'href="([^"]*)"', " ".join(links)):
        answer = place.get(address.replace("&amp;", "&"))
        assert answer.ok, (address, answer.text)
        if ".csv" in address:
            assert f"-{place.workspace}" in answer.headers["Content-Disposition"]
            assert len(list(csv.reader(answer.text.splitlines()))) > 1, address
        else:
            assert answer.headers["Content-Type"] == "application/json"


def test_columns_say_their_unit_and_times_are_iso_8601(place: Place) -> None:
    (row,) = place.rows("/computations.csv")
    assert row["call"] == ""  # the code did not arrive
    assert datetime.fromisoformat(row["started_at"]).tzinfo is not None
    assert row["stopped_at"] == ""
    assert (row["compute_seconds"], row["transfer_seconds"]) == ("3.5", "0.25")
    assert row["disk_seconds"] == ""  # not measured is not zero
    assert row["graph_bytes"] == "4096"
    first, *_ = place.rows(f"/clusters/{place.cluster}/computations/c1/task-groups.csv")
    assert first["output_bytes"] == "1000000"
    (lost,) = place.rows(f"/clusters/{place.cluster}/workers-lost.csv")
    assert (lost["lifetime_seconds"], lost["expected"]) == ("33.0", "false")


def test_a_lost_worker_is_shown_with_the_job_that_it_ran_in(place: Place) -> None:
    page = words(place.get(f"/clusters/{place.cluster}").text)
    assert re.search(r'<tr id="w-w1">.*?slurm\.job\.id (<[^>]*>)?4711', page)
    (lost,) = place.rows(f"/clusters/{place.cluster}/workers-lost.csv")
    assert "4711" in lost["deployment"]
    answer = place.get(f"/api/v1/clusters/{place.cluster}").json()
    assert answer["worker_losses"][0]["deployment"] == {"slurm.job.id": "4711"}


def test_filters_are_those_of_the_page(place: Place) -> None:
    other = make_beat(
        make_cluster(),
        computations=(make_computation("c2", user="li"),),
        events=(make_event(id="e2", topic="other"),),
    )
    assert post(place.service.url, place.token, other).ok
    assert len(place.rows("/computations.csv")) == 2
    assert [row["id"] for row in place.rows("/computations.csv?user=li")] == ["c2"]
    assert len(place.rows(f"/computations.csv?cluster={place.cluster}")) == 1
    assert [row["topic"] for row in place.rows("/events.csv?topic=OTHER")] == ["other"]
    assert place.get("/events.csv?topik=x").status_code == 400
    assert place.get("/clusters/nowhere/workers-lost.csv").status_code == 404
    page = place.get("/events?topic=other&limit=1").text
    assert 'href="/events.csv?topic=other"' in page


def test_text_that_would_be_a_formula_is_none(place: Place) -> None:
    beat = make_beat(
        make_cluster(place.cluster),
        2,
        failures=(make_failure(fingerprint="1:def", message="=HYPERLINK(0)", function="@sum"),),
    )
    assert post(place.service.url, place.token, beat).ok
    (row,) = (row for row in place.rows("/exceptions.csv") if row["fingerprint"] == "1:def")
    assert (row["message"], row["function"]) == ("'=HYPERLINK(0)", "'@sum")


def test_what_cannot_be_read_says_so_and_is_not_empty(place: Place) -> None:
    with writing(place.service.engine) as connection:
        connection.execute(
            text("UPDATE failure SET message = :damaged WHERE workspace = :workspace"),
            {"damaged": b"\x01\x00\x00\x00\x00", "workspace": place.workspace},
        )
    (row,) = place.rows("/exceptions.csv")
    assert row["message"].startswith("[cannot be read: it is encrypted with the key 00000000")


def test_a_long_list_says_how_much_of_it_a_file_has_and_where_it_goes_on(place: Place) -> None:
    at = time.time()
    with writing(place.service.engine) as connection:
        connection.execute(
            insert(schema.event),
            [
                {
                    "workspace": place.workspace,
                    "cluster": place.cluster,
                    "id": f"n{number}",
                    "seq": 1,
                    "at": at + number,
                    "topic": "many",
                    "message": "{}",
                    "cut": False,
                    "user": "ada",
                }
                for number in range(10_005)
            ],
        )
    answer = place.get("/events.csv?user=ada")
    assert answer.headers["Content-Disposition"].endswith('-first-10000.csv"')
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert len(rows) == 10_000
    rest = place.rows(answer.links["next"]["url"])
    found = {row["id"] for row in rows} | {row["id"] for row in rest}
    assert len(rest) == 6
    assert len(found) == 10_006


@pytest.mark.parametrize(("length", "leads_on"), [(1_500, True), (2_000, False)])
def test_an_answer_has_no_header_that_proxies_refuse(length: int, leads_on: bool) -> None:
    app, response = Flask(__name__), Response()
    with app.test_request_context(f"/events.csv?topic={'x' * length}"):
        lead_on(response, (1.0, "c1", "n1"))
    assert ("Link" in response.headers) == leads_on


def test_a_file_of_large_rows_has_fewer_of_them(place: Place) -> None:
    at = time.time() + 20_000
    large = "\N{GRINNING FACE}" + "x" * 100_000
    with writing(place.service.engine) as connection:
        connection.execute(
            insert(schema.event),
            [
                {
                    "workspace": place.workspace,
                    "cluster": place.cluster,
                    "id": f"large{number}",
                    "seq": 1,
                    "at": at + number,
                    "topic": "large",
                    "message": large,
                    "cut": False,
                    "user": "grete",
                }
                for number in range(250)
            ],
        )
    found: list[str] = []
    address: str | None = "/events.csv?user=grete&topic=large"
    while address is not None:
        answer = place.get(address)
        rows = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
        assert len(answer.content) < 24 * 1024 * 1024
        assert {row["message"] for row in rows} <= {large}
        found += [row["id"] for row in rows]
        more = answer.links.get("next")
        if more is not None:
            assert f'-first-{len(rows)}.csv"' in answer.headers["Content-Disposition"]
        address = None if more is None else more["url"]
    assert found == [f"large{number}" for number in reversed(range(250))]


def test_a_file_takes_little_more_memory_than_its_bytes() -> None:
    # One such character makes a text of Python four times as large, if it is one text.
    row = ["\N{GRINNING FACE}" + "x" * 10_000]
    app = Flask(__name__)
    with app.test_request_context():
        g.workspace = "w"
        tracemalloc.start()
        try:
            answer = csv_answer(["message"], (row for _ in range(500)), "logs")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    size = len(answer.get_data())
    assert size > 5_000_000
    assert peak < 3 * size


@pytest.mark.parametrize("first", [*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_whatever_begins_a_formula_in_some_spreadsheet_is_told_as_text(first: str) -> None:
    app = Flask(__name__)
    with app.test_request_context():
        g.workspace = "w"
        text = csv_answer(["message"], [[f"{first}1+1"]], "exceptions").get_data(as_text=True)
    [_, [cell]] = csv.reader(io.StringIO(text, newline=""))
    assert cell == f"'{first}1+1"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_part_of_a_text_begins_a_formula_whatever_separates_cells(separator: str) -> None:
    texts = [f"{before}=1+1;x" for before in ("u;", "u\t", "u\n", "u\r", 'u;"', 'u";', ";;", "@;")]
    app = Flask(__name__)
    with app.test_request_context():
        g.workspace = "w"
        rows: list[list[object]] = [["a", one, "z"] for one in texts]
        rows.append([{"team": "u;=1+1;x"}, "b", "z"])
        text = csv_answer(["a", "b", "c"], rows, "people").get_data(as_text=True)
    cells = [
        cell
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for cell in row
    ]
    assert "z" in "".join(cells)
    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []


def test_a_field_that_is_new_on_the_wire_is_the_last_column() -> None:
    columns = make_columns("after=second", {"always": lambda item: 1}, of=Row, without="first")

    assert list(columns) == ["after", "always", "third"]
    assert columns["after"] == "second"
    assert columns["third"] == "third"


@dataclass(frozen=True)
class Row:
    first: int
    second: int
    third: int
