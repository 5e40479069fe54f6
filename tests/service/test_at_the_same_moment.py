"""What several people set at the same moment is set once, and no one gets an internal error."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from tests.service.beats import make_beat, make_cluster, post
from tests.service.people import browser_of, make_user
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
