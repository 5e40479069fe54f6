"""Findings on pages and in answers: what stands out, of what clusters sent."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import re
import shlex
import time
from datetime import datetime
from typing import Any

import dask
import pandas as pd
import pytest
import requests
from click.testing import CliRunner
from sqlalchemy import select, update

import daskscope
from daskscope.protocol import Prices
from daskscope_service.cli.main import cli
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.findings.evaluator import mark_all
from daskscope_service.insight.findings.rules import RULES
from daskscope_service.insight.wording import duration
from daskscope_service.retention.removal import remove_keys
from tests.patience import wait_until
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_status,
    make_task_group,
    make_tiny_tasks,
    make_worker_loss,
    post,
)
from tests.service_process import ServiceProcess

WORKSPACE = "findings"
NOW = time.time()
CLUSTER = "Scheduler-findings"
RULES_BY_NAME = {rule.name: rule for rule in RULES}
STATUS = make_status(threads=4, peak_threads=4, workers=2, peak_workers=2)


def seconds_ago(begin: float, end: float) -> dict[str, Any]:
    return {"started_at": NOW - begin, "stopped_at": NOW - end, "status": "finished"}


class Reader:
    """Reads pages and answers of the workspace."""

    def __init__(self, service: ServiceProcess, workspace: str = WORKSPACE) -> None:
        self.url = service.url
        self.token = service.token(scopes=["ingest", "read"], workspace=workspace)
        self.session = requests.Session()
        self.session.post(f"{self.url}/sign-in", data={"token": self.token}, timeout=30)

    def verdict(self, path: str) -> str:
        page = self.html(path)
        found = re.search(r'<p class="verdict">(.*?)</p>', page)
        assert found is not None, page
        return html.unescape(found[1])

    def html(self, path: str) -> str:
        answer = self.session.get(self.url + path, timeout=30)
        assert answer.ok, answer.text
        return answer.text

    def page(self, path: str) -> str:
        text = re.sub("<[^>]*>", " ", self.html(path))
        return html.unescape(" ".join(text.split()))

    def answer(self, path: str, **parameters: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.get(
            f"{self.url}/api/v1/{path}", params=parameters, headers=headers, timeout=30
        )
        assert answer.ok, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def shared_service(quick_service: ServiceProcess) -> ServiceProcess:
    return quick_service


@pytest.fixture
def elsewhere(shared_service: ServiceProcess) -> Reader:
    """Return the reader of a workspace beside that of which the findings are listed."""
    return Reader(shared_service, f"{WORKSPACE}-beside")


@pytest.fixture(scope="module")
def reader(shared_service: ServiceProcess) -> Reader:
    reader = Reader(shared_service)
    tiny = make_tiny_tasks("tiny", NOW - 500, NOW - 483.6)
    died: dict[str, Any] = {
        "tasks": 2,
        "completed": 0,
        "erred": 2,
        "states": {"erred": 2},
        "seconds": {},
    }
    beat = make_beat(
        make_cluster(CLUSTER, started_at=NOW - 600, interval=60.0),
        status=STATUS,
        computations=(
            *tiny["computations"],
            make_computation("died", **seconds_ago(300, 280) | {"status": "erred"}, **died),
        ),
        task_groups=(
            *tiny["task_groups"],
            make_task_group("died", "grow", prefix="grow", **died),
        ),
        failures=(make_failure(computation="died", type="KilledWorker", count=2),),
        worker_losses=tuple(
            make_worker_loss(
                id=f"w{i}",
                at=NOW - 290 + i,
                reason="out of memory",
                memory_limit=300_000_000,
                nanny_memory=size,
                tasks={"grow": 1},
                computations={"died": 1},
            )
            for i, size in enumerate((290_000_000, 320_000_000))
        ),
    )
    assert post(reader.url, reader.token, beat).ok
    return reader


def test_the_first_sentence_of_a_computation_names_the_cause(reader: Reader) -> None:
    path = f"/clusters/{CLUSTER}/computations/tiny"
    assert reader.verdict(path) == (
        "Finished in 16.4 s: its 15,000 tasks took 40 µs each, and Dask needs up to 1 ms for each: "
        "computing was 1\N{NO-BREAK SPACE}% of the threads' time."
    )
    page = reader.page(path)
    assert "task runs 15,000 · compute time of a run 40 µs" in page
    assert "What to do: Put more inputs into one task. about 1,000 for each task" in page
    assert "saves 3.0 s to 15.0 s" in page


def test_an_answer_has_what_its_page_shows(reader: Reader) -> None:
    found = reader.answer(f"clusters/{CLUSTER}/computations/died")
    assert found["headline"] == (
        "Failed after 20.0 s: its tasks of grow ran 2 workers out of memory, at 277 MiB to 305 MiB "
        "of the 286 MiB that each may use; Dask gave up."
    )
    assert reader.verdict(f"/clusters/{CLUSTER}/computations/died") == found["headline"]
    first, second = found["findings"]
    assert (first["rule"], first["severity"]) == ("out-of-memory", "critical")
    assert (second["rule"], second["suppressed_by"]) == ("failed", "out-of-memory")
    lost = {"name": "workers lost", "value": 2, "unit": "{worker}", "link": "h-lost"}
    assert lost | {"text": "2"} in first["evidence"]
    assert (first["cluster"], first["computation"], first["subject"]) == (
        CLUSTER,
        "died",
        "computation",
    )


def test_a_cluster_names_what_happened_on_it(reader: Reader) -> None:
    assert "ran 2 workers out of memory" in reader.verdict(f"/clusters/{CLUSTER}")
    found = reader.answer(f"clusters/{CLUSTER}")
    assert [one["rule"] for one in found["findings"]] == ["out-of-memory"]
    assert found["not_measured"]["over-provisioned-memory"]


def test_a_cluster_that_is_gone_says_what_it_did_cost_and_lost_and_why_it_was_idle(
    elsewhere: Reader,
) -> None:
    id, began = "Scheduler-went", NOW - 900
    cluster = make_cluster(
        id, started_at=began, prices=Prices(currency="USD", per_hour={"thread": 1.0})
    )
    costs: dict[str, Any] = {"cost": 0.2, "idle_cost": 0.18}
    shown: dict[str, Any] = {
        "computations": tuple(
            make_computation(f"c{status}", **seconds_ago(880, 870) | {"status": status}, tasks=1)
            for status in ("finished", "erred", "cancelled")
        ),
        "worker_losses": (
            make_worker_loss(id="gone", at=NOW - 890, expected=False, reason="lost connection"),
            make_worker_loss(id="closed", at=NOW - 871, expected=True, reason="closed"),
        ),
    }
    stop = make_beat(
        cluster,
        seq=2,
        phase="stop",
        status=make_status(at=began + 49, idle_seconds=20.0, stopped_at=began + 49, **costs),
        **shown,
    )
    assert post(elsewhere.url, elsewhere.token, stop).ok
    assert elsewhere.verdict(f"/clusters/{id}") == (
        "It stopped after 49.0 s, in which it ran 3 computations (1 failed, 1 cancelled), lost "
        "1 worker and cost 0.20 USD, 0.18 USD of it idle."
    )
    idle = make_status(
        at=began + 49,
        idle_seconds=48.1,
        stopped_at=began + 49,
        held_by={"clients": 1, "results": 8},
        **costs,
    )
    stop = make_beat(cluster, seq=3, phase="stop", status=idle, **shown)
    assert post(elsewhere.url, elsewhere.token, stop).ok
    assert elsewhere.verdict(f"/clusters/{id}") == (
        "It stopped after 49.0 s, in which it ran 3 computations (1 failed, 1 cancelled) and lost "
        "1 worker: it was idle for 48.1 s of the 49.0 s that it was up (0.18 USD of 0.20 USD), "
        "with 1 client connected and 8 results held in memory."
    )


@pytest.mark.parametrize(("had", "is_near"), [(1900, False), (3800, True)])
def test_a_worker_is_near_its_own_limit_though_others_have_left(
    elsewhere: Reader, had: int, is_near: bool
) -> None:
    # Of four workers of 4 GiB, two are left. Half the limit of one is not the limit.
    id = f"Scheduler-of-workers-that-left-{had}"
    status = make_status(
        at=NOW - 50, stopped_at=NOW - 50, workers=2, memory_limit=2**33, peak_workers=4,
        peak_worker_memory=had * 2**20,
    )  # fmt: skip
    beat = make_beat(make_cluster(id, started_at=NOW - 600), phase="stop", status=status)
    assert post(elsewhere.url, elsewhere.token, beat).ok
    found = {one["rule"]: one["sentence"] for one in elsewhere.answer(f"findings/{id}")["findings"]}
    assert ("nearly-out-of-memory" in found) == is_near
    if is_near:
        assert "of its 4 GiB (93\N{NO-BREAK SPACE}%)" in found["nearly-out-of-memory"]


def test_a_computation_whose_cluster_is_silent_says_so_before_any_cause(elsewhere: Reader) -> None:
    id = "Scheduler-silent-with-retries"
    retries: dict[str, Any] = {"tasks": 60, "completed": 50, "erred": 0, "retried": 120}
    beat = make_beat(
        make_cluster(id, started_at=NOW - 100, interval=0.1),
        status=make_status(at=NOW - 50),
        computations=(
            make_computation("tries", started_at=NOW - 100, **retries, states={"memory": 50}),
        ),
        failures=(make_failure(computation="tries", count=120, retried=120, type="TimeoutError"),),
    )
    assert post(elsewhere.url, elsewhere.token, beat).ok
    page = f"/clusters/{id}/computations/tries"
    said = wait_until(
        lambda: next(filter(lambda said: "not reported" in said, [elsewhere.verdict(page)]), None),
        what="the page to say that the cluster is silent",
    )
    assert re.fullmatch(
        r"Running for 50\.0 s, 50 of 60 tasks done; its cluster has not reported for [0-9.]+ m?s\. "
        r"120 of 170 runs failed with TimeoutError and were run again\.",
        said,
    ), said


def test_a_cluster_without_a_worker_says_that_tasks_wait_for_one(elsewhere: Reader) -> None:
    id, began = "Scheduler-without-workers", NOW - 125
    waits = make_computation(
        "waits",
        started_at=began,
        tasks=10,
        completed=0,
        erred=0,
        states={"queued": 10},
        unrunnable_seconds=120.0,
        asks={"any worker": 10},
    )
    held = {"queued": 10, "clients": 1}
    beat = make_beat(
        make_cluster(id, started_at=began, interval=600.0),
        status=make_status(at=NOW, workers=0, idle_seconds=None, held_by=held, busy_by=()),
        computations=(waits,),
    )
    assert post(elsewhere.url, elsewhere.token, beat).ok
    computation = f"/clusters/{id}/computations/waits"
    found = "10 tasks wait for a worker that can run them: there is no worker"
    assert elsewhere.verdict(f"/clusters/{id}") == (
        "It is up, and stuck: 10 tasks wait, and there is no worker."
    )
    assert elsewhere.verdict(computation) == (
        f"Running for 2 min 5 s, 0 of 10 tasks done: {found}."
    )
    assert "10 tasks that no worker can run: there is no worker." in elsewhere.page("/")
    # It has had no time to start workers.
    early = dataclasses.replace(waits, unrunnable_seconds=2.0)
    again = dataclasses.replace(beat, seq=beat.seq + 1, computations=(early,))
    assert post(elsewhere.url, elsewhere.token, again).ok
    assert elsewhere.verdict(computation) == (
        "0 of 10 tasks done after 2 min 5 s: 10 tasks wait, and there is no worker."
    )


def test_a_cluster_that_is_gone_says_what_no_worker_could_run(elsewhere: Reader) -> None:
    id, began = "Scheduler-without-gpu", NOW - 900
    cancelled = make_computation(
        "some-wait",
        **seconds_ago(880, 280) | {"status": "cancelled"},
        tasks=100,
        completed=97,
        erred=0,
        cancelled=3,
        states={"memory": 97},
        unrunnable_seconds=600.0,
        asks={"GPU=1": 3},
    )
    stop = make_beat(
        make_cluster(id, started_at=began),
        phase="stop",
        status=make_status(at=NOW - 200, stopped_at=NOW - 200, peak_workers=2),
        computations=(cancelled, make_computation("waits-less", unrunnable_seconds=1.0)),
    )
    assert post(elsewhere.url, elsewhere.token, stop).ok
    why = (
        "3 tasks waited for a worker that can run them: none of 2 workers was or had what they "
        "asked for (GPU=1)."
    )
    assert elsewhere.verdict(f"/clusters/{id}").endswith(f": {why}")
    assert elsewhere.verdict(f"/clusters/{id}/computations/some-wait") == (
        f"Cancelled after 10 min: {why}"
    )


@pytest.mark.parametrize("status", ["erred", "running"])
def test_what_needs_a_failed_task_names_it_and_links_to_it(elsewhere: Reader, status: str) -> None:
    id = f"Scheduler-blamed-{status}"
    waits: dict[str, Any] = {"tasks": 201, "completed": 199, "erred": 0, "blamed": 2}
    states = {"erred": 2, "memory": 199}
    began: dict[str, Any] = {"started_at": NOW - 60, "stopped_at": NOW - 55, "status": "erred"}
    beat = make_beat(
        make_cluster(id, started_at=NOW - 100),
        status=make_status(at=NOW - 50),
        computations=(
            make_computation("first", **began, erred=1),
            make_computation("last", **began, erred=1),
            make_computation(
                "waits",
                status=status,
                started_at=NOW - 60,
                stopped_at=None if status == "running" else NOW - 55,
                states=states,
                blames={"first": "divide"},
                **waits,
            ),
            make_computation(
                "never",
                **began | {"ended_at": NOW - 55, "mostly_done_at": NOW - 55},
                **waits | {"tasks": 2, "completed": 0},
                states={"erred": 2},
                blames={"first": "divide"},
            ),
        ),
        failures=(
            make_failure(
                computation="first",
                fingerprint="1:f1",
                function="other",
                type="OSError",
                last_at=NOW - 56,
            ),
            make_failure(computation="first", fingerprint="1:f2"),
            make_failure(
                computation="first", fingerprint="1:f4", type="ValueError", last_at=NOW - 58
            ),
            make_failure(computation="last", fingerprint="1:f3", type="KeyError", last_at=NOW - 51),
        ),
    )
    assert post(elsewhere.url, elsewhere.token, beat).ok
    page = f"/clusters/{id}/computations/waits"
    needs = "2 of 201 tasks need divide, which failed with ZeroDivisionError or another exception"
    assert elsewhere.verdict(page) == (
        f"Running for 10.0 s, 199 of 201 tasks done: {needs}."
        if status == "running"
        else f"Not finished after 5.0 s: {needs}; 199 are done."
    )
    shown = " ".join(elsewhere.html(page).split())
    link = f'<a href="/clusters/{id}/computations/first">divide</a>'
    assert f'<dd class="bad">2</dd> <dd class="faint"> need {link}' in shown
    never = elsewhere.page(f"/clusters/{id}/computations/never")
    assert "Not run: 2 of 2 tasks need divide, which failed with ZeroDivisionError" in never
    assert "95 % done" not in never
    (listed,) = (one for one in elsewhere.answer("computations", cluster=id)["items"]
                 if one["id"] == "waits")  # fmt: skip
    assert "2 of 201 tasks need" in listed["sentence"] or "2 tasks need" in listed["sentence"]


def test_losses_are_of_the_computations_whose_runs_ended_with_them(elsewhere: Reader) -> None:
    id = "Scheduler-joined"
    # Two with tasks of the same name, at the same time.
    counts: dict[str, Any] = {"tasks": 2, "completed": 0, "erred": 2, "states": {"erred": 2}}
    both = {
        one: make_computation(one, **seconds_ago(300, 280) | {"status": "erred"}, **counts)
        for one in ("hungry", "modest")
    }
    oom: dict[str, Any] = {"reason": "out of memory", "memory_limit": 300_000_000}
    beat = make_beat(
        make_cluster(id, started_at=NOW - 600),
        status=STATUS,
        computations=tuple(both.values()),
        task_groups=tuple(make_task_group(one, "grow", prefix="grow", **counts) for one in both),
        failures=tuple(
            make_failure(computation=one, fingerprint=f"1:{one}", type=type)
            for one, type in (("hungry", "KilledWorker"), ("modest", "KeyError"))
        ),
        worker_losses=(
            make_worker_loss(
                id="w0",
                name="worker-7",
                at=NOW - 290,
                tasks={"grow": 3},
                nanny_memory=290_000_000,
                peak_memory=320_000_000,
                computations={"hungry": 3},
                deployment={"slurm.job.id": "4711"},
                **oom,
            ),
        ),
    )
    assert post(elsewhere.url, elsewhere.token, beat).ok
    where = f"/clusters/{id}/computations"
    assert "out of memory" in elsewhere.verdict(f"{where}/hungry")
    assert "KeyError" in elsewhere.verdict(f"{where}/modest")
    hungry, modest = elsewhere.page(f"{where}/hungry"), elsewhere.page(f"{where}/modest")
    row = "worker-7 slurm.job.id 4711 out of memory 10.0 s 3 305 MiB of 286 MiB"
    assert "Workers it lost 1 Worker Why After Its runs Memory" in hungry
    assert row in hungry
    assert "out of memory, at 305 MiB of the 286 MiB" in hungry
    assert "One worker had 305 MiB of the 286 MiB that it may use when it ended" in hungry
    assert "Workers it lost" not in modest
    shown = " ".join(elsewhere.html(f"/clusters/{id}").split())
    assert re.search(rf'3 runs of</span> <a href="{where}/hungry"> ?\S', shown)


def test_what_came_after_a_computations_end_is_not_its(elsewhere: Reader) -> None:
    id, path = "Scheduler-after", "/clusters/Scheduler-after/computations/done"
    group = make_task_group("done", "work", prefix="work")
    beat = make_beat(
        make_cluster(id, started_at=NOW - 600),
        status=STATUS,
        computations=(make_computation("done", **seconds_ago(300, 290), states={"memory": 100}),),
        task_groups=(group,),
        # Its lost results were computed again, and workers were lost with these runs.
        failures=(
            make_failure(
                computation="done", type="KilledWorker", function="work",
                first_at=NOW - 287, last_at=NOW - 287,
            ),
        ),
        worker_losses=tuple(
            make_worker_loss(
                id=f"w{at}", at=NOW - 290 + at, reason="process died", tasks={"work": 1}
            )
            for at in (1, 2, 3)
        ),
    )  # fmt: skip
    assert post(elsewhere.url, elsewhere.token, beat).ok
    found = elsewhere.answer(f"clusters/{id}/computations/done")
    assert found["findings"] == []
    for sentence in (found["headline"], elsewhere.verdict(path)):
        assert sentence.startswith("Finished: 100 tasks in 10.0 s.")
    assert "KilledWorker" in elsewhere.page(path)  # it is among its exceptions


# --- what is stored -------------------------------------------------------------------------------


def stored(reader: Reader, **parameters: str) -> list[Any]:
    found: list[Any] = reader.answer("findings", **parameters)["items"]
    return found


@pytest.fixture(scope="module")
def listed(reader: Reader) -> list[Any]:
    """Return the findings of the workspace, once the service has made them in the background."""

    def all_there() -> list[Any] | None:
        found = stored(reader)
        return found if {one["subject"] for one in found} == {"computation", "cluster"} else None

    return wait_until(all_there, seconds=90)


def test_findings_are_made_in_the_background_and_listed(reader: Reader, listed: list[Any]) -> None:
    assert [(one["rule"], one["subject"]) for one in listed] == [
        ("out-of-memory", "computation"),
        ("failed", "computation"),
        ("tiny-tasks", "computation"),
        ("out-of-memory", "cluster"),
    ]
    tiny = listed[2]
    assert tiny["sentence"].startswith("Its 15,000 tasks took 40 µs each")
    assert tiny["url"].endswith(f"/clusters/{CLUSTER}/computations/tiny")
    assert tiny["saving"]["high"] == pytest.approx(15, abs=0.1)
    assert [one["rule"] for one in stored(reader, severity="critical", rule="failed")] == ["failed"]
    assert stored(reader, user="nobody") == []
    first = reader.answer("findings", limit="3")
    rest = reader.answer("findings", limit="3", cursor=first["next"])
    assert first["items"] + rest["items"] == listed


def test_effects_are_left_out_of_the_list_or_named_as_such(
    reader: Reader, listed: list[Any]
) -> None:
    causes = [one for one in listed if one["suppressed_by"] is None]
    assert len(causes) == len(listed) - 1
    assert stored(reader, effects="false") == causes
    assert stored(reader, effects="true") == listed

    def lines(*options: str) -> list[str]:
        asked = CliRunner().invoke(cli, ["list", "findings", *options])
        assert asked.exit_code == 0, asked.output
        return asked.output.splitlines()

    with dask.config.set({"daskscope.endpoint": reader.url, "daskscope.token": reader.token}):
        head, *rows = lines()
        assert ("EFFECT OF" in head, len(rows)) == (False, len(causes))
        assert lines("--severity", "critical", "--rule", "tiny-tasks")[1:] == []
        [row] = lines("--rule", "tiny-tasks")[1:]
        assert "Its 15,000 tasks took" in row
        assert lines("--rule", "failed")[1:] == []
        head, row = lines("--rule", "failed", "--effects")
        assert head.index("EFFECT OF") == row.index("out-of-memory")
        assert daskscope.list_findings(rule="failed", effects=False) == []


def test_lists_name_the_first_cause_and_are_filtered_by_it(
    reader: Reader, listed: list[Any]
) -> None:
    computations = reader.answer("computations")["items"]
    assert {one["id"]: one["cause"]["rule"] for one in computations} == {
        "tiny": "tiny-tasks",
        "died": "out-of-memory",
    }
    tiny = next(one for one in computations if one["id"] == "tiny")
    assert tiny["cause"]["sentence"] == listed[2]["sentence"]
    (cluster,) = reader.answer("clusters")["items"]
    assert (cluster["cause"]["rule"], cluster["cause"]["severity"]) == ("out-of-memory", "critical")

    def chosen(path: str, rule: str) -> list[str]:
        return [one["id"] for one in reader.answer(path, finding=rule)["items"]]

    assert chosen("computations", "tiny-tasks") == ["tiny"]
    assert chosen("computations", "tiny tasks") == ["tiny"]  # as pages call it
    assert chosen(f"clusters/{CLUSTER}/computations", "out-of-memory") == ["died"]
    assert chosen("computations", "failed") == []  # an effect of the memory
    assert chosen("clusters", "out-of-memory") == [CLUSTER]
    assert chosen("clusters", "tiny-tasks") == []  # its computation has that
    with dask.config.set({"daskscope.endpoint": reader.url, "daskscope.token": reader.token}):
        (one,) = daskscope.list_computations(finding="tiny-tasks")
        assert one["id"] == "tiny"
        assert daskscope.list_clusters(finding="tiny-tasks") == []

    page = reader.html("/computations?finding=tiny-tasks")
    assert f'href="/clusters/{CLUSTER}/computations/tiny#finding-tiny-tasks"' in page
    assert "computations/died" not in page
    assert f'href="/clusters/{CLUSTER}#finding-out-of-memory"' in reader.html("/clusters")
    assert "No cluster matches" in reader.page("/clusters?finding=tiny-tasks")
    (row,) = csv.DictReader(reader.html("/computations.csv?finding=tiny-tasks").splitlines())
    assert (row["id"], row["finding"]) == ("tiny", "tiny-tasks")


def test_evidence_leads_to_a_part_of_its_page(reader: Reader, listed: list[Any]) -> None:
    for path in (f"clusters/{CLUSTER}", f"clusters/{CLUSTER}/computations/tiny"):
        page = reader.html(f"/{path}")
        links = re.findall(r'<a href="#([a-z-]+)">[^<]*</a>\s+[^<]*·', page)
        assert links
        assert set(links) <= set(re.findall(r' id="([^"]*)"', page))


def test_a_page_adds_up_what_causes_cost_and_lists_them(reader: Reader, listed: list[Any]) -> None:
    lost: dict[str, float] = {}
    for one in listed:
        if one["severity"] != "notice" and one["suppressed_by"] is None:
            lost[one["rule"]] = lost.get(one["rule"], 0.0) + (one["seconds"] or 0.0)
    assert lost["tiny-tasks"] > 30
    page = reader.html("/findings")
    table = page[page.index('<h2 id="h-causes">') : page.index("Each finding")]
    assert re.findall(r'id="cause-([a-z-]+)"', table) == sorted(lost, key=lost.__getitem__)[::-1]
    assert duration(lost["tiny-tasks"]) in table
    each = page[page.index("Each finding") :]
    assert re.findall(r"#finding-([a-z-]+)", each)[::2] == [
        "out-of-memory",
        "tiny-tasks",
        "out-of-memory",
    ]
    overview = reader.page("/")
    assert f"Tiny tasks : {RULES_BY_NAME['tiny-tasks'].meaning}" in overview
    found = overview.partition(f"{duration(lost['tiny-tasks'])} of threads lost, ")[2]
    assert re.match(r"[\d.]+ USD \(estimate at list prices\), found 1 ×", found)
    # The cluster and its computation have it, and it is one accident.
    assert [one["rule"] for one in listed].count("out-of-memory") == 2
    died = overview.partition(f"Out of memory : {RULES_BY_NAME['out-of-memory'].meaning}")[2]
    assert died.lstrip().startswith("found 1 ×")
    assert re.search(
        r">out-of-memory.*?>1 ×<", table.replace("out of memory", "out-of-memory"), re.S
    )
    most = max(lost, key=lost.__getitem__)
    of_people = reader.page("/people").partition("What would save most")[2]
    named = f"{most.replace('-', ' ').capitalize()} {duration(lost[most])} of threads lost, "
    assert named in of_people
    assert "No finding matches" in reader.page("/findings?rule=spilling")
    rows = list(csv.DictReader(reader.html("/findings.csv?rule=tiny-tasks").splitlines()))
    assert [float(row["thread_seconds_lost"]) for row in rows] == [lost["tiny-tasks"]]


def test_nothing_is_due_once_it_was_judged_and_anything_new_is(
    reader: Reader, listed: list[Any], shared_service: ServiceProcess
) -> None:
    def due() -> set[str]:
        table = schema.computation
        query = select(table.c.id).where(
            table.c.workspace == WORKSPACE, table.c.judge_at <= time.time()
        )
        with shared_service.engine.connect() as connection:
            return set(connection.execute(query).scalars())

    wait_until(lambda: not due(), seconds=60)
    retried = make_computation(
        "retried", **seconds_ago(200, 190), completed=60, erred=0, retried=120, tasks=60,
        states={"memory": 60},
    )  # fmt: skip
    beat = make_beat(make_cluster(CLUSTER), seq=2, status=STATUS, computations=(retried,))
    assert post(reader.url, reader.token, beat).ok
    wait_until(lambda: stored(reader, rule="retries"), seconds=60)


def test_a_program_and_the_command_line_are_told_why(reader: Reader, listed: list[Any]) -> None:
    with dask.config.set({"daskscope.endpoint": reader.url, "daskscope.token": reader.token}):
        found = daskscope.why("tiny")
        assert (found["subject"], found["cluster"]) == ("computation", CLUSTER)
        assert isinstance(found["findings"][0]["at"], datetime)
        assert daskscope.why(CLUSTER)["subject"] == "cluster"
        with pytest.raises(daskscope.NotFound, match="no cluster and no computation 'nowhere'"):
            daskscope.why("nowhere")
        (one,) = daskscope.list_findings(rule="tiny-tasks")
        assert isinstance(one["found_at"], datetime)
        for shown in (repr(found), repr(one)):
            assert "→ Put more inputs into one task. (about 1,000 for each task)" in shown
            assert re.search(r"\n    saves [\d.]+ s to [\d.]+ s, .* USD", shown)
        assert repr(one).replace("\n", " ").startswith(one["sentence"])
        linked = next(measure for measure in one["evidence"] if measure["link"])
        assert f'href="{one["url"]}#{linked["link"]}"' in one._repr_html_()  # type: ignore[attr-defined]
        assert {"rule", "cluster", "evidence"} <= set(pd.DataFrame([one, one]).columns)
        said = CliRunner().invoke(cli, ["why", "tiny"])
        as_json = CliRunner().invoke(cli, ["why", "tiny", "--json"])
    assert said.exit_code == as_json.exit_code == 0
    assert " ".join(said.output.split()).startswith(found["headline"].replace("\xa0", " "))
    assert "→ Put more inputs into one task. (about 1,000 for each task)" in said.output
    assert found["url"] in said.output
    after = said.output.partition("What to ask next:\n")[2].split("\n")
    assert "  daskscope list computations --finding tiny-tasks" in after
    with dask.config.set({"daskscope.endpoint": reader.url, "daskscope.token": reader.token}):
        for command in filter(None, map(str.strip, after)):
            asked = CliRunner().invoke(cli, shlex.split(command)[1:])
            assert asked.exit_code == 0, asked.output
    assert json.loads(as_json.output)["headline"] == found["headline"]


def test_findings_can_be_made_anew_and_go_with_their_computation(
    reader: Reader, listed: list[Any], shared_service: ServiceProcess
) -> None:
    engine = shared_service.engine
    with writing(engine) as connection:
        connection.execute(
            update(schema.finding)
            .where(schema.finding.c.workspace == WORKSPACE)
            .values(sentence="of an older version")
        )
    assert mark_all(engine, WORKSPACE) >= 2
    wait_until(
        lambda: all(
            one["sentence"] != "of an older version"
            for one in stored(reader)
            if one["subject"] == "computation"
        ),
        seconds=60,
    )
    remove_keys(engine, schema.computation, [(WORKSPACE, CLUSTER, "tiny")])
    assert "tiny" not in {one["computation"] for one in stored(reader)}


def test_a_computation_that_runs_is_looked_at_again_in_a_minute_and_no_sooner(
    reader: Reader, shared_service: ServiceProcess
) -> None:
    def judge_at() -> float | None:
        table = schema.computation
        query = select(table.c.judge_at).where(
            table.c.workspace == WORKSPACE, table.c.id == "running"
        )
        with shared_service.engine.connect() as connection:
            return connection.execute(query).scalar()

    def send(seq: int) -> None:
        computation = make_computation("running", completed=40 + seq)
        beat = make_beat(make_cluster("Scheduler-runs"), seq=seq, computations=(computation,))
        assert post(reader.url, reader.token, beat).ok

    send(1)
    wait_until(lambda: (judge_at() or 0) > time.time() + 20, seconds=60)
    due = judge_at()
    send(2)
    assert judge_at() == due
