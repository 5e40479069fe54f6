"""Muted findings: a member says why and until when; then nobody is notified of it."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, select

from daskscope_service.accounts import audit
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import finding, mute, notice
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.notifications import due_notices
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_status, make_tiny_tasks, post
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

STATUS = make_status(threads=4, peak_threads=4, workers=2, peak_workers=2)
RULE = "tiny-tasks"


class Place:
    """A workspace in which the computation `tiny` has a finding of RULE, and its member."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service, self.workspace = service, f"mutes-{uuid.uuid4().hex[:8]}"
        self.cluster = f"Scheduler-{self.workspace}"
        self.user = make_user(service, {self.workspace: "member"}).name
        self.session = browser_of(service, self.user)
        self.path = f"/clusters/{self.cluster}/computations/tiny"
        token = service.token(workspace=self.workspace)
        now = time.time()
        beat = make_beat(
            make_cluster(self.cluster, started_at=now - 400),
            status=STATUS,
            **make_tiny_tasks("tiny", now - 300, now - 283.6),
        )
        assert post(service.url, token, beat).ok

    def judge(self) -> None:
        """Wait until the finding is stored."""
        engine = self.service.engine
        mine = finding.c.workspace == self.workspace
        query = select(finding.c.rule).where(mine, finding.c.computation == "tiny")

        def stored() -> bool:
            Evaluator(engine, EmbeddedSeries(engine), 60.0).round()
            with engine.connect() as connection:
                return RULE in connection.execute(query).scalars().all()

        assert wait_until(stored)

    def answer(self, method: str, path: str, **body: Any) -> Any:
        url = f"{self.service.url}/api/v1/{path}"
        return self.session.request(method, url, json=body or None, timeout=30)

    def page(self, path: str) -> str:
        return words(self.session.get(self.service.url + path, timeout=30).text)

    def wish(self, **fields: Any) -> dict[str, Any]:
        until = datetime.now(UTC) + timedelta(days=2)
        wish = {"rule": RULE, "cluster": self.cluster, "computation": "tiny"}
        return wish | {"reason": "a known test", "until_at": until.isoformat()} | fields

    def mute(self, **fields: Any) -> Any:
        answer = self.answer("POST", "mutes", **self.wish(**fields))
        assert answer.status_code == 201, answer.text
        return answer.json()

    def told(self) -> list[str]:
        """Return what people would be notified of now."""
        with writing(self.service.engine) as connection:
            connection.execute(delete(notice).where(notice.c.workspace == self.workspace))
        due_notices.store_new_notices(self.service.engine, self.workspace, 60.0, listens=False)
        query = select(notice.c.id).where(notice.c.workspace == self.workspace)
        with self.service.engine.connect() as connection:
            return [id for id in connection.execute(query).scalars() if RULE in id]


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def test_a_muted_finding_is_folded_and_sent_to_nobody(place: Place) -> None:
    place.judge()
    assert place.told()
    assert "its 15,000 tasks took" in place.page(place.path)
    made = place.mute()
    assert (made["by"], made["computation"]) == (place.user, "tiny")
    page = place.page(place.path)
    assert "1 muted finding" in page
    assert "a known test" in page
    assert f"by {place.user}" in page
    assert "its 15,000 tasks took" not in page  # it is no cause of the first sentence
    assert not place.told()
    [listed] = [
        one for one in place.answer("GET", "findings").json()["items"] if one["rule"] == RULE
    ]
    assert listed["muted"] == {key: made[key] for key in ("id", "reason", "until_at", "at", "by")}
    [row] = place.answer("GET", "computations").json()["items"]
    assert row["cause"] is None
    why = place.answer("GET", "findings/tiny").json()
    assert why["findings"][0]["muted"]["reason"] == "a known test"
    assert "1 muted finding" not in place.page(f"/clusters/{place.cluster}")
    assert f"#cause-{RULE}" not in place.page("/findings")
    assert place.answer("DELETE", f"mutes/{made['id']}").status_code == 204
    assert "its 15,000 tasks took" in place.page(place.path)
    assert place.told()
    entries = [
        (one.action, one.actor)
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.workspace and "mute" in one.action
    ]
    assert entries == [("finding unmuted", place.user), ("finding muted", place.user)]


def test_a_mute_ends_by_itself_and_a_cluster_s_is_of_all_that_ran_on_it(place: Place) -> None:
    made = place.mute(computation=None)
    assert made["computation"] is None
    assert "1 muted finding" in place.page(place.path)
    with writing(place.service.engine) as connection:
        mine = mute.c.workspace == place.workspace
        connection.execute(mute.update().where(mine).values(until=time.time() - 1))
    assert "1 muted finding" not in place.page(place.path)
    assert place.answer("GET", "mutes").json()["items"] == []


def test_the_page_asks_why_and_for_how_long(place: Place) -> None:
    url = f"{place.service.url}{place.path}/mute?rule={RULE}"
    assert (
        f"{place.path}/mute?rule={RULE}"
        in place.session.get(place.service.url + place.path, timeout=30).text
    )
    assert "Mute tiny tasks?" in words(place.session.get(url, timeout=30).text)
    answer = place.session.post(url, data={"reason": " ", "days": "30"}, timeout=30)
    assert answer.status_code == 400
    assert "Write a reason" in answer.text
    answer = place.session.post(url, data={"reason": "a test", "days": "30"}, timeout=30)
    assert answer.history
    assert "1 muted finding" in words(answer.text)
    [made] = place.answer("GET", "mutes").json()["items"]
    until = datetime.fromisoformat(made["until_at"])
    assert abs(until - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=5)
    # Once more: in place of the first.
    place.session.post(url, data={"reason": "another", "days": "1", "whole": "1"}, timeout=30)
    place.session.post(url, data={"reason": "the same", "days": "1"}, timeout=30)
    reasons = {one["reason"] for one in place.answer("GET", "mutes").json()["items"]}
    assert reasons == {"another", "the same"}
    ended = place.session.post(
        f"{place.service.url}/mutes/{made['id']}/end", data={"computation": "tiny"}, timeout=30
    )
    assert ended.status_code == 404  # it was replaced


def test_what_cannot_be_muted_is_refused(place: Place) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    for fields, status in (
        ({"rule": "no-such"}, 400),
        ({"reason": ""}, 400),
        ({"until_at": past}, 400),
        ({"until_at": "2100-01-01T00:00:00Z"}, 400),
        ({"cluster": "another"}, 404),
        ({"computation": "another"}, 404),
    ):
        answer = place.answer("POST", "mutes", **place.wish(**fields))
        assert answer.status_code == status, (fields, answer.text)
    # Nor what is another workspace's.
    other = Place(place.service)
    assert other.answer("POST", "mutes", **place.wish()).status_code == 404
    made = place.mute()
    assert other.answer("DELETE", f"mutes/{made['id']}").status_code == 404
