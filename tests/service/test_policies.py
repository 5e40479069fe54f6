"""Idle policies at work: kept by owners, applied by the service, told to everyone."""

from __future__ import annotations

import html
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from daskscope.protocol import Cluster
from daskscope_service.accounts import audit
from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import writing
from daskscope_service.policies import enforcer, idle_policies
from daskscope_service.policies.decision import Policy, local_time
from daskscope_service.policies.enforcer import enforce_policies
from daskscope_service.policies.idle_policies import MOST_POLICIES
from tests.patience import wait_until
from tests.service.beats import make_cluster, make_status
from tests.service.people import browser_of, make_user
from tests.service.test_commands import Workspace, workspace

pytestmark = pytest.mark.sqlite

__all__ = ["workspace"]  # the fixture


@pytest.fixture
def owner(workspace: Workspace) -> requests.Session:
    name = make_user(workspace.service, {workspace.name: "owner"}).name
    browser = browser_of(workspace.service, name)
    browser.headers["X-Name"] = name
    return browser


def send(
    workspace: Workspace,
    owner: requests.Session,
    method: str = "POST",
    id: str = "",
    expected: int = 201,
    **fields: Any,
) -> Any:
    defaults = {"name": "nights", "after": 1800, "action": "shutdown"}
    url = f"{workspace.service.url}/api/v1/policies{id}"
    answer = owner.request(method, url, json=defaults | fields, timeout=30)
    assert answer.status_code == expected, answer.text
    return answer.json() if answer.content else None


def idle_beat(workspace: Workspace, cluster: Cluster | None = None, seconds: float = 2520.0) -> Any:
    return workspace.beat(cluster, status=make_status(idle_seconds=seconds, clients=0))


def decisions(workspace: Workspace, cluster: Cluster | None = None) -> list[dict[str, Any]]:
    of = (cluster or workspace.cluster).id
    found: list[dict[str, Any]] = workspace.get(f"decisions?cluster={of}")["items"]
    return found


def test_a_cluster_that_is_idle_for_too_long_is_asked_to_close_once_and_told_why(
    workspace: Workspace, owner: requests.Session
) -> None:
    send(workspace, owner)
    idle_beat(workspace)
    (decision,) = wait_until(lambda: decisions(workspace))
    assert (decision["outcome"], decision["policy_name"]) == ("shutdown", "nights")
    assert decision["sentence"] == (
        "Idle for 42 min; policy 'nights' shuts down after 30 min, so the policy asks the cluster "
        "to shut down."
    )
    command = wait_until(lambda: idle_beat(workspace))[0]
    assert (command.id, command.requested_by) == (decision["command"], "policy nights")
    assert command.reason == decision["sentence"]
    assert not command.even_if_busy
    # More rounds, of this process and of others, do nothing more.
    for _ in range(2):
        enforce_policies(workspace.service.engine, 60.0)
    assert decisions(workspace) == [decision]
    page = f"{workspace.service.url}/clusters/{workspace.cluster.id}"
    text = workspace.browser.get(page, timeout=30).text
    assert text.count("Idle for 42 min; policy &#39;nights&#39;") >= 2
    assert "the policy has already acted, once for this idle time" in text
    (entry,) = [
        entry
        for entry in audit.newest(workspace.service.engine, 50)
        if entry.actor == "policy nights" and entry.workspace == workspace.name
    ]
    assert entry.action == "shutdown asked for"


def test_of_many_that_look_at_once_one_acts(workspace: Workspace, owner: requests.Session) -> None:
    clusters = [make_cluster() for _ in range(5)]
    for cluster in clusters:
        idle_beat(workspace, cluster)
    send(workspace, owner, action="notice")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: enforce_policies(workspace.service.engine, 60.0), range(4)))
    for cluster in clusters:
        (decision,) = decisions(workspace, cluster)
        assert decision["outcome"] == "notice"
        assert decision["command"] is None
        assert idle_beat(workspace, cluster) == ()
    assert workspace.get("commands")["items"] == []


