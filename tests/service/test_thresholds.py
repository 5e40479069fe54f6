"""A workspace's own thresholds: from which numbers on something is a finding there."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import requests
from click.testing import CliRunner

from daskscope_service.accounts import audit
from daskscope_service.cli.main import cli
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.insight.findings.rules import judge
from daskscope_service.insight.findings.thresholds import DEFAULTS, TABLE
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.insight import test_rules
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_status, make_tiny_tasks, post
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


class Place:
    """A workspace with an owner, and with a computation of 15,000 tiny tasks."""

    def __init__(self, service: ServiceProcess, workspace: str) -> None:
        self.service, self.workspace = service, workspace
        self.token = service.token(scopes=["ingest", "read"], workspace=workspace)
        self.owner_name = make_user(service, {workspace: "owner"}).name
        self.owner = browser_of(service, self.owner_name)
        now = time.time()
        tiny = make_tiny_tasks("tiny", now - 500, now - 483.6)
        beat = make_beat(
            make_cluster(f"Scheduler-{workspace}", started_at=now - 600),
            status=make_status(threads=4, peak_threads=4, workers=2, peak_workers=2),
            computations=tiny["computations"],
            task_groups=tiny["task_groups"],
        )
        assert post(service.url, self.token, beat).ok

    def put(self, **own: float) -> requests.Response:
        body = {"own": {name.replace("__", "."): value for name, value in own.items()}}
        return self.owner.put(f"{self.service.url}/api/v1/thresholds", json=body, timeout=30)

    def answer(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.get(f"{self.service.url}/api/v1/{path}", headers=headers, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def in_force(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self.answer("thresholds")["items"]}

    def found(self) -> set[str]:
        """Return the rules whose stored findings are of the computation."""
        return {one["rule"] for one in self.answer("findings")["items"] if one["computation"]}

    def told(self) -> list[tuple[str, str]]:
        """Return who changed thresholds, and how: the last one first."""
        return [
            (one.actor, one.detail)
            for one in audit.newest(self.service.engine, 500)
            if one.workspace == self.workspace and one.action == "thresholds changed"
        ]


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service, f"thresholds-{uuid4().hex[:8]}")


def test_they_decide_what_is_found_and_stored_findings_are_made_anew(place: Place) -> None:
    wait_until(lambda: "tiny-tasks" in place.found(), seconds=90)
    assert place.put(**{"tiny-tasks__seconds": 1e-5}).ok
    assert place.in_force() == {**DEFAULTS, "tiny-tasks.seconds": 1e-5}
    computed = next(one for one in place.answer("computations")["items"] if one["id"] == "tiny")
    assert "tiny-tasks" not in {
        one["rule"] for one in place.answer(f"findings/{computed['id']}")["findings"]
    }
    engine = place.service.engine
    # The service's own looks for changes once a minute.
    evaluator = Evaluator(engine, EmbeddedSeries(engine), 60.0)

    def is_judged_anew() -> bool:
        evaluator.round()
        return "tiny-tasks" not in place.found()

    wait_until(is_judged_anew, seconds=150)
    assert place.put().ok
    assert place.in_force() == DEFAULTS
    assert place.told() == [
        (place.owner_name, "tiny-tasks.seconds as by default"),
        (place.owner_name, "tiny-tasks.seconds 1e-05"),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such", 1.0), ("straggler__share", 1.5), ("mass__seconds", 1e9), ("mass__seconds", -1.0)],
)
def test_another_name_or_a_number_out_of_bounds_is_refused(
    place: Place, name: str, value: float
) -> None:
    answer = place.put(**{name: value})
    assert answer.status_code == 400, answer.text
    assert place.in_force() == DEFAULTS
    assert place.told() == []


def test_the_command_line_sets_them_too(place: Place) -> None:
    def run(*words: str) -> str:
        options = ["--workspace", place.workspace, *place.service.database_options]
        result = CliRunner().invoke(cli, ["findings", "thresholds", *words, *options])
        assert result.exit_code == (2 if "no.such" in "".join(words) else 0), result.output
        return result.output

    assert "mass.seconds = 60 s (default: 30)" in run("mass.seconds=60", "mass.share=0.02")
    assert place.in_force() == {**DEFAULTS, "mass.seconds": 60.0, "mass.share": 0.02}
    assert "mass.seconds = 30 s\n" in run("mass.seconds=default")
    assert place.in_force() == {**DEFAULTS, "mass.share": 0.02}
    assert "there is no threshold" in run("no.such=1").lower()
    assert place.told() == [
        (audit.OPERATOR, "mass.seconds as by default"),
        (audit.OPERATOR, "mass.seconds 60, mass.share 0.02"),
    ]


class Asked(dict[str, float]):
    """Thresholds that know which of them rules asked for."""

    def __init__(self) -> None:
        super().__init__(DEFAULTS)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.names.add(name)
        return super().__getitem__(name)


def test_whatever_is_set_a_rule_says_something_or_nothing() -> None:
    asked_of_any = set()
    for found in (*test_rules.SICK.values(), *test_rules.HEALTHY.values()):
        asked = Asked()
        judge(replace(found, thresholds=asked))
        asked_of_any |= asked.names
        # The others change nothing: no rule comes as far as to ask for them.
        for one in TABLE:
            for value in (one.least, one.most) if one.name in asked.names else ():
                own = {**DEFAULTS, one.name: value}
                for finding in judge(replace(found, thresholds=own)).findings:
                    assert finding.sentence
    assert asked_of_any == {*DEFAULTS}


def test_a_page_shows_the_thresholds_in_force_and_where_they_are_from(place: Place) -> None:
    def rows() -> list[list[str]]:
        answer = place.owner.get(f"{place.service.url}/settings/thresholds", timeout=30)
        assert answer.ok
        found = re.findall(r"<tr>(.*?)</tr>", answer.text, re.DOTALL)[1:]
        cells = (re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in found)
        return [[re.sub("<[^>]*>", "", cell).strip() for cell in row] for row in cells]

    assert [row[0] for row in rows()] == [one.name for one in TABLE]
    assert rows()[0][1:3] == ["30.0 s", "30.0 s"]
    assert all(row[3] for row in rows())
    assert place.put(paused__share=0.225).ok
    assert rows()[0][:3] == ["paused.share", "22.5\N{NO-BREAK SPACE}%", "5\N{NO-BREAK SPACE}%"]
    assert len(rows()) == len(TABLE)
