"""What several people set at the same moment is set once, and no one gets an internal error."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from threading import Barrier, Event
from typing import Any

import pytest
import requests

from daskscope_service.accounts import device_login, members, sign_in, tokens
from daskscope_service.accounts.caller import Caller
from tests.patience import PATIENCE
from tests.service.beats import make_beat, make_cluster, post
from tests.service.people import PASSWORD, browser_of, make_user
from tests.service_process import ServiceProcess

AT_ONCE = 12


@pytest.fixture
def owner(shared_service: ServiceProcess) -> requests.Session:
    workspace = f"moment-{uuid.uuid4().hex[:8]}"
    user = make_user(shared_service, {workspace: "owner"}).name
    beat = make_beat(make_cluster(f"Scheduler-{workspace}", started_at=time.time() - 400))
    assert post(shared_service.url, shared_service.token(workspace=workspace), beat).ok
    session = browser_of(shared_service, user)
    session.headers["X-Test-Cluster"] = f"Scheduler-{workspace}"
    return session


def all_at_once(session: requests.Session, method: str, url: str, body: dict[str, Any]) -> set[int]:
    def ask(_: int) -> int:
        # A session of requests is for one thread.
        answer = requests.request(
            method, url, json=body, timeout=60, cookies=session.cookies, headers=session.headers
        )
        assert answer.status_code < 500, answer.text
        return answer.status_code

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return set(pool.map(ask, range(AT_ONCE)))


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("prices", {"currency": "EUR", "per_hour": {"thread": 0.1}}),
        ("budget", {"currency": "EUR", "amount": 500.0}),
        ("retention", {"days": {"events": 30}}),
    ],
)
def test_a_setting(
    shared_service: ServiceProcess, owner: requests.Session, what: str, body: dict[str, Any]
) -> None:
    found = all_at_once(owner, "PUT", f"{shared_service.url}/api/v1/{what}", body)
    assert found == {200}


def test_a_mute(shared_service: ServiceProcess, owner: requests.Session) -> None:
    url = f"{shared_service.url}/api/v1/mutes"
    wish = {
        "rule": "idle-cluster",
        "cluster": owner.headers["X-Test-Cluster"],
        "reason": "a test",
        "until_at": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
    }
    assert all_at_once(owner, "POST", url, wish) <= {201, 409}
    assert len(owner.get(url, timeout=30).json()["items"]) == 1


def at_once(*calls: Callable[[], requests.Response]) -> list[requests.Response]:
    """Make the calls at the same moment; none may fail in the service."""
    start = Barrier(len(calls))

    def call(one: Callable[[], requests.Response]) -> requests.Response:
        start.wait(PATIENCE)
        return one()

    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(call, calls))
    assert all(answer.status_code < 500 for answer in answers), [one.text for one in answers]
    return answers


def test_owners_who_take_each_others_role_leave_one(shared_service: ServiceProcess) -> None:
    workspace = f"moment-{uuid.uuid4().hex[:8]}"
    owners = [make_user(shared_service, {workspace: "owner"}) for _ in range(4)]
    browsers = [browser_of(shared_service, owner.name) for owner in owners]
    url = f"{shared_service.url}/api/v1/workspaces/{workspace}/members"

    def leave(browser: requests.Session, user: str, role: str | None) -> requests.Response:
        if role is None:
            return browser.delete(f"{url}/{user}", timeout=60)
        return browser.put(f"{url}/{user}", json={"role": role}, timeout=60)

    # Each takes the role of the next, and of themselves: one request less would not do.
    at_once(
        *(partial(leave, browsers[n], owners[n].id, "member") for n in range(4)),
        *(partial(leave, browsers[n], owners[(n + 1) % 4].id, None) for n in range(4)),
    )
    left = [one.role for one in members.list_in(shared_service.engine, workspace)]
    assert left.count("owner") >= 1


def test_an_invitation_is_accepted_once(shared_service: ServiceProcess) -> None:
    workspace = f"moment-{uuid.uuid4().hex[:8]}"
    owner = make_user(shared_service, {workspace: "owner"})
    caller = Caller(owner.name, workspace, "owner", owner.id, False, "192.0.2.1")
    name = f"new-{workspace}"
    _, code = members.invite(shared_service.engine, caller, name, "member")
    url = f"{shared_service.url}/invitation"
    form = {"code": code, "password": PASSWORD}
    answers = at_once(*[partial(requests.post, url, form, allow_redirects=False, timeout=60)] * 6)
    assert sum("daskscope_session" in one.headers.get("Set-Cookie", "") for one in answers) == 1

    others = [make_user(shared_service, {"elsewhere": "viewer"}) for _ in range(6)]
    browsers = [browser_of(shared_service, other.name) for other in others]
    _, code = members.invite(shared_service.engine, caller, "someone", "owner")
    at_once(*(partial(one.post, url, {"code": code}, timeout=60) for one in browsers))
    roles = {one.name: one.role for one in members.list_in(shared_service.engine, workspace)}
    assert sorted(roles.values()) == ["member", "owner", "owner"]


def test_a_sign_in_link_and_a_login_work_once(shared_service: ServiceProcess) -> None:
    workspace = f"moment-{uuid.uuid4().hex[:8]}"
    link = sign_in.make_link(shared_service.engine, shared_service.url, workspace)
    form = {"code": link.partition("code=")[2]}
    url = f"{shared_service.url}/sign-in"
    answers = at_once(*[partial(requests.post, url, form, allow_redirects=False, timeout=60)] * 6)
    assert sum("daskscope_session" in one.headers.get("Set-Cookie", "") for one in answers) == 1

    user = make_user(shared_service, {workspace: "owner"})
    caller = Caller(user.name, workspace, "owner", user.id, False, "192.0.2.1")
    begun = device_login.begin(shared_service.engine, host="h", address=f"{uuid.uuid4()}")
    assert device_login.answer(
        shared_service.engine, begun.user_code, caller, workspace=workspace, allow=True
    )
    asked = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": begun.code,
    }
    url = f"{shared_service.url}/api/v1/login/token"
    answers = at_once(*[partial(requests.post, url, asked, timeout=60)] * 6)
    assert [one.status_code for one in answers].count(200) == 1
    assert tokens.count_in(shared_service.engine, workspace, active=True) == 1


def test_a_token_sends_nothing_once_it_is_said_to_be_revoked(
    shared_service: ServiceProcess,
) -> None:
    workspace = f"moment-{uuid.uuid4().hex[:8]}"
    token = shared_service.token(workspace=workspace)
    admin = shared_service.token(workspace=workspace, scopes=["admin"])
    cluster = make_cluster(f"Scheduler-{workspace}")
    revoked = Event()
    late: list[int] = []

    def beat_on(first: int) -> None:
        until = time.monotonic() + PATIENCE
        for seq in count(first, 8):
            was_revoked = revoked.is_set()
            status = post(shared_service.url, token, make_beat(cluster, seq)).status_code
            if was_revoked:
                late.append(status)
                return
            assert time.monotonic() < until

    with ThreadPoolExecutor(8) as pool:
        beating = [pool.submit(beat_on, first) for first in range(8)]
        answer = requests.delete(
            f"{shared_service.url}/api/v1/tokens/{tokens.id_of(token)}",
            headers={"Authorization": f"Bearer {admin}"},
            timeout=60,
        )
        assert answer.ok
        revoked.set()
        for one in beating:
            one.result()
    assert late == [401] * 8
