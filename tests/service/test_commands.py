"""Shutdowns on their way: asked for, handed over, answered, called off, given up."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

import pytest
import requests
from sqlalchemy import update

from daskscope.codec import decode_reply
from daskscope.protocol import Cluster, Command
from daskscope_service.accounts import audit, tokens
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_shutdown, make_status, post
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


class Workspace:
    """A workspace with one cluster, seen by a member of it."""

    def __init__(self, service: ServiceProcess, name: str) -> None:
        self.service, self.name = service, name
        self.token = service.token(workspace=name)
        self.user = make_user(service, {name: "member"})
        self.browser = browser_of(service, self.user.name)
        self.cluster = make_cluster()
        self._seq = 0
        self.beat()

    def beat(self, cluster: Cluster | None = None, **fields: Any) -> tuple[Command, ...]:
        """Send a beat, and return what its answer asks for."""
        self._seq += 1
        answer = post(
            self.service.url, self.token, make_beat(cluster or self.cluster, self._seq, **fields)
        )
        assert answer.ok, answer.text
        return decode_reply(answer.content).commands

    def beat_until_asked(self) -> tuple[Command, ...]:
        """Beat until the answer asks for something."""
        return wait_until(self.beat, what="a command")

    def ask(self, expected: int = 201, **fields: Any) -> dict[str, Any]:
        answer = self.browser.post(
            f"{self.service.url}/api/v1/commands",
            json={"cluster": self.cluster.id} | fields,
            timeout=30,
        )
        assert answer.status_code == expected, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def call_off(self, command: str, expected: int = 200) -> dict[str, Any]:
        url = f"{self.service.url}/api/v1/commands/{command}/call-off"
        answer = self.browser.post(url, json={"reason": "Not yet."}, timeout=30)
        assert answer.status_code == expected, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, path: str) -> dict[str, Any]:
        answer = self.browser.get(f"{self.service.url}/api/v1/{path}", timeout=30)
        assert answer.ok, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stands(self, command: str) -> str:
        return str(self.get(f"commands/{command}")["status"])

    def expire(self, command: str) -> None:
        """Let the time pass within which it may be handed over."""
        with writing(self.service.engine) as connection:
            connection.execute(
                update(schema.command)
                .where(schema.command.c.id == command)
                .values(expires_at=time.time() - 1)
            )


@pytest.fixture
def workspace(shared_service: ServiceProcess) -> Workspace:
    return Workspace(shared_service, f"w-{uuid.uuid4().hex[:8]}")


def test_it_is_handed_over_until_the_cluster_answers(workspace: Workspace) -> None:
    asked = workspace.ask(reason="It is Friday.", grace=12.5, even_if_busy=True)
    assert asked["requested_by"] == workspace.user.name
    assert (asked["status"], asked["open"]) == ("requested", True)
    (command,) = workspace.beat_until_asked()
    expected = Command(
        id=asked["id"],
        action="shutdown",
        requested_by=workspace.user.name,
        reason="It is Friday.",
        grace=12.5,
        even_if_busy=True,
    )
    assert command == expected
    first = workspace.get(f"commands/{asked['id']}")
    assert first["status"] == "delivered"
    # The answer may have been lost.
    assert workspace.beat() == (expected,)
    assert workspace.get(f"commands/{asked['id']}")["delivered_at"] == first["delivered_at"]

    row = make_shutdown(id=asked["id"], requested_by=workspace.user.name)
    assert workspace.beat(shutdowns=(row,)) == ()
    assert workspace.stands(asked["id"]) == "announced"
    closing = make_shutdown(id=asked["id"], state="closing", closes_at=None)
    assert workspace.beat(shutdowns=(closing,)) == ()
    assert workspace.stands(asked["id"]) == "closing"
    # A beat that was overtaken changes nothing.
    late = make_beat(workspace.cluster, 2, shutdowns=(row,))
    assert post(workspace.service.url, workspace.token, late).ok
    assert workspace.stands(asked["id"]) == "closing"
    workspace.beat(phase="stop", status=make_status(stopped_at=time.time()))
    done = workspace.get(f"commands/{asked['id']}")
    assert (done["status"], done["open"]) == ("done", False)
    workspace.ask(409)


@pytest.mark.parametrize("state", ["called off", "failed"])
def test_what_the_cluster_answers_is_what_is_told_and_then_one_may_ask_again(
    workspace: Workspace, state: str
) -> None:
    asked = workspace.ask()
    workspace.beat_until_asked()
    answer = make_shutdown(id=asked["id"], state=state, closes_at=None, detail="Because.")
    assert workspace.beat(shutdowns=(answer,)) == ()
    found = workspace.get(f"commands/{asked['id']}")
    assert (found["status"], found["sentence"], found["open"]) == (state, "Because.", False)
    workspace.call_off(asked["id"], 409)
    assert workspace.ask()["id"] != asked["id"]


def test_who_asks_twice_asks_once_and_no_one_else_meanwhile(workspace: Workspace) -> None:
    asked = workspace.ask(reason="Enough.")
    assert workspace.ask(200, reason="Enough.")["id"] == asked["id"]
    assert "is under way" in workspace.ask(409, reason="Enough.", even_if_busy=True)["detail"]
    workspace.browser = browser_of(
        workspace.service, make_user(workspace.service, {workspace.name: "owner"}).name
    )
    assert workspace.user.name in workspace.ask(409, reason="Enough.")["detail"]
    assert [item["id"] for item in workspace.get("commands")["items"]] == [asked["id"]]


def test_a_cluster_is_closed_by_its_name_if_only_one_of_that_name_runs(
    workspace: Workspace,
) -> None:
    stopped, runs, other = (make_cluster(name="etl.py") for _ in range(3))
    workspace.beat(stopped, phase="stop", status=make_status(stopped_at=time.time()))
    workspace.beat(runs)
    asked = workspace.ask(cluster="etl.py")
    assert asked["cluster"] == runs.id
    workspace.beat(other)
    refused = workspace.ask(expected=409, cluster="etl.py")
    assert refused["detail"].startswith("There are 2 clusters named 'etl.py'. Choose one by its id")
    assert f"{runs.id} (running, started " in refused["detail"]
    assert f"{other.id} (running, started " in refused["detail"]
    assert stopped.id not in refused["detail"]
    assert "no cluster 'etl'" in workspace.ask(expected=404, cluster="etl")["detail"]


def test_what_is_called_off_before_it_was_handed_over_never_is(workspace: Workspace) -> None:
    asked = workspace.ask()
    off = workspace.call_off(asked["id"])
    assert (off["status"], off["open"]) == ("called off", False)
    who = workspace.user.name
    assert off["sentence"] == f"{who} called it off before it was delivered. Not yet."
    assert workspace.call_off(asked["id"])["called_off_at"] == off["called_off_at"]
    again = workspace.ask()
    assert [command.id for command in workspace.beat_until_asked()] == [again["id"]]


def test_a_call_off_is_handed_over_until_it_is_answered(workspace: Workspace) -> None:
    asked = workspace.ask(grace=3600)
    workspace.beat_until_asked()
    workspace.beat(shutdowns=(make_shutdown(id=asked["id"]),))
    workspace.call_off(asked["id"])
    for _ in range(2):
        (command,) = workspace.beat_until_asked()
        assert (command.action, command.id) == ("call off", asked["id"])
        assert (command.requested_by, command.reason) == (workspace.user.name, "Not yet.")
    answer = make_shutdown(id=asked["id"], state="called off", closes_at=None)
    assert workspace.beat(shutdowns=(answer,)) == ()
    assert workspace.stands(asked["id"]) == "called off"
    actions = [e.action for e in audit.newest(workspace.service.engine, 50)
               if e.actor == workspace.user.name and e.action.startswith("shutdown")]  # fmt: skip
    assert actions == ["shutdown called off", "shutdown asked for"]


def test_what_was_not_delivered_in_time_is_given_up(workspace: Workspace) -> None:
    asked = workspace.ask()
    workspace.expire(asked["id"])
    found = workspace.get(f"commands/{asked['id']}")
    assert (found["status"], found["open"]) == ("expired", False)
    assert "could not be delivered" in found["sentence"]
    # Were it handed over once more, the cluster would close long after anyone thought of it.
    again = workspace.ask()
    assert [command.id for command in workspace.beat_until_asked()] == [again["id"]]
    workspace.expire(again["id"])
    assert "has not answered" in workspace.get(f"commands/{again['id']}")["sentence"]
    # What the cluster tells later is right all the same.
    workspace.beat(shutdowns=(make_shutdown(id=again["id"], state="failed", closes_at=None),))
    assert workspace.stands(again["id"]) == "failed"


def test_the_last_beat_gets_no_command_nor_does_another_cluster(workspace: Workspace) -> None:
    other = make_cluster()
    workspace.beat(other)
    asked = workspace.ask()
    assert workspace.beat_until_asked()[0].id == asked["id"]
    assert workspace.beat(other) == ()
    assert workspace.beat(phase="stop", status=make_status(stopped_at=time.time())) == ()
    found = workspace.get(f"commands/{asked['id']}")
    assert (found["status"], found["sentence"]) == (
        "expired",
        "The cluster stopped before it answered.",
    )


def test_a_body_that_makes_no_sense_is_told_where(workspace: Workspace) -> None:
    for fields, field in (
        ({"cluster": 7}, "$.cluster"),
        ({"grace": -1}, "$.grace"),
        ({"grace": "soon"}, "$.grace"),
        ({"action": "restart"}, "$.action"),
        ({"even_if_busy": "no"}, "$.even_if_busy"),
        ({"reason": "\0"}, "$.reason"),
        ({"reason": 5}, "$.reason"),
        ({"grase": 5}, "$"),
    ):
        problem = workspace.ask(400, **fields)
        assert problem["field"] == field, problem
    url = f"{workspace.service.url}/api/v1/commands"
    answer = workspace.browser.post(url, data={"cluster": workspace.cluster.id}, timeout=30)
    assert answer.status_code == 415
    assert workspace.get("commands")["items"] == []


def test_another_site_cannot_press_the_button(workspace: Workspace) -> None:
    for path in (f"clusters/{workspace.cluster.id}/shutdown", "api/v1/commands"):
        answer = workspace.browser.post(
            f"{workspace.service.url}/{path}",
            json={"cluster": workspace.cluster.id},
            headers={"Sec-Fetch-Site": "cross-site"},
            timeout=30,
        )
        assert answer.status_code == 403
    assert workspace.get("commands")["items"] == []


def test_a_viewer_sees_shutdowns_and_no_button(workspace: Workspace) -> None:
    asked = workspace.ask(reason="Enough.")
    viewer = make_user(workspace.service, {workspace.name: "viewer"})
    browser = browser_of(workspace.service, viewer.name)
    page = f"{workspace.service.url}/clusters/{workspace.cluster.id}"
    text = browser.get(page, timeout=30).text
    assert "Enough." in text
    assert "Call it off" not in text
    answer = browser.post(f"{page}/commands/{asked['id']}/call-off", timeout=30)
    assert answer.status_code == 403
    assert workspace.stands(asked["id"]) == "requested"


def test_shutdowns_are_listed_page_by_page(workspace: Workspace) -> None:
    for _ in range(3):
        workspace.call_off(workspace.ask()["id"])
    first = workspace.get(f"commands?limit=2&cluster={workspace.cluster.id}")
    rest = workspace.get(f"commands?limit=2&cursor={first['next']}")
    assert len(first["items"]) == 2
    assert len(rest["items"]) == 1
    assert rest["next"] is None
    assert workspace.get("commands?cluster=other")["items"] == []
    answer = requests.get(
        f"{workspace.service.url}/api/v1/commands?cluster=x&sort=1",
        cookies=workspace.browser.cookies,
        timeout=30,
    )
    assert answer.status_code == 400


def test_only_tokens_of_the_user_who_reported_a_cluster_first_may_report_it(
    shared_service: ServiceProcess,
) -> None:
    workspace = Workspace(shared_service, f"w-{uuid.uuid4().hex[:8]}")
    engine, name = shared_service.engine, workspace.name
    other = shared_service.token(workspace=name)
    asked = workspace.ask()
    [command] = workspace.beat_until_asked()
    assert command.id == asked["id"]

    forged = make_beat(
        replace(workspace.cluster, tags={"team": "forged"}),
        50,
        shutdowns=(make_shutdown(id=asked["id"], state="failed", detail="No."),),
    )
    refused = post(shared_service.url, other, forged)
    assert refused.status_code == 403
    assert "Another token reported the cluster" in refused.json()["detail"]
    assert refused.json()["field"] == "$.cluster.id"
    assert workspace.get(f"commands/{asked['id']}")["status"] != "failed"
    assert workspace.get(f"clusters/{workspace.cluster.id}")["tags"] == workspace.cluster.tags

    # Once the first token is revoked, the next one that reports the cluster takes its place.
    assert tokens.revoke(engine, name, tokens.id_of(workspace.token))
    ann = make_user(shared_service, {name: "member"})
    hers = [tokens.create(engine, workspace=name, label=one, user=ann.id) for one in ("a", "b")]
    workspace.token = hers[0]
    [command] = workspace.beat_until_asked()
    assert command.id == asked["id"]
    assert post(shared_service.url, other, forged).status_code == 403

    workspace.token = hers[1]
    [command] = workspace.beat_until_asked()
    assert command.id == asked["id"]
