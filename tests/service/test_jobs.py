"""Jobs: of which one a computation is a run, what its runs come to, and who may see that."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import dask
import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

import daskscope
from daskscope.protocol import CodeFrame, Prices
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.retention.removal import remove_keys
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.beats import (
    ENVIRONMENT,
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    post,
)
from tests.service.job_history import CODE, EDITED, LINE, NOW, Place
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def test_runs_of_one_call_are_one_job_and_its_usual_run_is_their_median(place: Place) -> None:
    ids = [place.run(seconds, 10 - day) for day, seconds in enumerate([10, 12, 11])]
    [job] = place.jobs(runs=3)
    assert (job["level"], job["title"]) == ("code", "result = load('a').sum().compute()")
    assert job["duration"] == pytest.approx(11)
    assert job["task_seconds"] == pytest.approx(22)
    # 4 threads at a dollar a second.
    assert (job["cost"], job["currency"]) == (pytest.approx(4 * 33), "USD")
    assert job["user"] == "ada"
    detail = place.answer(f"jobs/{job['id']}")
    assert [run["computation"] for run in detail["run_list"]] == ids
    assert "too few to say" in detail["sentence"]
    assert detail["changes"] == []
    page = place.page(f"/jobs/{job['id']}")
    assert "Only 3 runs have passed" in page
    assert "result = load(" in place.page("/jobs")
    [run] = place.answer("computations", limit="1")["items"]
    assert run["job"] == job["id"]
    cluster = run["cluster"]
    assert "its other runs" in place.page(f"/clusters/{cluster}/computations/{run['id']}")


def test_a_run_costs_no_more_than_its_cluster(place: Place) -> None:
    # The cluster reports fewer thread-seconds than its run.
    place.run(10, 1, worker_seconds={"busy": 1e12})
    [job] = place.jobs(runs=1)
    assert job["cost"] == pytest.approx(40)
    place.page(f"/jobs/{job['id']}?measure=cost")


def test_a_change_is_found_and_what_differs_since_is_marked(place: Place) -> None:
    newer = {
        "environment": make_cluster(
            environment=ENVIRONMENT.__class__(
                python="3.12.1",
                python_path="/usr/bin/python3",
                operating_system="Linux",
                architecture="x86_64",
                packages={"dask": "2026.9.0", "distributed": "2026.8.0"},
            )
        ).environment
    }
    for day in range(12):
        place.run(10 + day % 3 * 0.1, 20 - day)
    first = place.run(20, 8, cluster=newer, code=EDITED)
    for day in range(5):
        place.run(20.5 + day % 3 * 0.1, 7 - day, cluster=newer, code=EDITED)
    [job] = place.jobs(runs=18)
    detail = place.answer(f"jobs/{job['id']}")
    [change] = detail["changes"]
    assert change["computation"] == first
    assert change["before"] == pytest.approx(10.1, abs=0.1)
    assert change["after"] == pytest.approx(20.5, abs=0.2)
    assert change["chance"] < 0.001
    assert detail["sentence"].startswith("It takes 2.0 times as long as before")
    differ = {run["computation"]: run["differs"] for run in detail["run_list"] if run["differs"]}
    assert differ == {first: ["dask 2026.8.0 → 2026.9.0", "other code"]}
    assert [run["computation"] for run in detail["run_list"] if run["changed"]] == [first]
    [listed] = place.answer("jobs", sort="change")["items"]
    assert listed["change"]["computation"] == first
    assert "2.0 × as long" in place.page("/jobs?sort=change")
    page = place.page(f"/jobs/{job['id']}")
    assert "dask 2026.8.0 → 2026.9.0; other code" in page


def test_failed_runs_are_shown_and_say_nothing_about_the_usual_run(place: Place) -> None:
    place.run(10, 3)
    failed = {"erred": 1, "completed": 99, "states": {"memory": 99, "erred": 1}}
    place.run(500, 2, status="erred", **failed)
    [job] = place.jobs(runs=2)
    assert job["duration"] == pytest.approx(10)
    assert job["status"] == "erred"
    detail = place.answer(f"jobs/{job['id']}")
    assert [run["passed"] for run in detail["run_list"]] == [True, False]


def test_a_name_makes_one_job_of_the_runs_of_many_people(place: Place) -> None:
    for user in ("ada", "bob"):
        place.run(5, 1, user=user, spans=("etl", "load"))
    place.run(5, 1, user="bob")
    named, other = sorted(place.jobs(runs=3), key=lambda one: -one["runs"])
    assert (named["level"], named["name"], named["runs"]) == ("name", "etl / load", 2)
    assert (other["level"], other["user"]) == ("code", "bob")
    detail = place.answer(f"jobs/{named['id']}")
    assert sorted(one["user"] for one in detail["users"]) == ["ada", "bob"]
    assert [one["id"] for one in place.answer("jobs", user="bob")["items"]].count(other["id"]) == 1


def test_jobs_of_one_name_are_told_apart_by_their_calls(place: Place) -> None:
    place.run(5, 2, spans=("etl",))
    other = make_code("import dask\n\nresult = load('a').mean().compute()\n", "/home/ada/run.py")
    place.run(5, 1, spans=("etl",), code=other)
    jobs = place.jobs(runs=2)
    calls = {"result = load('a').sum().compute()", "result = load('a').mean().compute()"}
    assert [job["title"] for job in jobs] == ["etl", "etl"]
    assert {job["call"] for job in jobs} == calls
    page = html.unescape(place.page("/jobs"))
    assert all(call in page for call in calls)


def test_without_code_the_shape_says_which_job_it_is(place: Place) -> None:
    place.run(5, 2, frames=None)
    place.run(5, 1, frames=())
    [job] = place.jobs(runs=2)
    assert (job["level"], job["title"]) == ("shape", "tasks of sum")


def test_a_run_that_goes_on_gets_its_job_when_its_code_has_come(place: Place) -> None:
    cluster = make_cluster(f"Scheduler-{place.workspace}")
    running = make_computation("c1", frames=(CodeFrame("/home/ada/run.py", LINE, CODE.hash),))
    assert post(place.service.url, place.token, make_beat(cluster, computations=(running,))).ok
    assert post(place.service.url, place.token, make_beat(cluster, seq=2, code=(CODE,))).ok
    [job] = place.jobs(runs=1)
    assert (job["level"], job["status"], job["duration"]) == ("code", "running", None)


def test_what_was_stored_before_there_were_jobs_gets_its_job_later(place: Place) -> None:
    place.run(5, 40)
    place.jobs(runs=1)
    computation, job = schema.computation, schema.job
    with writing(place.service.engine) as connection:
        connection.execute(job.delete().where(job.c.workspace == place.workspace))
        connection.execute(
            update(computation)
            .where(computation.c.workspace == place.workspace)
            .values(job=None, job_due_at=0.0)
        )
    [found] = place.jobs(runs=1)
    assert found["duration"] == pytest.approx(5)


def test_a_job_goes_with_its_last_run(place: Place) -> None:
    ids = [place.run(5, day) for day in (3, 2)]
    place.jobs(runs=2)
    table = schema.computation
    query = select(*table.primary_key).where(table.c.workspace == place.workspace)
    with place.service.engine.connect() as connection:
        keys = connection.execute(query.order_by(table.c.started_at)).all()
    assert len(keys) == len(ids)
    remove_keys(place.service.engine, table, keys[:1])
    [job] = place.jobs(runs=1)
    remove_keys(place.service.engine, table, keys[1:])
    assert place.jobs(runs=0) == []
    assert place.ask(f"jobs/{job['id']}").status_code == 404


def test_no_one_sees_the_jobs_of_another_workspace(place: Place, shared_service: Any) -> None:
    place.run(5, 1)
    [job] = place.jobs(runs=1)
    other = Place(shared_service)
    assert other.answer("jobs")["items"] == []
    assert other.ask(f"jobs/{job['id']}").status_code == 404
    assert other.session.get(f"{other.service.url}/jobs/{job['id']}", timeout=30).status_code == 404
    # The same code in another workspace is another job.
    other.run(5, 1)
    [own] = other.jobs(runs=1)
    assert own["runs"] == 1


def test_lists_are_in_the_order_that_is_asked_for_and_go_on_where_they_ended(place: Place) -> None:
    for seconds, day, span in ((3, 3, "a"), (9, 2, "b"), (6, 1, "c")):
        place.run(seconds, day, spans=(span,))
    place.jobs(runs=3)

    def order(**parameters: str) -> list[str]:
        names: list[str] = []
        cursor = None
        while True:
            more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
            page = place.answer("jobs", limit="2", **parameters, **more)
            names += [one["name"] for one in page["items"]]
            cursor = page["next"]
            if cursor is None:
                return names

    assert order() == ["c", "b", "a"]
    assert order(sort="cost") == ["b", "c", "a"]
    assert place.ask("jobs", sort="colour").status_code == 400
    since = str(NOW - 2.5 * 86_400)
    assert order(since=since) == ["c", "b"]


def test_python_and_the_command_line_list_jobs(place: Place) -> None:
    place.run(5, 1)
    [job] = place.jobs(runs=1)
    with dask.config.set({"daskscope.endpoint": place.service.url, "daskscope.token": place.token}):
        [found] = daskscope.list_jobs()
        assert found["id"] == job["id"]
        assert found["last_at"].timestamp() == pytest.approx(NOW - 86_400)
        shown = CliRunner().invoke(cli, ["list", "jobs"], catch_exceptions=False)
        assert "result = load('a').sum().compute()" in shown.output
        as_json = CliRunner().invoke(
            cli, ["list", "jobs", "--sort", "cost", "--json"], catch_exceptions=False
        )
        assert json.loads(as_json.output)["id"] == job["id"]


def test_a_job_says_which_size_its_workers_need(place: Place) -> None:
    small = {"memory_limit": 4 * 8 * 2**30, "peak_worker_memory": 2**30}
    priced = {"prices": Prices("USD", {"thread": 3600.0, "gib": 1.0})}
    for day in range(4):
        place.run(20, 9 - day, status_fields=small, cluster=priced)
    [job] = place.jobs(runs=4)
    sizing = place.answer(f"jobs/{job['id']}")["sizing"]
    assert (sizing["runs"], sizing["missing"], sizing["proposals"]) == (4, 1, [])
    assert sizing["sentence"] in place.page(f"/jobs/{job['id']}")
    place.run(20, 1, status_fields=small, cluster=priced)
    place.jobs(runs=5)
    [found] = place.answer(f"jobs/{job['id']}")["sizing"]["proposals"]
    assert (found["what"], found["wanted"]) == ("memory", 1.25 * 2**30)
    page = place.page(f"/jobs/{job['id']}")
    assert found["sentence"] in page
    assert "<code>--memory-limit 1280MiB</code>" in page
    assert found["saving"]["text"] in page
    assert found["saving"]["text"].endswith("(estimate)")
    stored: list[Any] = []

    def is_stored() -> bool:
        stored[:] = place.answer("findings", rule="oversized-memory")["items"]
        return bool(stored)

    assert wait_until(is_stored)
    [finding] = stored
    assert finding["computation"] == "run-5"
    assert finding["sentence"] == (
        "No worker used more than 1 GiB of 8 GiB in its job's last 5 passed runs: 1.25 GiB would "
        "do."
    )
    assert finding["saving"]["high"] == pytest.approx(found["saving"]["high"])
    assert finding["cost"] == pytest.approx(found["saving"]["high"])
    csv = place.session.get(f"{place.service.url}/findings.csv", timeout=30).text
    assert "oversized-memory" in csv
    [before] = [one for one in place.answer("computations")["items"] if one["id"] == "run-4"]
    whole = place.answer(f"clusters/{before['cluster']}/computations/run-4")
    assert whole["not_measured"]["oversized-memory"] == "1 more passed run of its job"


@pytest.mark.sqlite
def test_jobs_are_ranked_by_what_would_save_most_of_a_month(place: Place) -> None:
    for day in (2, 3, 40):  # the last one is not of this month
        place.run(100, day, worker_seconds={"busy": 340.0, "idle": 0.0, "paused": 60.0})
    large = place.run(
        100, 1, spans=("large",), worker_seconds={"busy": 310.0, "idle": 0.0, "paused": 90.0}
    )
    place.run(1, 1, spans=("fine",))
    # They are summarised before anything is found, and then again.
    place.jobs(runs=5)
    evaluator = Evaluator(place.service.engine, EmbeddedSeries(place.service.engine), 60.0)

    def ranked() -> list[Any]:
        evaluator.round()
        found = place.jobs(runs=5, sort="saving")
        return [(one["name"] or one["level"], one["saves_most"]) for one in found]

    def is_found() -> bool:
        return len([one for _, one in ranked() if one]) == 2

    assert wait_until(is_found)
    [first, second, last] = ranked()
    cause = {"rule": "paused", "findings": 2, "seconds": 120.0, "sources": ["cluster"]}
    assert first == ("code", cause | {"cost": {"USD": pytest.approx(120.0)}})
    assert second[0] == "large"
    assert second[1]["seconds"] == 90.0
    assert last == ("fine", None)
    page = place.page("/jobs?sort=saving")
    assert ">Paused</a>" in page
    assert "found 2 ×" in page
    rows = place.page("/jobs.csv?sort=saving")
    assert "paused,120" in rows
    with dask.config.set({"daskscope.endpoint": place.service.url, "daskscope.token": place.token}):
        jobs = daskscope.list_jobs(sort="saving")
    saves_most = jobs[0]["saves_most"]
    assert saves_most is not None
    assert saves_most["findings"] == 2
    assert "paused" in repr(jobs)

    # A mute leaves a finding out at once, and its end brings it back.
    wish = {"rule": "paused", "cluster": f"Scheduler-{place.workspace}-4", "computation": large}
    until = datetime.now(UTC) + timedelta(days=1)
    wish |= {"reason": "a known test", "until_at": until.isoformat()}
    owner = browser_of(place.service, make_user(place.service, {place.workspace: "owner"}).name)
    muted = owner.post(f"{place.service.url}/api/v1/mutes", json=wish, timeout=30)
    assert muted.status_code == 201, muted.text
    assert dict(ranked())["large"] is None
    ended = owner.delete(f"{place.service.url}/api/v1/mutes/{muted.json()['id']}", timeout=30)
    assert ended.ok, ended.text
    assert dict(ranked())["large"] is not None
