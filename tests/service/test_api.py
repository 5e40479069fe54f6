"""How the API answers, whatever is asked: paging, ETags, errors."""

from __future__ import annotations

import base64
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from daskscope.protocol import MAX_TEXT, Prices
from daskscope_service.db.scope import MOST_BYTES
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_computation,
    make_event,
    make_failure,
    make_profile,
    post,
)
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

LISTS = ("clusters", "computations", "exceptions", "events", "profiles")


@dataclass(frozen=True)
class Reader:
    """One workspace of the service, as a reader and a cluster see it."""

    service: ServiceProcess
    token: str

    def ask(self, path: str, method: str = "GET", **sent: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"} | sent.pop("headers", {})
        url = f"{self.service.url}/api/v1/{path}"
        return requests.request(method, url, headers=headers, timeout=30, **sent)

    def get(self, path: str, **parameters: Any) -> Any:
        answer = self.ask(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def beat(self, **fields: Any) -> None:
        assert post(self.service.url, self.token, make_beat(**fields)).ok


@pytest.fixture
def reader(shared_service: ServiceProcess) -> Reader:
    workspace = f"w-{uuid.uuid4().hex[:8]}"
    return Reader(shared_service, shared_service.token(workspace=workspace))


def fill(reader: Reader, cluster: str, at: float) -> None:
    """Report one of everything that is listed, all at the same moment."""
    reader.beat(
        cluster=make_cluster(cluster, started_at=at),
        computations=(make_computation("c1", started_at=at),),
        failures=(make_failure(fingerprint=f"1:{cluster}", first_at=at, last_at=at),),
        events=(make_event(id="e1", at=at),),
        profiles=(make_profile("p1", started_at=at),),
    )


@pytest.mark.parametrize("path", LISTS)
def test_no_item_is_missing_or_there_twice_whatever_comes_in_meanwhile(
    reader: Reader, path: str
) -> None:
    now = time.time()
    # Some of the same moment: of computations, events and profiles with the same id, too.
    for n in range(6):
        fill(reader, f"S{n}", now - n // 3)
    expected = reader.get(path)["items"]
    assert len(expected) == 6
    found: list[Any] = []
    page: dict[str, Any] = {"next": None}
    for n in range(6):
        cursor = {"cursor": page["next"]} if page["next"] else {}
        page = reader.get(path, limit=1, **cursor)
        found += page["items"]
        fill(reader, f"later-{n}", now + n)  # newer than all
    assert page["next"] is None
    names = [json.dumps([item.get(key) for key in KEYS]) for item in found]
    assert names == [json.dumps([item.get(key) for key in KEYS]) for item in expected]


def test_a_list_of_large_rows_ends_early_and_goes_on_at_the_cursor(reader: Reader) -> None:
    now, cluster = time.time(), make_cluster()
    for first in range(0, 150, 50):
        reader.beat(
            cluster=cluster,
            seq=first + 1,
            events=tuple(
                make_event(id=f"e{n}", at=now - n, message="€" * MAX_TEXT)
                for n in range(first, first + 50)
            ),
        )
    answer = reader.ask("events", params={"limit": 1000})
    assert len(answer.content) < 2 * MOST_BYTES
    page = answer.json()
    found = page["items"]
    assert 0 < len(found) < 150
    while page["next"]:
        page = reader.get("events", limit=1000, cursor=page["next"])
        found += page["items"]
    assert [item["id"] for item in found] == [f"e{n}" for n in range(150)]


#: What tells items apart.
KEYS = ("cluster", "id", "fingerprint")


def test_a_cursor_is_of_its_list_alone(reader: Reader) -> None:
    now = time.time()
    for n in range(3):
        fill(reader, f"S{n}", now - n)
    cursors = {path: reader.get(path, limit=1)["next"] for path in LISTS}
    for path in LISTS:
        for other in LISTS:
            status = reader.ask(path, params={"cursor": cursors[other]}).status_code
            assert status == (200 if path == other else 400), (path, other)


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "%%%",
        "ü",
        "null",
        b"[" * 5000,
        b'["reads.clusters",1,"a"]',
        b'["reads.clusters",1,"a","b","c"]',
        b'["reads.clusters","1","a",""]',
        b'["reads.clusters",1e999,"a",""]',
        b'["reads.clusters",1' + b"0" * 400 + b',"a",""]',
        b'["reads.clusters",NaN,"a",""]',
        b'["reads.clusters",1,"\\u0000",""]',
        b'["reads.clusters",1,"\\ud800",""]',
        b"\xff\xfe",
    ],
)
def test_a_broken_cursor_is_a_bad_parameter(reader: Reader, cursor: str | bytes) -> None:
    if isinstance(cursor, bytes):
        cursor = base64.urlsafe_b64encode(cursor).decode().rstrip("=")
    answer = reader.ask("clusters", params={"cursor": cursor})
    assert answer.status_code == 400, answer.text
    assert answer.json()["parameter"] == "cursor"


def test_what_has_not_changed_is_not_sent_again(reader: Reader) -> None:
    reader.beat(cluster=make_cluster("S1", started_at=1.0), events=(make_event(at=5.0),))
    for path in ("events", "exceptions", "openapi.json"):
        first = reader.ask(path)
        assert first.status_code == 200
        etag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        assert "Authorization" in first.headers["Vary"]
        again = reader.ask(path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == etag
        assert reader.ask(path, headers={"If-None-Match": '"another"'}).status_code == 200
    etag = reader.ask("events").headers["ETag"]
    reader.beat(cluster=make_cluster("S1", started_at=1.0), events=(make_event(id="e2"),))
    changed = reader.ask("events", headers={"If-None-Match": etag})
    assert changed.status_code == 200
    assert len(changed.json()["items"]) == 2
    # It says nothing to who may not read.
    stranger = {"If-None-Match": changed.headers["ETag"], "Authorization": "Bearer dsk_no"}
    assert reader.ask("events", headers=stranger).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "nothing", {}, 404),
        ("GET", "clusters/", {}, 404),
        ("GET", "clusters/none", {}, 404),
        ("DELETE", "clusters", {}, 405),
        ("GET", "heartbeats", {}, 405),
        ("PURGE", "clusters", {}, 405),
        ("GET", "clusters", {"Accept": "text/html"}, 406),
        ("GET", "clusters", {"Accept": "application/json;q=0"}, 406),
        ("POST", "heartbeats", {"Content-Encoding": "br"}, 415),
        ("POST", "heartbeats", {"Content-Encoding": "gzip"}, 400),
        ("POST", "heartbeats", {}, 400),
        ("POST", "commands", {}, 403),  # no token of these tests may
        ("GET", "clusters", {"Authorization": "Basic eDp5"}, 401),
    ],
)
def test_every_error_is_a_problem_document(
    reader: Reader, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = reader.ask(path, method, headers=headers, data=b"x" if method == "POST" else None)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == answer.headers["X-Request-ID"]
    if status == 405:
        assert answer.headers["Allow"]


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*", "application/json", "text/html,*/*;q=0.1"]
)
def test_json_is_answered_to_all_who_take_it(reader: Reader, accept: str) -> None:
    answer = reader.ask("clusters", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/json"


def test_a_body_that_is_too_large_is_a_problem_document(reader: Reader) -> None:
    answer = reader.ask("heartbeats", "POST", data=b" " * (5 * 1024 * 1024))
    assert answer.status_code == 413
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_head_is_answered_like_a_get_without_its_body(reader: Reader) -> None:
    got, head = reader.ask("events"), reader.ask("events", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["ETag"] == got.headers["ETag"]


def test_a_cluster_with_everything_is_told_whole(reader: Reader) -> None:
    beat = full_beat(make_cluster("S1", prices=Prices("USD", {"thread": 0.06})))
    assert post(reader.service.url, reader.token, beat).ok
    cluster = reader.get("clusters/S1")
    assert cluster["scheduler"] == {"cpu": 0.4, "memory": 2**28, "lag": 0.01}
    assert cluster["gpu"]["memory_limit"] is None
    assert (cluster["cost"], cluster["idle_cost"]) == (1.25, 0.5)
    assert cluster["worker_losses"][0]["log"] == ["one", "two"]
    assert "seq" not in cluster
    (failure, _) = reader.get("exceptions/1:abc")["samples"]
    assert failure["cluster"] == "S1"


def test_a_number_that_is_called_like_a_time_and_is_none_is_told(reader: Reader) -> None:
    reader.beat(computations=(make_computation(seconds={"read_at": 1e12}),))
    (computation,) = reader.get("computations")["items"]
    assert computation["seconds"] == {"read_at": 1e12}