def test_one_round_ends_though_many_are_idle_and_the_next_ones_go_on(
    workspace: Workspace, owner: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcer, "_SECONDS", -1.0)  # one cluster takes it all
    engine, silent_after = workspace.service.engine, 60.0
    looked_at: list[str] = []
    decide = enforcer._decision

    def note(connection: Any, name: str, cluster: str, *more: Any, **options: Any) -> Any:
        if name == workspace.name:
            looked_at.append(cluster)
        return decide(connection, name, cluster, *more, **options)

    monkeypatch.setattr(enforcer, "_decision", note)
    clusters = {cluster.id: cluster for cluster in (make_cluster() for _ in range(3))}
    for cluster in clusters.values():
        idle_beat(workspace, cluster)
    send(workspace, owner, users=["no one"])
    enforce_policies(engine, silent_after)
    assert len(looked_at) == 1
    wait_until(lambda: enforce_policies(engine, silent_after) or set(looked_at) == set(clusters))


def test_a_workspace_has_a_bounded_number_of_policies(
    workspace: Workspace, owner: requests.Session
) -> None:
    engine = workspace.service.engine
    with writing(engine) as connection:
        change = Change(connection, workspace.name, "someone")
        for number in range(MOST_POLICIES):
            kept = Policy(idle_policies.new_id(), f"{number}", 3600.0, "notice", enabled=False)
            idle_policies.add(change, kept)
    send(workspace, owner, expected=409, name="one more")
    page = f"{workspace.service.url}/settings/policies"
    form = {"name": "one more", "minutes": "60", "action": "notice"}
    refused = owner.post(page, data=form, timeout=30)
    assert (refused.status_code, "at most 100 policies" in refused.text) == (400, True)


def test_it_leaves_alone_whom_it_does_not_mean(
    workspace: Workspace, owner: requests.Session
) -> None:
    own = make_cluster(idle_timeout=600.0)
    for cluster in (own, workspace.cluster):
        idle_beat(workspace, cluster)
    hour = int(local_time(time.time(), "Asia/Kolkata")[:2])
    begins, ends = (f"{(hour + later) % 24:02}:00" for later in (2, 4))
    others: tuple[dict[str, Any], ...] = (
        {"users": ["li*"]},
        {"tags": {"team": "other"}},
        {"enabled": False},
        {"after": 2521},
        {"begins": begins, "ends": ends, "time_zone": "Asia/Kolkata"},
    )
    for number, fields in enumerate(others):
        send(workspace, owner, name=f"no {number}", **fields)
    enforce_policies(workspace.service.engine, 60.0)
    assert decisions(workspace) == []
    send(workspace, owner, name="yes", users=["li", "a?a"], tags={"team": "clim*"})
    assert (
        enforce_policies(workspace.service.engine, 60.0) <= 1
    )  # the service itself may have been quicker
    (decision,) = wait_until(lambda: decisions(workspace))
    assert decision["policy_name"] == "yes"
    assert decisions(workspace, own) == []
    page = workspace.browser.get(f"{workspace.service.url}/clusters/{own.id}", timeout=30).text
    page = html.unescape(page)
    assert (
        "the cluster's own idle.timeout of 10 min is stricter, so the policy leaves it to that."
        in page
    )


def test_owners_change_policies_and_everyone_sees_them(
    workspace: Workspace, owner: requests.Session
) -> None:
    made = send(workspace, owner, begins="20:00", ends="06:00", time_zone="Europe/Berlin")
    assert made["sentence"] == ("It shuts down after 30 min between 20:00 and 06:00 Europe/Berlin.")
    assert made["changed_by"] == owner.headers["X-Name"]
    assert workspace.get("policies")["items"] == [made]
    changed = send(workspace, owner, "PUT", f"/{made['id']}", 200, after=60, enabled=False)
    assert (changed["after"], changed["begins"], changed["enabled"]) == (60, None, False)
    assert workspace.get(f"policies/{made['id']}") == changed
    assert send(workspace, owner, expected=409)["field"] == "$.name"
    for fields, field in (
        ({"after": 59}, "$.after"),
        ({"action": "kill"}, "$.action"),
        ({"begins": "20:00"}, "$.ends"),
        ({"begins": "8 pm", "ends": "06:00"}, "$.begins"),
        ({"time_zone": "Europe/Atlantis"}, "$.time_zone"),
        ({"time_zone": "localtime"}, "$.time_zone"),
        ({"time_zone": "posixrules"}, "$.time_zone"),
        ({"name": " "}, "$.name"),
        ({"name": "a\n"}, "$.name"),
        ({"users": "ada"}, "$.users"),
    ):
        assert send(workspace, owner, expected=400, **{"name": "x"} | fields)["field"] == field
    for one in "\n\x7f\x9b\u2028\u2029\u202e\u2066\u200f":
        assert send(workspace, owner, expected=400, name=f"a{one}b")["field"] == "$.name"
    send(workspace, owner, "DELETE", f"/{made['id']}", 204)
    send(workspace, owner, "DELETE", f"/{made['id']}", 404)
    told = [e.action for e in audit.newest(workspace.service.engine, 50)
            if e.actor == owner.headers["X-Name"] and e.action.startswith("policy")]  # fmt: skip
    assert told == ["policy removed", "policy changed", "policy made"]


