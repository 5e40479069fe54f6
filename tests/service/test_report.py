"""Reports: files that say what pages say and need nothing else, with users' code or without."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, replace
from urllib.parse import quote

import pytest
import requests
from sqlalchemy import insert

from daskscope import names
from daskscope.protocol import CodeFrame, ProfileLine
from daskscope_service.accounts import audit
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.beats import (
    full_beat,
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_failure,
    make_profile,
    make_worker_loss,
    post,
)
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

#: What users wrote, in each place from which it could come.
CODE, CALL, QUOTED, LOGGED = (f"written_by_{name}()" for name in ("ada", "her", "eve", "bob"))


@dataclass(frozen=True)
class Place:
    """A workspace with one cluster that has told all that it can, and its owner."""

    service: ServiceProcess
    workspace: str
    cluster: str
    owner: str
    browser: requests.Session

    def ask(self, path: str, **parameters: str) -> requests.Response:
        url = f"{self.service.url}/clusters/{self.cluster}{path}"
        return self.browser.get(url, params=parameters, timeout=30)


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    workspace = f"report-{uuid.uuid4().hex}"
    user = make_user(shared_service, {workspace: "owner"})
    token = shared_service.token(workspace=workspace)
    cluster = make_cluster(name='Übung "7"')
    assert post(shared_service.url, token, full_beat(cluster)).ok
    code = make_code(f"{CODE}\n{CALL}.compute()\n")
    frame = CodeFrame("/home/ada/run.py", 12, code.hash)
    more = make_beat(
        cluster,
        2,
        computations=(make_computation(frames=(frame,)),),
        failures=(make_failure(message="a < b", traceback=f"Traceback …\n  {QUOTED}"),),
        worker_losses=(make_worker_loss(log=("was told", LOGGED)),),
        profiles=(make_profile(lines=(ProfileLine("/home/ada/run.py", "load", 12, QUOTED),)),),
        code=(code,),
    )
    assert post(shared_service.url, token, more).ok
    with writing(shared_service.engine) as connection:
        connection.execute(
            insert(schema.log_record).values(
                workspace=workspace,
                id="l1",
                cluster=cluster.id,
                at=time.time(),
                severity=17,
                event_name="",
                body=f"Compute failed: {QUOTED}",
                attributes={"exception.stacktrace": QUOTED, names.COMPUTATION_ID: "c1"},
            )
        )
    browser = browser_of(shared_service, user.name)
    return Place(shared_service, workspace, cluster.id, user.name, browser)


REPORTS = ("/report.html", "/computations/c1/report.html")


@pytest.mark.parametrize("path", REPORTS)
def test_a_report_says_what_its_page_says_and_where_it_is_from(place: Place, path: str) -> None:
    report = place.ask(path, code="true").text
    assert "Übung &#34;7&#34;" in report
    assert f"by {place.owner} from {place.service.url}, workspace {place.workspace}" in words(
        report
    )
    page = place.ask(path.removesuffix("/report.html")).text
    headings = re.findall(r"<h2[^>]*>([^<]*)", page)  # without the times in them, which go on
    assert headings
    assert re.findall(r"<h2[^>]*>([^<]*)", report) == headings


@pytest.mark.parametrize("path", REPORTS)
def test_a_report_needs_no_other_file_and_leads_to_the_service(place: Place, path: str) -> None:
    report = place.ask(path, code="true").text
    assert not re.search(r"<script|<link|<img|\ssrc=|\shx-get|@import|url\(", report)
    links = re.findall(r'<a [^>]*href="([^"]*)"', report)
    assert any(link.startswith(f"{place.service.url}/exceptions/") for link in links)
    assert [link for link in links if not link.startswith((f"{place.service.url}/", "#"))] == []


def test_a_computation_may_be_called_anything_that_an_address_can_hold(place: Place) -> None:
    odd = "a+b~c@d:e-.f"
    computation = make_computation(odd)
    cluster = make_cluster()
    beat = make_beat(cluster, computations=(computation,))
    token = place.service.token(workspace=place.workspace)
    assert post(place.service.url, token, beat).ok
    of_it = replace(place, cluster=cluster.id)
    answer = of_it.ask(f"/computations/{quote(odd)}/report.html")
    assert answer.ok


def test_users_code_is_in_it_only_where_it_is_asked_for(place: Place) -> None:
    told = {
        (path, code): place.ask(path, **({"code": code} if code else {})).text
        for path in REPORTS
        for code in ("true", "false", "")
    }
    assert CALL in told["/report.html", "true"]
    assert LOGGED in told["/report.html", "true"]
    for text in (CODE, CALL, QUOTED):
        assert text in told["/computations/c1/report.html", "true"]
    for path in REPORTS:
        for code in ("false", ""):
            assert "written_by" not in told[path, code]
            assert "a &lt; b" in told[path, code]
            assert "left out of this report" in told[path, code]
    # The page itself goes on to show it.
    assert QUOTED in place.ask("/computations/c1").text


def test_who_had_a_report_made_stands_in_the_audit_log(place: Place) -> None:
    assert place.ask("/report").ok
    assert place.ask("/report.html").ok
    assert place.ask("/computations/c1/report.html", code="true").ok
    found = [
        (entry.action, entry.actor, entry.detail)
        for entry in audit.newest(place.service.engine, 50)
        if entry.workspace == place.workspace
    ]
    assert found[:2] == [
        ("report made", place.owner, f"of computation c1 of {place.cluster}, with users' code"),
        ("report made", place.owner, f"of cluster {place.cluster}, without users' code"),
    ]
    assert "report made" not in [action for action, _, _ in found[2:]]


def test_a_program_that_asks_again_and_again_fills_no_audit_log(place: Place) -> None:
    url = f"{place.service.url}/api/v1/clusters/{place.cluster}/report"
    token = place.service.token(["read"], place.workspace)
    for code in ("true", "true", "false", "true"):
        bearer = {"Authorization": f"Bearer {token}"}
        assert requests.get(url, params={"code": code}, headers=bearer, timeout=30).ok
    for _ in range(3):
        answer = requests.Session().post(
            f"{place.service.url}/sign-in", data={"token": token}, timeout=30
        )
        assert answer.ok
    actor = f"token {token.split('_')[1]}"
    found = audit.newest(place.service.engine, 50, workspace=place.workspace)
    assert [one.action for one in found if one.actor == actor] == [
        "signed in",
        "report made",
        "report made",
    ]


def test_its_name_says_what_it_is_and_holds_no_odd_character(place: Place) -> None:
    name = place.ask("/report.html").headers["Content-Disposition"]
    assert re.fullmatch(r'attachment; filename="daskscope-cluster-bung-7-\d{8}T\d{4}Z\.html"', name)


def test_what_is_not_there_has_no_report(place: Place) -> None:
    for path in ("/report", "/report.html"):
        assert place.ask(f"/computations/c9{path}").status_code == 404
    assert place.ask("/report.html", code="perhaps").status_code == 400


def test_programs_get_the_same_with_a_token(place: Place) -> None:
    url = f"{place.service.url}/api/v1/clusters/{place.cluster}/report"
    token = place.service.token(["read"], place.workspace)
    bearer = {"Authorization": f"Bearer {token}"}
    answer = requests.get(url, params={"code": "true"}, headers=bearer, timeout=30)
    assert answer.headers["Content-Type"].startswith("text/html")
    assert LOGGED in answer.text
    (entry,) = audit.newest(place.service.engine, 1)
    assert (entry.action, entry.actor) == ("report made", f"token {token.split('_')[1]}")
    missing = requests.get(f"{url}s", headers=bearer, timeout=30)
    assert missing.headers["Content-Type"] == "application/problem+json"


def test_a_name_will_do_if_only_one_cluster_has_it(place: Place) -> None:
    token = place.service.token(["read"], place.workspace)
    environment = {"DASK_DASKSCOPE__ENDPOINT": place.service.url, "DASK_DASKSCOPE__TOKEN": token}
    printed = daskscope("report", 'Übung "7"', **environment)
    assert CALL not in printed.stdout
    # Its links lead to the page, whose address has the id.
    links = set(re.findall(r'href="(\S+?)[?]', printed.stdout))
    assert f"{place.service.url}/clusters/{place.cluster}" in links
    why = daskscope("why", 'Übung "7"', **environment)
    assert f"/clusters/{place.cluster}" in why.stdout
    sender = place.service.token(workspace=place.workspace)
    others = [make_cluster(name='Übung "7"') for _ in range(2)]
    for other in others:
        assert post(place.service.url, sender, make_beat(other, phase="stop")).ok
    for command in ("report", "why"):
        refused = daskscope(command, 'Übung "7"', **environment)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "There are 3 clusters named" in refused.stderr
        for id in (place.cluster, *(other.id for other in others)):
            assert id in refused.stderr
    # An id is still enough.
    assert daskscope("report", place.cluster, **environment).returncode == 0


def test_the_command_line_prints_it(place: Place) -> None:
    token = place.service.token(["read"], place.workspace)
    environment = {"DASK_DASKSCOPE__ENDPOINT": place.service.url, "DASK_DASKSCOPE__TOKEN": token}
    printed = daskscope("report", place.cluster, "c1", "--code", **environment)
    assert CALL in printed.stdout
    missing = daskscope("report", "nowhere", **environment)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no cluster 'nowhere'" in missing.stderr
