"""The pages of profiles, events and logs over a seeded workspace, and the API's list of logs."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import requests
from sqlalchemy import text

from daskscope_service.db.scope import Scope, Selection
from daskscope_service.queries import logs, profiles, scan_filter
from tests.seed_seen import features_profile
from tests.seed_seen import logs as seed_logs
from tests.seed_writer import SeedWriter
from tests.service.pages import words
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

Get = Callable[..., str]
NOW = time.time()
WORKSPACE = "records"


@dataclass(frozen=True)
class Seeded:
    """Ids of clusters, and of computations with their clusters."""

    running: str
    stopped: str
    lost: str
    computations: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def seeded(shared_service: ServiceProcess) -> Seeded:
    writer = SeedWriter(WORKSPACE, NOW)
    maria: dict[str, Any] = {"user": "maria.lindqvist", "workers": 2}
    running = writer.cluster("Scheduler-r", name="features-nightly", started=-5400, **maria)
    stopped = writer.cluster(
        "Scheduler-s", name="train", user="tomas", workers=2, started=-9000, stopped=-8000
    )
    lost = writer.cluster("Scheduler-l", name="adhoc-geo", started=-14_000, heard=-9_100, **maria)
    computations = {
        "running": writer.computation(running, "run", "running", -190, None, None, call=1),
        "lost": writer.computation(lost, "lost", "running", -9400, None, None, call=1),
    }
    writer.profile(running, "p1", -600)
    for minute in range(3):
        writer.profile(lost, f"p{minute}", -9400 + 60 * minute, features_profile(minute))
    writer.event(running, "e1", "progress", {"partition": 118}, -300)
    writer.event(running, "e2", "invalid-worker-transition", {"start": "memory"}, -1500)
    seed_logs(writer, running, "run")
    writer.write(shared_service.engine)
    return Seeded(running, stopped, lost, computations)


def _signed_in(service: ServiceProcess, workspace: str) -> requests.Session:
    browser = requests.Session()
    form = {"token": service.token(["read"], workspace)}
    assert browser.post(f"{service.url}/sign-in", data=form, timeout=30).ok
    return browser


@pytest.fixture(scope="module")
def browser(shared_service: ServiceProcess, seeded: Seeded) -> requests.Session:
    return _signed_in(shared_service, WORKSPACE)


@pytest.fixture
def get(shared_service: ServiceProcess, browser: requests.Session) -> Get:
    def ask(path: str, status: int = 200, **parameters: Any) -> str:
        answer = browser.get(f"{shared_service.url}{path}", params=parameters, timeout=30)
        assert answer.status_code == status, answer.text
        return html.unescape(answer.text)

    return ask


@pytest.fixture
def ask(shared_service: ServiceProcess, seeded: Seeded) -> Callable[..., Any]:
    token = shared_service.token(["read"], WORKSPACE)

    def ask(**parameters: Any) -> Any:
        answer = requests.get(
            f"{shared_service.url}/api/v1/logs",
            params=parameters,
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def test_an_empty_workspace_is_told_what_would_fill_each_page(
    shared_service: ServiceProcess,
) -> None:
    browser = _signed_in(shared_service, "records-empty")
    for path, setting in (
        ("/profile", "daskscope.profile.transmit"),
        ("/events", "daskscope.events.allow"),
        ("/logs", "daskscope.logs.transmit"),
    ):
        assert setting in browser.get(shared_service.url + path, timeout=30).text


def test_a_profile_is_of_the_cluster_user_and_time_asked_for(get: Get, seeded: Seeded) -> None:
    all_of_it = get("/profile", cluster=seeded.lost)
    assert "3 profiles of 1 cluster" in all_of_it
    assert "parse_distance" in all_of_it
    assert "adhoc-geo" in all_of_it
    assert "1 profile of 1 cluster" in get("/profile", user="maria.lindqvist", since=NOW - 700)
    assert "4 profiles of 2 clusters" in get("/profile")
    assert "No profile is like this" in get("/profile", user="tomas")


def test_a_profile_says_how_much_of_the_tasks_time_no_sample_was_of(
    shared_service: ServiceProcess, get: Get, seeded: Seeded
) -> None:
    told = "No sample could be taken of another 47.5 s, 6 % of the tasks"
    assert told in words(get("/profile", cluster=seeded.running))
    writer = SeedWriter("unsampled", NOW)
    cluster = writer.cluster("Scheduler-held", name="held", user="li", started=-900, workers=1)
    nothing: dict[str, Any] = {"lines": [], "parent": [], "line": [], "samples": []}
    writer.profile(cluster, "p1", -600, nothing, seconds=0.0, unsampled=2.7)
    writer.computation(cluster, "held", "finished", -590, -580, None, 1)
    writer.write(shared_service.engine)
    browser = _signed_in(shared_service, "unsampled")
    for path in ("/profile", f"/clusters/{cluster}/computations/held"):
        page = words(browser.get(shared_service.url + path, timeout=30).text)
        assert "No sample could be taken of the tasks\u2019 2.7 s:" in page


def test_a_profile_that_reaches_into_the_time_is_part_of_it(get: Get, seeded: Seeded) -> None:
    # Those of the lost cluster began at -9400, -9340 and -9280, and lasted 60 s.
    assert "2 profiles of" in get(
        "/profile", cluster=seeded.lost, since=NOW - 9390, until=NOW - 9300
    )


def test_a_profile_names_the_lines_by_their_own_time(get: Get, seeded: Seeded) -> None:
    page = get("/profile", cluster=seeded.lost)
    lines = page[page.index("Lines of code") :]
    assert lines.index("to_table") < lines.index("parse_distance") < lines.index("_bootstrap")
    assert "source not sent" in lines
    by_total = get("/profile", cluster=seeded.lost, sort="total")
    lines = by_total[by_total.index("Lines of code") :]
    assert lines.index("_bootstrap") < lines.index("parse_distance")


def test_a_search_says_how_much_it_found(get: Get, seeded: Seeded) -> None:
    found = get("/profile", cluster=seeded.lost, find="PARSE_events")
    assert "of all, with all that they called" in words(found)
    assert "No function here has “nothing”" in get("/profile", find="nothing")


def test_a_call_that_is_not_there_is_said_and_all_is_shown(get: Get, seeded: Seeded) -> None:
    page = get("/profile", cluster=seeded.lost, zoom="0123456789ab")
    assert "do not contain the call" in page
    assert "to_table" in page


def test_empty_fields_of_a_form_leave_the_address(
    shared_service: ServiceProcess, browser: requests.Session
) -> None:
    for path in ("/profile", "/events", "/logs"):
        answer = browser.get(f"{shared_service.url}{path}?user=&since=&cluster=C+1", timeout=30)
        assert answer.ok
        assert answer.url == f"{shared_service.url}{path}?cluster=C+1"


def test_what_makes_no_sense_is_refused(get: Get) -> None:
    assert "must be one of" in get("/logs", status=400, level="loud")
    assert "must be a time" in get("/profile", status=400, since="yesterday")
    assert "not a parameter" in get("/events", status=400, level="error")


def test_only_the_newest_profiles_are_merged_and_others_told(
    shared_service: ServiceProcess,
) -> None:
    writer = SeedWriter("profiled", NOW)
    cluster = writer.cluster("Scheduler-long", name="long", user="li", started=-9000, workers=1)
    for turn in range(profiles.MOST_PROFILES + 2):
        writer.profile(cluster, f"p{turn}", -60 - 60 * turn, features_profile(turn))
    writer.write(shared_service.engine)
    with shared_service.engine.connect() as connection:
        scope = Scope(connection, "profiled", NOW, 60.0)
        found = profiles.newest_profiles(scope, Selection())
        rest = profiles.newest_profiles(scope, Selection(until=found.items[-1]["started_at"]))
    assert [one["id"] for one in found.items] == [f"p{t}" for t in range(profiles.MOST_PROFILES)]
    assert found.more
    assert [one["id"] for one in rest.items] == ["p60", "p61"]
    assert not rest.more
    page = _signed_in(shared_service, "profiled").get(f"{shared_service.url}/profile", timeout=30)
    assert "older ones are not included" in page.text


def test_events_are_chosen_by_topic_and_cluster(get: Get, seeded: Seeded) -> None:
    page = get("/events", topic="WORKER-trans")
    assert "invalid-worker-transition" in page
    assert "partition" not in page
    assert "partition" in get("/events", cluster=seeded.running)
    assert "No event matches" in get("/events", cluster=seeded.lost)


def test_logs_are_chosen_by_level_text_user_and_time(ask: Callable[..., Any]) -> None:
    def bodies(**parameters: Any) -> list[str]:
        return [item["body"][:12] for item in ask(**parameters)["items"]]

    assert bodies() == [
        "Receive clie",
        "Unmanaged me",
        "no rates for",
        "a record of ",
        "Compute Fail",
    ]
    assert bodies(level="warning") == ["Unmanaged me", "no rates for", "Compute Fail"]
    assert bodies(text="RATES") == ["no rates for"]
    assert bodies(user="tomas") == []
    assert bodies(level="error", user="maria.lindqvist") == ["no rates for", "Compute Fail"]
    assert bodies(until=NOW - 1000) == ["Compute Fail"]
    assert bodies(cluster="Scheduler-elsewhere") == ["a record of "]


def test_a_record_tells_whose_it_is_and_how_grave(ask: Callable[..., Any]) -> None:
    first, *_, last = ask(limit=4)["items"]
    assert (first["cluster_name"], first["user"], first["level"]) == (
        "features-nightly",
        "maria.lindqvist",
        "info",
    )
    assert (last["cluster_name"], last["user"], last["level"]) == (None, None, "")


@pytest.mark.parametrize("parameters", [{}, {"level": "warning"}, {"text": "e"}])
def test_pages_of_logs_join_to_the_whole(
    ask: Callable[..., Any], parameters: dict[str, str]
) -> None:
    whole = ask(**parameters)["items"]
    found: list[Any] = []
    page: dict[str, Any] = {"next": None}
    while not found or page["next"]:
        cursor = {"cursor": page["next"]} if page["next"] else {}
        page = ask(limit=1, **parameters, **cursor)
        found += page["items"]
    assert found == whole


def test_a_page_looks_through_so_many_rows_and_says_how_far_it_came(
    shared_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_filter, "MOST_SCANNED", 2)
    monkeypatch.setattr(scan_filter, "_AT_ONCE", 2)
    writer = SeedWriter("sifted", NOW)
    cluster = writer.cluster("Scheduler-s", name="s", user="li", started=-9000, workers=1)
    seed_logs(writer, cluster, "c")
    writer.write(shared_service.engine)
    which = logs.LogFilter(text="compute")
    selection, bodies, reached = Selection(), [], []
    with shared_service.engine.connect() as connection:
        scope = Scope(connection, "sifted", NOW, 60.0)
        while True:
            found = logs.list_logs(scope, selection, which, logs.own_logs)
            bodies.append([item["body"] for item in found.items])
            reached.append(found.reached and round(found.reached - NOW))
            if found.next is None:
                break
            selection = Selection(after=found.next)
    assert bodies == [[], [], ["Compute Failed"]]
    assert reached == [-210, -500, None]


def test_a_log_page_links_to_the_computation_and_shows_its_traceback(
    get: Get, seeded: Seeded
) -> None:
    page = get("/logs", cluster=seeded.running, level="error")
    cluster, computation = seeded.computations["running"]
    assert f'href="/clusters/{cluster}/computations/{computation}"' in page
    assert "Unmanaged" not in page


def test_a_cluster_and_a_computation_lead_to_their_profile_where_there_is_one(
    get: Get, seeded: Seeded
) -> None:
    assert f'"/profile?cluster={seeded.lost}"' in get(f"/clusters/{seeded.lost}")
    assert '"/profile?' not in get(f"/clusters/{seeded.stopped}")
    cluster, computation = seeded.computations["lost"]
    assert f'"/profile?cluster={cluster}&since=' in get(
        f"/clusters/{cluster}/computations/{computation}"
    )
    page = get(f"/clusters/{seeded.running}")
    assert f'"/events?cluster={seeded.running}"' in page
    assert f'"/logs?cluster={seeded.running}"' in page


_LATEST_LOGS = "(at, id) < (1, 'x') ORDER BY at DESC, id DESC LIMIT 101"
_LATEST_CLUSTERS = "started_at >= 0 ORDER BY started_at DESC, id DESC LIMIT 51"


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (f"* FROM log_record WHERE workspace = 'w' AND {_LATEST_LOGS}", "log_by_workspace"),
        (
            f"* FROM log_record WHERE workspace = 'w' AND cluster = 'c' AND {_LATEST_LOGS}",
            "log_by_cluster",
        ),
        ("* FROM cluster WHERE workspace = 'w' AND stopped_at IS NULL", "cluster_open"),
        (
            f"id FROM cluster WHERE workspace = 'w' AND kind = 'k' AND {_LATEST_CLUSTERS}",
            "cluster_by_label",
        ),
        (
            f"id FROM cluster WHERE workspace = 'w' AND tags ->> 't' = 'x' AND {_LATEST_CLUSTERS}",
            "cluster_by_label",
        ),
        (
            "id, cost, thread_idle_seconds / thread_seconds, status_at, peak_workers FROM cluster "
            "WHERE workspace = 'w' AND stopped_at IS NOT NULL AND started_at >= 0",
            "cluster_closed",
        ),
    ],
)
def test_what_is_asked_often_has_an_index_that_is_used(
    shared_service: ServiceProcess, wanted: str, index: str
) -> None:
    if shared_service.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL plans by what a table holds")
    with shared_service.engine.connect() as connection:
        (step,) = connection.execute(text(f"EXPLAIN QUERY PLAN SELECT {wanted}")).mappings()
    assert f"INDEX {index} " in step["detail"]
