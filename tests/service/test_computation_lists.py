"""Lists of computations, chosen and sorted by what became of them."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import re
import time
import uuid
from typing import Any

import dask
import pytest
import requests
from click.testing import CliRunner
from sqlalchemy import update

import daskscope
from daskscope.protocol import CodeFrame
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.beats import make_beat, make_cluster, make_computation, make_status, post
from tests.service.pages import words
from tests.service_process import ServiceProcess

#: In the order of a list by status.
STATUSES = ("running", "lost", "erred", "cancelled", "finished")

#: What a computation of four tasks may have counted.
_COUNTS = [
    {"tasks": 4, "completed": completed, "erred": erred, "cancelled": cancelled, "states": states}
    for (completed, erred, cancelled), states in itertools.product(
        ((0, 0, 0), (4, 0, 0), (5, 0, 0), (3, 1, 0), (4, 0, 1)),
        (
            {"memory": 4},
            {"memory": 1, "processing": 3},
            {"memory": 1, "released": 3},
            {"released": 2, "forgotten": 2},
            {"memory": 3, "erred": 1},
            {},
        ),
    )
]


class Reader:
    """Asks about a workspace of clusters that are up, stopped and silent."""

    def __init__(self, service: ServiceProcess) -> None:
        self.url, self.workspace = service.url, f"lists-{uuid.uuid4().hex[:8]}"
        self.token = service.token(workspace=self.workspace)
        self.session = requests.Session()
        self.session.post(f"{self.url}/sign-in", data={"token": self.token}, timeout=30)
        times = itertools.count(1_700_000_000)
        for name in ("up", "stopped", "silent"):
            id = f"Scheduler-{name}-{self.workspace}"
            rows = [("running", counts) for counts in _COUNTS]
            rows += [("running", {"tasks": 0, "completed": 0, "erred": 0, "states": {}})]
            rows += [(status, {}) for status in ("erred", "finished", "cancelled", "finished")]
            beat = make_beat(
                make_cluster(id, name=name, user=name),
                status=make_status(stopped_at=1_800_000_000.0 if name == "stopped" else None),
                computations=tuple(
                    make_computation(
                        f"{name}-{number}", status=status, started_at=float(next(times)), **counts
                    )
                    for number, (status, counts) in enumerate(rows)
                ),
            )
            answer = post(self.url, self.token, beat)
            assert answer.ok, answer.text
        # The one that is up stays so, however long the tests take.
        for name, heard in (("up", time.time() + 3600), ("silent", 1.0)):
            of_it = schema.cluster.c.workspace == self.workspace, schema.cluster.c.name == name
            with writing(service.engine) as connection:
                connection.execute(update(schema.cluster).where(*of_it).values(last_seen_at=heard))

    def ask(self, path: str = "computations", code: int = 200, **parameters: Any) -> Any:
        answer = requests.get(
            f"{self.url}/api/v1/{path}",
            params=parameters,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
        )
        assert answer.status_code == code, answer.text
        return answer.json()

    def page(self, path: str) -> str:
        answer = self.session.get(self.url + path, timeout=30)
        assert answer.ok, answer.status_code
        return words(answer.text)


@pytest.fixture(scope="module")
def reader(shared_service: ServiceProcess) -> Reader:
    return Reader(shared_service)


@pytest.fixture(scope="module")
def rows(reader: Reader) -> list[Any]:
    """All computations, the newest first."""
    found: list[Any] = reader.ask(limit=1000)["items"]
    assert {one["status"] for one in found} == set(STATUSES)
    assert len({(one["status"], one["cluster_name"]) for one in found}) == 12
    return found


def ids(rows: list[Any]) -> list[str]:
    return [one["id"] for one in rows]


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_chooses_those_that_have_it_as_answers_have_it(
    reader: Reader, rows: list[Any], status: str
) -> None:
    right = [one for one in rows if one["status"] == status]
    assert ids(reader.ask(status=status, limit=1000)["items"]) == ids(right)
    of_user = [one["id"] for one in right if one["user"] == "stopped"]
    assert ids(reader.ask(status=status, user="stopped")["items"]) == of_user
    path = f"clusters/Scheduler-silent-{reader.workspace}/computations"
    of_cluster = [one["id"] for one in right if one["cluster_name"] == "silent"]
    assert ids(reader.ask(path, status=status)["items"]) == of_cluster
    assert ids(reader.ask(status=status, cluster="silent")["items"]) == of_cluster


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_list_by_status_goes_on_where_it_ended(
    reader: Reader, rows: list[Any], limit: int
) -> None:
    right = [one["id"] for status in STATUSES for one in rows if one["status"] == status]
    found: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = reader.ask(sort="status", limit=limit, **cursor)
        assert len(page["items"]) <= limit
        assert page["items"]
        found += ids(page["items"])
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == right


def test_pages_files_python_and_the_command_have_it(reader: Reader, rows: list[Any]) -> None:
    erred = ids([one for one in rows if one["status"] == "erred"])
    page = reader.page("/computations?status=erred&user=")
    assert re.findall(r'<tr id="c-Scheduler-\S+?-([a-z]+-\d+)"', page) == erred
    assert '<option value="erred" selected>' in page
    by_status = reader.page("/computations?sort=status&limit=3")
    assert by_status.count(">running</span>") == 3
    assert ">More</a>" in by_status
    file = reader.session.get(f"{reader.url}/computations.csv?status=lost&sort=status", timeout=30)
    assert {row["status"] for row in csv.DictReader(file.text.splitlines())} == {"lost"}
    with dask.config.set({"daskscope.endpoint": reader.url, "daskscope.token": reader.token}):
        assert ids(daskscope.list_computations(since=None, status="erred")) == erred
        first = daskscope.list_computations(since=None, sort="status", limit=1)
        assert first[0]["status"] == "running"
        options = ["list", "computations", "--since", "all", "--json", "--status", "cancelled"]
        done = CliRunner().invoke(cli, options, catch_exceptions=False)
        cancelled = [one for one in rows if one["status"] == "cancelled"]
        assert ids([json.loads(line) for line in done.stdout.splitlines()]) == ids(cancelled)


def test_a_status_that_there_is_not_is_refused_with_those_that_there_are(reader: Reader) -> None:
    for name in ("status", "sort"):
        wrong: dict[str, Any] = {name: "failed"}
        problem = reader.ask(code=400, **wrong)
        assert problem["parameter"] == name
        assert "one of" in problem["detail"]


def test_computations_in_a_row_that_look_alike_are_one_row_that_can_be_opened(
    shared_service: ServiceProcess,
) -> None:
    """As the loop of a library makes them; the files and the API have each of them."""
    workspace = f"alike-{uuid.uuid4().hex[:8]}"
    token = shared_service.token(workspace=workspace)
    fit, load = (CodeFrame(f"/home/ada/{name}.py", 12) for name in ("fit", "load"))
    counted = {"tasks": 4, "completed": 4, "erred": 0, "states": {"memory": 4}}
    failed = counted | {"completed": 3, "erred": 1, "states": {"memory": 3, "erred": 1}}
    calls: list[tuple[str, CodeFrame, dict[str, Any]]] = [
        *[("finished", fit, counted)] * 3,
        ("erred", fit, failed),
        *[("finished", load, counted)] * 2,
        *[("finished", fit, counted)] * 31,
    ]
    rows = tuple(
        make_computation(
            f"c{number}",
            status=status,
            started_at=1_700_000_000.0 + 10 * number,
            stopped_at=1_700_000_002.0 + 10 * number,
            frames=(frame,),
            **counts,
        )
        for number, (status, frame, counts) in enumerate(calls)
    )
    id = f"Scheduler-{workspace}"
    assert post(shared_service.url, token, make_beat(make_cluster(id), computations=rows)).ok
    session = requests.Session()
    session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    overview = words(session.get(f"{shared_service.url}/", timeout=30).text)
    bars = re.findall(r'<li id="time-.*?</li>', overview)
    assert [re.findall(r"<b>(.*?) ×</b>", bar) for bar in bars] == [["31"], [], [], [], [], []]
    assert [">1 min 2 s on" in bar for bar in bars] == [True] + 5 * [False]
    for path in ("/computations", f"/clusters/{id}/computations"):
        page = words(session.get(shared_service.url + path, timeout=30).text)
        assert page.count('<tr id="c-') == len(calls)
        parts = re.findall(r'<tbody(?: class="alike")?>.*?</tbody>', page)
        assert [part.count('<tr id="c-') for part in parts] == [31, 1, 1, 1, 3]
        first, *alone, last = parts
        assert "<b>31 ×</b><code>fit.py:12</code>" in first
        assert '<td class="num">1 min 2 s</td>' in first
        assert ' 124<span class="faint"> / 124</span>' in first
        assert "<b>3 ×</b>" in last
        assert not any("×</b>" in part for part in alone)

    # A loop of more than the overview reads.
    more = tuple(
        dataclasses.replace(rows[-1], id=f"d{number}", started_at=1_700_001_000.0 + number)
        for number in range(40)
    )
    assert post(shared_service.url, token, make_beat(make_cluster(id), computations=more)).ok
    overview = words(session.get(f"{shared_service.url}/", timeout=30).text)
    assert re.findall(r"<b>(\d+\+?) ×</b>", overview) == ["36+"]
