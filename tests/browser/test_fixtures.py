"""The kept runs: what they tell when they are sent again, and that they tell of no machine."""

from __future__ import annotations

import json
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from daskscope import names
from tests.browser.fixtures import tape
from tests.browser.fixtures.record import anonymous, record, telltales
from tests.browser.fixtures.tape import BEATS, KINDS, Sent, load, replay
from tests.service_process import ServiceProcess


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By kind, what the API tells of its run: the cluster, exceptions, and series."""
    found: dict[str, dict[str, Any]] = {}
    with ServiceProcess(tmp_path_factory.mktemp("replay")) as service:
        workspace = f"w-{uuid.uuid4().hex}"
        headers = {"Authorization": f"Bearer {service.token(workspace=workspace)}"}
        since = time.time() - 3600
        for kind in KINDS:
            id = replay(service, kind, workspace)
            found[kind] = {"id": id}
            of_it = {"cluster": id}
            series = of_it | {"metric": names.WORKER_COUNT.name, "since": str(since)}
            for what, path, parameters in (
                ("cluster", f"clusters/{id}", {}),
                ("computations", "computations", of_it),
                ("exceptions", "exceptions", of_it),
                ("series", "series", series),
            ):
                answer = requests.get(
                    f"{service.url}/api/v1/{path}", parameters, headers=headers, timeout=30
                )
                answer.raise_for_status()
                found[kind][what] = answer.json()
    return found


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("finished", "stopped"),
        ("failed", "stopped"),
        ("lost", "lost"),
        ("idle", "running"),
        ("stuck", "running"),
    ],
)
def test_a_run_is_told_as_it_was_and_as_of_now(
    told: dict[str, dict[str, Any]], kind: str, status: str
) -> None:
    run = told[kind]

    assert run["cluster"]["status"] == status
    began = datetime.fromisoformat(run["cluster"]["started_at"]).timestamp()
    assert time.time() - 3600 < began < time.time()
    assert run["computations"]["items"]
    assert any(line["values"] for line in run["series"]["items"])


def test_each_run_has_what_it_is_kept_for(told: dict[str, dict[str, Any]]) -> None:
    statuses = {
        kind: {one["status"] for one in run["computations"]["items"]} for kind, run in told.items()
    }

    assert statuses["finished"] == {"finished"}
    assert "erred" in statuses["failed"]
    assert [one["type"] for one in told["failed"]["exceptions"]["items"]] == ["ValueError"]
    assert "lost" in statuses["lost"]
    assert told["idle"]["cluster"]["idle_seconds"] > 0
    assert told["idle"]["cluster"]["held_by"]["results"] > 0
    assert told["stuck"]["cluster"]["held_by"]["unrunnable"] > 0


def test_the_kept_runs_are_small_and_tell_of_no_machine() -> None:
    for kind in KINDS:
        run = load(kind)
        assert telltales(run) == set()
        clusters = [json.loads(sent.body)["cluster"] for sent in run if sent.path == BEATS]
        assert {(one["user"], one["host"]) for one in clusters} == {("ada", "workstation")}
    assert sum(file.stat().st_size for file in Path(tape.FOLDER).glob("*.gz")) < 300_000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_can_be_recorded_again() -> None:
    names = {str(tape.FOLDER): "/home/someone", "parse_distance": "other_function"}

    run = anonymous(record("failed"), names)

    assert {sent.path for sent in run} >= {BEATS, "/v1/metrics", "/v1/logs"}
    beats = [json.loads(sent.body) for sent in run if sent.path == BEATS]
    assert beats[-1]["status"]["stopped_at"] is not None
    failures = [one for beat in beats for one in beat["failures"]]
    assert {one["function"] for one in failures} == {"other_function"}
    known = {code["hash"] for beat in beats for code in beat["code"]}
    assert known
    for beat in beats:
        for computation in beat["computations"]:
            assert {frame["code"] for frame in computation["frames"]} <= known | {None}
    assert not any(str(tape.FOLDER).encode() in sent.body for sent in run)


def test_what_tells_of_a_machine_is_found() -> None:
    def found(text: str) -> set[str]:
        return telltales([Sent(0.0, BEATS, json.dumps({"message": text}).encode())])

    assert found("tcp://127.0.0.1:4711 /opt/conda/lib /home/ada/x.py") == set()
    assert found("tcp://10.4.3.2:4711") == {"10.4.3.2:4"}
    assert found("/root/x.py and /home/maria/y.py") == {"/root", "/home/maria"}
