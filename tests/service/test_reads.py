"""What the API tells, over a seeded workspace: lists, one of each, bad parameters, borders."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import requests

from daskscope import names
from daskscope.codec import code_hash
from daskscope.protocol import Code, CodeFrame
from tests.seed import Seeded, seed
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_task_group,
    post,
)
from tests.service_process import ServiceProcess

BOUNDS = ("since", "until")

Get = Callable[..., Any]
#: Times of this fraction are told a little later than they are: an answer ends at microseconds.
NOW = int(time.time()) + 0.1234567


@pytest.fixture(scope="module", autouse=True)
def _now() -> None:
    """Begin now: the module may have been imported an hour ago, as the first of many."""
    global NOW
    NOW = int(time.time()) + 0.1234567


@pytest.fixture(scope="module")
def seeded(shared_service: ServiceProcess) -> Seeded:
    return seed(shared_service.engine, "reads", NOW)


@pytest.fixture(scope="module")
def token(shared_service: ServiceProcess, seeded: Seeded) -> str:
    return shared_service.token(scopes=["read"], workspace="reads")


@pytest.fixture(scope="module")
def get(shared_service: ServiceProcess, token: str) -> Get:
    return _getter(shared_service, token)


def _getter(service: ServiceProcess, token: str) -> Get:
    program = requests.Session()
    program.headers["Authorization"] = f"Bearer {token}"

    def ask(path: str, status: int = 200, **parameters: Any) -> Any:
        answer = program.get(f"{service.url}/api/v1/{path}", params=parameters, timeout=30)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


def _all(get: Get, path: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    page = get(path, **parameters)
    found += page["items"]
    while page["next"]:
        page = get(path, cursor=page["next"], **parameters)
        assert page["items"]
        found += page["items"]
    return found


def test_clusters_come_newest_first_with_what_became_of_them(get: Get, seeded: Seeded) -> None:
    clusters = get("clusters")["items"]
    started = [item["started_at"] for item in clusters]
    assert started == sorted(started, reverse=True)
    status = {item["id"]: item["status"] for item in clusters}
    assert status[seeded.running] == "running"
    assert status[seeded.stopped] == "stopped"
    assert status[seeded.lost] == "lost"


def test_a_cluster_tells_its_times_counts_and_page(get: Get, seeded: Seeded) -> None:
    cluster = get(f"clusters/{seeded.running}")
    assert cluster["started_at"].endswith("Z")
    assert datetime.fromisoformat(cluster["started_at"]).timestamp() == pytest.approx(NOW - 5400)
    assert cluster["stopped_at"] is None
    assert cluster["computations"] == 34
    assert cluster["failures"] == 15
    assert cluster["url"].endswith(f"/clusters/{seeded.running}")
    assert [loss["id"] for loss in cluster["worker_losses"]] == ["w2", "w1"]
    assert cluster["held_by"] == {"running": 96, "processing": 96}
    assert cluster["worker_losses"][1]["tasks"] == {"read-parquet": 14}
    assert "workspace" not in cluster


def test_a_cluster_tells_its_shutdowns_and_the_time_of_its_threads(
    get: Get, seeded: Seeded
) -> None:
    cluster = get(f"clusters/{seeded.stopped}")
    assert [shutdown["state"] for shutdown in cluster["shutdowns"]] == ["closing"]
    seconds = {activity["prefix"]: activity["seconds"] for activity in cluster["activities"]}
    assert seconds[""]["idle"] == 41_000.0
    assert seconds["read-parquet"]["thread-cpu"] == 30_000.0


def test_a_profile_is_listed_without_its_tree_and_told_whole(get: Get, seeded: Seeded) -> None:
    (listed,) = get("profiles", cluster=seeded.running)["items"]
    assert "lines" not in listed
    whole = get(f"clusters/{seeded.running}/profiles/{listed['id']}")
    assert whole["lines"][whole["line"][1]]["function"] == "load"
    assert whole["parent"] == [-1, 0]
    assert get(f"clusters/{seeded.stopped}/profiles/{listed['id']}", status=404)
    assert get("profiles", cluster=seeded.stopped)["items"] == []


@pytest.mark.parametrize("path", ["clusters", "computations", "exceptions", "events", "profiles"])
def test_pages_of_a_list_join_to_the_whole(get: Get, path: str) -> None:
    whole = get(path, limit=1000)
    assert whole["next"] is None
    assert _sent(_all(get, path, limit=3)) == _sent(whole["items"])
    assert _sent(_all(get, path, limit=1)) == _sent(whole["items"])


def _sent(items: list[Any]) -> list[Any]:
    """Return ``items`` without what the service finds by itself, meanwhile perhaps."""
    return [{name: item[name] for name in item if name not in ("cause", "job")} for item in items]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_group_that_failed_often_does_not_hide_the_next_ones(
    shared_service: ServiceProcess, limit: int
) -> None:
    token = shared_service.token(scopes=["ingest", "read"], workspace=f"often-{limit}")
    # The newest two of "often" are as old as each other, and so is the one of "once".
    failed_at = {"often": (-40, -30, -10, -10), "once": (-10,), "twice": (-50, -20), "old": (-45,)}
    for fingerprint, times in failed_at.items():
        for at in times:
            beat = make_beat(
                computations=(make_computation(),),
                failures=(
                    make_failure(fingerprint=fingerprint, first_at=NOW + at, last_at=NOW + at),
                ),
            )
            assert post(shared_service.url, token, beat).ok

    get = _getter(shared_service, token)
    listed = _all(get, "exceptions", limit=limit)
    assert [(group["fingerprint"], group["clusters"]) for group in listed] == [
        ("once", 1),
        ("often", 4),
        ("twice", 2),
        ("old", 1),
    ]
    before = _all(get, "exceptions", limit=limit, until=NOW - 15)
    assert [(group["fingerprint"], group["clusters"]) for group in before] == [
        ("twice", 2),
        ("often", 2),
        ("old", 1),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_groups_are_found_beyond_more_failures_than_are_looked_at_first(
    shared_service: ServiceProcess, limit: int
) -> None:
    token = shared_service.token(scopes=["ingest", "read"], workspace=f"beyond-{limit}")

    def fail(fingerprint: str, first: int, count: int) -> None:
        failures = tuple(
            make_failure(
                computation=f"c{at}", fingerprint=fingerprint, first_at=NOW - at, last_at=NOW - at
            )
            for at in range(first, first + count)
        )
        assert post(shared_service.url, token, make_beat(failures=failures)).ok

    fail("newest", 100, 1)
    for first in range(200, 1_400, 100):
        fail("many", first, 100)
    fail("older", 2_000, 1)
    fail("oldest", 3_000, 1)

    get = _getter(shared_service, token)
    listed = _all(get, "exceptions", limit=limit)
    assert [group["fingerprint"] for group in listed] == ["newest", "many", "older", "oldest"]
    assert listed[1]["count"] == 1_200 * make_failure().count


def test_lists_are_chosen_by_user_cluster_and_time(get: Get, seeded: Seeded) -> None:
    assert {c["user"] for c in get("clusters", user="tomas")["items"]} == {"tomas"}
    assert len(get("clusters", cluster=seeded.lost)["items"]) == 1
    recent = get("clusters", since=NOW - 5500)["items"]
    iso = datetime.fromtimestamp(NOW - 5500).astimezone().isoformat()
    assert recent == get("clusters", since=iso)["items"]
    older = get("clusters", until=NOW - 5500)["items"]
    assert len(recent) == 2
    assert len(recent) + len(older) == len(get("clusters")["items"])
    assert {c["cluster"] for c in get("computations", user="tomas")["items"]} == {seeded.stopped}
    assert {e["fingerprint"] for e in get("exceptions", user="tomas")["items"]} == {
        seeded.fingerprints[0]
    }
    assert get("events", cluster=seeded.lost)["items"] == []
    assert len(get("events", user="maria.lindqvist")["items"]) == 2


@pytest.mark.parametrize(
    "path",
    [
        *("clusters", "computations", "exceptions", "events", "profiles", "logs", "findings"),
        *("commands", "decisions"),
    ],
)
def test_lists_are_chosen_by_a_clusters_name_as_pages_show_it(
    get: Get, seeded: Seeded, path: str
) -> None:
    named: dict[str, list[str]] = {}
    for cluster in _all(get, "clusters"):
        named.setdefault(cluster["name"], []).append(cluster["id"])
    assert len(named["features-nightly"]) == 8
    found = 0
    for name, ids in named.items():
        of_them = {_key(one) for id in ids for one in _all(get, path, cluster=id)}
        assert {_key(one) for one in _all(get, path, cluster=name)} == of_them
        found += len(of_them)
    assert found or path in ("findings", "decisions")  # of which the seed has none
    assert _all(get, path, cluster="nightly") == []


def _key(one: dict[str, Any]) -> object:
    # Of the exceptions of several clusters, groups are added up.
    return one.get("id") or one.get("fingerprint") or (one["computation"], one["rule"])


def test_a_clusters_id_goes_before_anothers_name(
    shared_service: ServiceProcess, seeded: Seeded
) -> None:
    token = shared_service.token(scopes=["read", "ingest"], workspace="called")
    other = make_cluster(id=f"Scheduler-{uuid.uuid4()}", name=seeded.stopped)
    plain = make_cluster(id=f"Scheduler-{uuid.uuid4()}", name="plain")
    named = make_cluster(id=f"Scheduler-{uuid.uuid4()}", name=plain.id)
    for cluster in (other, plain, named):
        assert post(shared_service.url, token, make_beat(cluster)).ok
    get = _getter(shared_service, token)

    assert [c["id"] for c in get("clusters", cluster=plain.id)["items"]] == [plain.id]
    # Another workspace's cluster is none here.
    assert [c["id"] for c in get("clusters", cluster=seeded.stopped)["items"]] == [other.id]


@pytest.fixture(scope="module")
def named(shared_service: ServiceProcess) -> str:
    """Return a token of a workspace with a cluster named ``one``, and two named ``two``."""
    token = shared_service.token(scopes=["read", "ingest"], workspace="named")
    for id, name in (("Scheduler-1", "one"), ("Scheduler-2", "two"), ("Scheduler-3", "two")):
        beat = full_beat(make_cluster(id=id, name=name))
        assert post(shared_service.url, token, beat).ok
    return token


@pytest.mark.parametrize(
    "below",
    [
        *("", "/computations", "/stream", "/stream/trace", "/profiles/p1", "/report"),
        *("/computations/c1", "/computations/c1/trace", "/computations/c1/report"),
    ],
)
def test_a_cluster_is_called_by_its_name_wherever_by_its_id(
    shared_service: ServiceProcess, named: str, below: str
) -> None:
    def ask(cluster: str) -> requests.Response:
        address = f"{shared_service.url}/api/v1/clusters/{cluster}{below}"
        return requests.get(address, headers={"Authorization": f"Bearer {named}"}, timeout=30)

    by_id, by_name = ask("Scheduler-1"), ask("one")
    assert by_id.ok, by_id.text
    assert by_name.status_code == 200, by_name.text
    if by_id.headers["Content-Type"] == "application/json" and below:  # without ages
        assert by_name.json() == by_id.json()
    of_several = ask("two")
    assert of_several.status_code == 409
    assert "Scheduler-2" in of_several.json()["detail"]
    assert "Scheduler-3" in of_several.json()["detail"]
    assert ask("three").status_code == 404


@pytest.mark.parametrize(
    ("path", "time_of_it"),
    [
        ("clusters", "started_at"),
        ("computations", "started_at"),
        ("events", "at"),
        ("exceptions", "last_at"),
    ],
)
def test_what_is_told_with_a_time_is_found_since_then_and_not_before(
    get: Get, path: str, time_of_it: str
) -> None:
    for item in get(path)["items"]:
        told = item[time_of_it]
        since, before = ([i[time_of_it] for i in get(path, **{b: told})["items"]] for b in BOUNDS)
        assert min(since) == told
        assert told not in before


def test_computations_of_a_cluster_name_it_and_their_call(get: Get, seeded: Seeded) -> None:
    items = get(f"clusters/{seeded.running}/computations", limit=1)["items"]
    assert items[0]["cluster_name"] == "features-nightly"
    assert items[0]["call"] == items[0]["title"] == "per_user = per_user.persist()"
    assert items[0]["status"] == "running"


#: Where pip puts libraries.
POSIX = "/home/ada/.venv/lib/python3.13/site-packages"
WINDOWS = r"C:\Python313\Lib\site-packages"


#: Libraries whose own code calls Dask, for a user whose code is not on the stack.
CALL_FOR_USERS = (
    "dask_ml", "lightgbm", "prefect", "prefect_dask", "sklearn", "xarray", "xgboost"
)  # fmt: skip


def test_where_no_code_of_the_users_is_known_its_place_or_its_tasks_are_the_title(
    shared_service: ServiceProcess,
) -> None:
    workspace = f"titles-{uuid.uuid4().hex[:8]}"
    token = shared_service.token(scopes=["ingest", "read"], workspace=workspace)
    beat = make_beat(
        make_cluster(),
        computations=(
            make_computation("known", frames=(CodeFrame("C:\\jobs\\run.py", 12),)),
            # A library called Dask in a thread of its own.
            make_computation("joblib", frames=(CodeFrame(f"{POSIX}/joblib/_dask.py", 336),)),
            make_computation("job", frames=(CodeFrame(f"{POSIX}/acme_jobs/nightly.py", 7),)),
            *(
                make_computation(library, frames=(CodeFrame(f"{POSIX}/{library}/core.py", 3),))
                for library in CALL_FOR_USERS
            ),
            make_computation("windows", frames=(CodeFrame(f"{WINDOWS}\\joblib\\_dask.py", 336),)),
            make_computation("many", frames=()),
            make_computation("timed", frames=()),
            make_computation("refused", frames=None),
            make_computation("empty", frames=()),
        ),
        task_groups=(
            *(
                make_task_group("many", f"{prefix}-{n}", prefix=prefix, tasks=tasks)
                for prefix, tasks in (("load", 2), ("fit", 3), ("score", 1), ("save", 1))
                for n in range(2)
            ),
            *(
                make_task_group("timed", prefix, prefix=prefix, tasks=tasks, seconds=seconds)
                for prefix, tasks, seconds in (
                    ("split", 900, {"compute": 0.5, "transfer": 80.0}),
                    ("fit", 2, {"compute": 60.0}),
                    ("score", 2, {"compute": 7.0}),
                    ("save", 9, {}),
                )
            ),
            make_task_group("refused", "load-1", prefix="load"),
            make_task_group("job", "load-1", prefix="load"),
            make_task_group("joblib", "square-batch-1", prefix="square-batch"),
            *(make_task_group(library, "fit-1", prefix="fit") for library in CALL_FOR_USERS),
        ),
    )
    assert post(shared_service.url, token, beat).ok
    answer = requests.get(
        f"{shared_service.url}/api/v1/computations",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    ).json()
    assert {one["id"]: one["title"] for one in answer["items"]} == {
        "known": "run.py:12",
        "job": "nightly.py:7",  # it is installed, but the user's all the same
        "joblib": "tasks of square-batch",
        **dict.fromkeys(CALL_FOR_USERS, "tasks of fit"),
        "windows": "_dask.py:336",  # its tasks have not come yet
        "many": "tasks of fit, load, save, …",
        "timed": "tasks of fit, score, split, …",  # by what they computed
        "refused": "tasks of load",
        "empty": "",
    }


def test_of_a_long_line_a_list_holds_its_beginning(shared_service: ServiceProcess) -> None:
    workspace = f"titles-{uuid.uuid4().hex[:8]}"
    token = shared_service.token(scopes=["ingest", "read"], workspace=workspace)
    text = f"y = f({'x' * 19_000})"
    code = Code(code_hash("run.py", 1, False, text), "run.py", text, 1)
    computation = make_computation("long", frames=(CodeFrame("run.py", 1, code.hash),))
    beat = make_beat(make_cluster(), computations=(computation,), code=(code,))
    assert post(shared_service.url, token, beat).ok
    (found,) = requests.get(
        f"{shared_service.url}/api/v1/computations",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    ).json()["items"]
    assert (len(found["call"]), len(found["title"])) == (1_000, 300)
    assert found["call"].endswith("x…")


def test_a_running_computation_of_a_lost_cluster_is_lost(get: Get, seeded: Seeded) -> None:
    cluster, id = seeded.computations["lost"]
    computation = get(f"clusters/{cluster}/computations/{id}")
    assert computation["status"] == "lost"
    assert "fell silent" in computation["sentence"]
    assert computation["duration"] == pytest.approx(300)


def test_a_computation_has_its_groups_failures_and_code(get: Get, seeded: Seeded) -> None:
    cluster, id = seeded.computations["erred"]
    computation = get(f"clusters/{cluster}/computations/{id}")
    assert len(computation["task_groups"]) == 7
    assert {f["type"] for f in computation["failures"]} == {"ValueError", "SyntaxError"}
    outer, inner = computation["frames"]
    assert outer["text"] is None
    assert (
        inner["text"].splitlines()[inner["line"] - inner["first_line"]].endswith('"retries": 2})')
    )


def test_what_was_not_sent_is_null(get: Get, seeded: Seeded) -> None:
    cluster, id = seeded.computations["secretive"]
    computation = get(f"clusters/{cluster}/computations/{id}")
    assert computation["failures"][0]["message"] is None
    assert computation["failures"][0]["traceback"] is None
    assert computation["frames"] is None
    assert computation["call"] is None
    assert computation["title"].startswith("tasks of ")


def test_equal_failures_of_clusters_are_one_exception(get: Get, seeded: Seeded) -> None:
    found = get(f"exceptions/{seeded.fingerprints[0]}")
    assert found["count"] == 14
    assert found["clusters"] == 2
    assert found["users"] == ["maria.lindqvist", "tomas"]
    assert [s["cluster_name"] for s in found["samples"]] == ["features-nightly", "train-eu-west"]
    listed = {e["fingerprint"]: e for e in get("exceptions")["items"]}[seeded.fingerprints[0]]
    assert listed["message"] == "could not convert string to float: '12,4 km'"
    assert listed["count"] == 14


def test_series_come_down_sampled_with_their_attributes(get: Get, seeded: Seeded) -> None:
    lines = get(
        "series",
        cluster=seeded.running,
        metric=names.WORKER_COUNT.name,
        since=NOW - 5400,
        until=NOW,
    )["items"]
    assert {line["attributes"][names.WORKER_STATE] for line in lines} == {"running", "paused"}
    for line in lines:
        assert 300 < len(line["times"]) <= 501
        assert line["times"] == sorted(line["times"])
    coarse = get(
        "series",
        cluster=seeded.running,
        metric=names.WORKER_COUNT.name,
        since=NOW - 5400,
        until=NOW,
        step=600,
    )["items"]
    assert len(coarse[0]["times"]) <= 10
    name = get("clusters", cluster=seeded.running)["items"][0]["name"]
    by_name = {"cluster": name, "metric": names.WORKER_COUNT.name, "until": NOW, "step": 600}
    assert get("series", since=NOW - 5400, **by_name)["items"] == coarse


@pytest.mark.parametrize(
    ("path", "parameters", "named"),
    [
        ("clusters", {"limit": 0}, "limit"),
        ("clusters", {"limit": 1001}, "limit"),
        ("clusters", {"limit": "many"}, "limit"),
        ("clusters", {"limit": "nan"}, "limit"),
        ("clusters", {"since": "yesterday"}, "since"),
        ("clusters", {"since": "1e300"}, "since"),
        ("clusters", {"since": 20, "until": 10}, "until"),
        ("clusters", {"cursor": "%%%"}, "cursor"),
        ("clusters", {"cursor": "bnVsbA"}, "cursor"),
        ("clusters", {"cursor": "WzEsMiwzXQ"}, "cursor"),
        ("clusters", {"limt": 5}, "limt"),
        ("computations", {"until": "2026-13-01"}, "until"),
        ("series", {"metric": "dask.worker.count"}, "cluster"),
        ("series", {"cluster": "x"}, "metric"),
        ("series", {"cluster": "x", "metric": "m", "step": -1}, "step"),
        ("series", {"cluster": "x", "metric": "m", "rate": "yes"}, "rate"),
        ("series", {"cluster": "x", "metric": "m", "since": 5, "until": 4}, "until"),
        ("series", {"cluster": "x", "metric": "m", "step": 1e300}, "step"),
        ("clusters", {"user": ""}, "user"),
        ("clusters", {"user": "\0"}, "user"),
        ("clusters", {"user": ["ada", "li"]}, "user"),
        ("clusters", {"limit": "1e2"}, "limit"),
        ("clusters/x", {"limit": 5}, "limit"),
    ],
)
def test_a_bad_parameter_is_named(
    get: Get, path: str, parameters: dict[str, Any], named: str
) -> None:
    problem = get(path, 400, **parameters)
    assert f"parameter {named} " in problem["detail"]
    assert problem["parameter"] == named


@pytest.mark.parametrize(
    "path",
    ["clusters/no", "clusters/no/computations", "clusters/no/computations/c", "exceptions/no"],
)
def test_what_is_not_there_is_not_found(get: Get, path: str) -> None:
    assert "no" in get(path, 404)["detail"]


def test_another_workspace_sees_none_of_it(shared_service: ServiceProcess, seeded: Seeded) -> None:
    session = requests.Session()
    other = shared_service.token(scopes=["read"], workspace="reads-other")
    session.headers["Authorization"] = f"Bearer {other}"
    api = f"{shared_service.url}/api/v1"
    for path in ("clusters", "computations", "exceptions", "events"):
        assert session.get(f"{api}/{path}", timeout=30).json()["items"] == []
    query: dict[str, str | float] = {
        "cluster": seeded.running,
        "metric": names.WORKER_COUNT.name,
        "since": NOW - 5400,
    }
    assert session.get(f"{api}/series", params=query, timeout=30).json()["items"] == []
    cluster, id = seeded.computations["erred"]
    for path in (
        f"clusters/{seeded.running}",
        f"clusters/{seeded.running}/computations",
        f"clusters/{cluster}/computations/{id}",
        f"exceptions/{seeded.fingerprints[0]}",
    ):
        assert session.get(f"{api}/{path}", timeout=30).status_code == 404
    pages = requests.Session()
    pages.post(f"{shared_service.url}/sign-in", data={"token": other}, timeout=30)
    assert pages.get(f"{shared_service.url}/", timeout=30).status_code == 200
    answer = pages.get(f"{shared_service.url}/clusters/{seeded.running}", timeout=30)
    assert answer.status_code == 404


def test_of_an_exception_twenty_users_are_named_however_many_have_it(
    shared_service: ServiceProcess,
) -> None:
    workspace = f"many-{uuid.uuid4().hex[:8]}"
    sends = shared_service.token(workspace=workspace)
    for number in range(23):
        cluster = make_cluster(user=f"user-{number:02}")
        beat = make_beat(cluster, failures=(make_failure(),))
        assert post(shared_service.url, sends, beat).status_code == 200
    read = _getter(shared_service, sends)
    (found,) = read("exceptions")["items"]
    assert found["clusters"] == 23
    assert found["users"] == [f"user-{number:02}" for number in range(20)]
    assert read(f"exceptions/{found['fingerprint']}")["users"] == found["users"]


def test_an_exceptions_page_leads_from_the_users_own_frames_to_code_and_versions(
    shared_service: ServiceProcess, seeded: Seeded, token: str
) -> None:
    browser = requests.Session()
    browser.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    page = browser.get(f"{shared_service.url}/exceptions/{seeded.fingerprints[0]}", timeout=30).text
    text = " ".join(re.sub("<[^>]*>", " ", page).split())
    steps = (
        "In your code to_metres",
        "called by parse_events",
        "Traceback (most recent call last)",
        "The call that started the computation",
        "With Python 3.12.7, cloudpickle 3.1.2, dask 2026.8.0",
    )
    places = [text.find(step) for step in steps]
    assert -1 not in places
    assert places == sorted(places)