def test_members_see_policies_and_change_none(
    workspace: Workspace, owner: requests.Session
) -> None:
    made = send(workspace, owner)
    send(workspace, workspace.browser, expected=403, name="mine")
    send(workspace, workspace.browser, "PUT", f"/{made['id']}", 403)
    send(workspace, workspace.browser, "DELETE", f"/{made['id']}", 403)
    text = workspace.browser.get(f"{workspace.service.url}/settings/policies", timeout=30).text
    assert "It shuts down after 30 min." in text
    assert "<input" not in text.partition("</header>")[2]


def test_the_page_makes_changes_and_removes_policies(
    workspace: Workspace, owner: requests.Session
) -> None:
    url = f"{workspace.service.url}/settings/policies"
    form = {
        "name": "evenings",
        "minutes": "45",
        "action": "shutdown",
        "users": "maria* li",
        "tags": "team=climate stage=dev*",
        "begins": "18:30",
        "ends": "23:00",
        "time_zone": "Europe/Berlin",
        "enabled": "1",
    }
    text = owner.post(url, data=form, timeout=30).text
    assert "It shuts down after 45 min between 18:30 and 23:00 Europe/Berlin." in text
    assert "maria*, li" in text
    (kept,) = workspace.get("policies")["items"]
    assert (kept["tags"], kept["users"]) == ({"team": "climate", "stage": "dev*"}, ["maria*", "li"])
    one = f"{url}/{kept['id']}"
    assert 'value="45"' in owner.get(one, timeout=30).text
    answer = owner.post(one, data=form | {"ends": ""}, timeout=30)
    assert answer.status_code == 400
    assert "the begin and the end" in answer.text
    assert 'value="maria* li"' in answer.text
    answer = owner.post(one, data=form | {"tags": "climate"}, timeout=30)
    assert "name=value" in answer.text
    answer = owner.post(one, data=form | {"tags": "stage=dev stage=test"}, timeout=30)
    assert (answer.status_code, "A tag is named twice" in answer.text) == (400, True)
    for wrong, why in (
        ({"name": "n" * 81}, "a name of 1 to 80 characters"),
        ({"minutes": "0.5"}, "at least 1 minute"),
        ({"users": "u " * 51}, "at most 50 users"),
        ({"begins": "18:300"}, "is not a time of day"),
    ):
        answer = owner.post(one, data=form | wrong, timeout=30)
        assert (answer.status_code, why in answer.text) == (400, True), wrong
    del form["enabled"]
    assert owner.post(one, data=form, timeout=30).ok
    assert workspace.get("policies")["items"][0]["enabled"] is False
    assert owner.post(f"{one}/remove", timeout=30).ok
    assert workspace.get("policies")["items"] == []


def test_who_saves_what_another_owner_has_changed_or_removed_is_told_so(
    workspace: Workspace, owner: requests.Session
) -> None:
    made = send(workspace, owner)
    page = f"{workspace.service.url}/settings/policies/{made['id']}"
    found = re.search(r'name="read_at" value="([^"]+)"', owner.get(page, timeout=30).text)
    assert found is not None
    form = {"name": "mine", "minutes": "45", "action": "notice", "enabled": "1"}
    form |= {"time_zone": "UTC", "read_at": found[1]}
    changed = send(workspace, owner, "PUT", f"/{made['id']}", 200, name="theirs")
    answer = owner.post(page, data=form, timeout=30)
    assert (answer.status_code, "Someone has changed this policy" in answer.text) == (409, True)
    assert workspace.get("policies")["items"] == [changed]
    send(workspace, owner, "DELETE", f"/{made['id']}", 204)
    assert owner.post(page, data=form, timeout=30).status_code == 404
    send(workspace, owner, "PUT", f"/{made['id']}", 404)
    assert workspace.get("policies")["items"] == []
