"""Muted findings: a member says why and until when; then nobody is notified of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, event, insert, select, update

from daskscope_service.accounts import audit
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import computation, finding, mute, notice
from daskscope_service.db.scope import Scope
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.findings.otlp_events import FindingEvents
from daskscope_service.jobs.namer import Namer
from daskscope_service.notifications import due_notices
from daskscope_service.queries.causes import causes_by_cost
from daskscope_service.queries.mutes import mutes_on
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_status, make_tiny_tasks, post
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service.test_finding_events import Receiver, serving
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
        self.send("tiny")

    def cluster_of(self, id: str) -> str:
        return self.cluster if id == "tiny" else f"{self.cluster}-{id}"

    def send(self, id: str, **fields: Any) -> None:
        """Send the computation of a cluster that has ended well, with these fields."""
        now = time.time()
        rows = make_tiny_tasks(id, now - 300, now - 283.6)
        rows["computations"] = tuple(replace(one, **fields) for one in rows["computations"])
        beat = make_beat(
            make_cluster(self.cluster_of(id), started_at=now - 400), status=STATUS, **rows
        )
        token = self.service.token(workspace=self.workspace)
        assert post(self.service.url, token, beat).ok

    def job_of(self, id: str) -> str:
        """Wait until a computation has its job; return the job's id."""

        def found() -> Any:
            Namer(self.service.engine, 60.0).round()
            query = select(computation.c.job).where(
                computation.c.workspace == self.workspace, computation.c.id == id
            )
            with self.service.engine.connect() as connection:
                return connection.execute(query).scalar()

        return str(wait_until(found))

    def judge(self, id: str = "tiny") -> None:
        """Wait until the finding is stored."""
        engine = self.service.engine
        mine = finding.c.workspace == self.workspace
        query = select(finding.c.rule).where(mine, finding.c.computation == id)

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


@pytest.mark.parametrize("whose", ["computation", "job"])
def test_a_muted_finding_hides_none_of_its_cluster(place: Place, whose: str) -> None:
    place.judge()
    job, rule = place.job_of("tiny"), "killed-for-memory"
    with writing(place.service.engine) as connection:
        ours = finding.c.workspace == place.workspace
        connection.execute(update(finding).where(ours).values(rule=rule))
        [row] = connection.execute(select(finding).where(ours)).mappings()
        of_cluster = {"computation": "", "id": "of the cluster"}
        connection.execute(insert(finding).values({**row} | of_cluster))

    def count() -> int:
        with place.service.engine.connect() as connection:
            scope = Scope(connection, place.workspace, time.time(), 60.0)
            return sum(one.findings for one in causes_by_cost(scope, 0.0) if one.rule == rule)

    assert count() == 1
    of_job = {"job": job, "cluster": None, "computation": None}
    place.mute(rule=rule, **(of_job if whose == "job" else {}))
    assert count() == 1
    place.mute(rule=rule, computation=None)
    assert count() == 0


def test_a_muted_finding_is_folded_and_sent_to_nobody(place: Place) -> None:
    place.judge()
    place.job_of("tiny")  # until it is known, nobody is notified
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
    made = place.mute(computation=None, cluster=make_cluster(place.cluster).name)
    assert (made["cluster"], made["computation"]) == (place.cluster, None)
    assert "1 muted finding" in place.page(place.path)
    with writing(place.service.engine) as connection:
        mine = mute.c.workspace == place.workspace
        connection.execute(mute.update().where(mine).values(until=time.time() - 1))
    assert "1 muted finding" not in place.page(place.path)
    assert place.answer("GET", "mutes").json()["items"] == []


def test_a_mute_of_a_job_covers_all_its_runs_and_nothing_else(place: Place) -> None:
    place.send("other", spans=("other",))
    place.send("later", spans=("nightly",))
    place.judge("later")
    place.judge("other")
    job = place.job_of("later")
    url = f"{place.service.url}/clusters/{place.cluster_of('later')}/computations/later"
    page = place.session.get(f"{url}/mute?rule={RULE}", timeout=30).text
    assert "all runs of its job" in page
    form = {"reason": "it is so each night", "days": "30", "covers": "job"}
    answer = place.session.post(f"{url}/mute?rule={RULE}", data=form, timeout=30)
    assert "1 muted finding" in words(answer.text)
    [made] = place.answer("GET", "mutes").json()["items"]
    assert (made["job"], made["cluster"], made["computation"]) == (job, None, None)

    place.send("newest", spans=("nightly",))  # a run that comes after the mute
    place.judge("newest")
    assert place.job_of("newest") == job
    muted = {
        one["computation"]: one["muted"] and one["muted"]["reason"]
        for one in place.answer("GET", "findings").json()["items"]
        if one["rule"] == RULE
    }
    reason = form["reason"]
    assert muted == {"later": reason, "newest": reason, "other": None, "tiny": None}
    why = place.answer("GET", "findings/other").json()
    assert why["findings"][0]["muted"] is None
    assert place.told()
    for id in ("other", "tiny"):
        place.mute(cluster=place.cluster_of(id), computation=None)
    assert not place.told()
    causes = {
        one["id"]: one["cause"] for one in place.answer("GET", "computations").json()["items"]
    }
    assert causes["newest"] is None
    path = f"/clusters/{place.cluster_of('newest')}/computations/newest"
    assert "1 muted finding" in place.page(path)
    ended = place.session.post(
        f"{place.service.url}/mutes/{made['id']}/end",
        data={"cluster": place.cluster_of("newest"), "computation": "newest"},
        timeout=30,
    )
    assert ended.url.endswith(path)
    assert "1 muted finding" not in words(ended.text)
    actions = [
        one.detail
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.workspace and one.action == "finding unmuted"
    ]
    assert actions == [f"{RULE} of job {job}"]


def test_while_a_run_waits_for_its_job_nobody_is_notified_of_what_may_be_muted(
    place: Place,
) -> None:
    place.judge()
    job = place.job_of("tiny")
    place.mute(cluster=None, computation=None, job=job)
    receiver = Receiver()

    def run(**values: Any) -> None:
        mine = computation.c.workspace == place.workspace
        with writing(place.service.engine) as connection:
            connection.execute(computation.update().where(mine).values(**values))

    query = select(finding).where(finding.c.workspace == place.workspace, finding.c.rule == RULE)
    with place.service.engine.connect() as connection:
        found = [dict(row) for row in connection.execute(query).mappings()]
    with serving(receiver) as url:
        settings = Settings(otlp_endpoint=url)
        events = FindingEvents(place.service.engine, settings, 60.0, ServiceMetrics())
        for known in (job, None):
            run(job=None, job_due_at=time.time() + 3600)
            events.report(place.workspace, found)
            assert (events.round(), place.told()) == (0, [])
            run(job=known, job_due_at=None)
            sent = 0 if known else 1
            assert (events.round(), len(place.told())) == (sent, sent)
    assert len(receiver.of(RULE)) == 1


def test_only_a_mute_of_a_job_needs_the_job_of_a_computation_and_reads_it_by_its_key(
    place: Place,
) -> None:
    if place.service.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL plans by what a table holds")
    job = place.job_of("tiny")
    asked: list[tuple[str, Any]] = []

    def muted() -> list[str]:
        asked.clear()
        with place.service.engine.connect() as connection:
            scope = Scope(connection, place.workspace, time.time(), 60.0)

            @event.listens_for(connection, "before_cursor_execute")
            def note(_c: Any, _cursor: Any, sql: str, values: Any, *_: Any) -> None:
                if "FROM computation" in sql:
                    asked.append((sql, values))

            return [*mutes_on(scope, place.cluster, "tiny")]

    assert (muted(), asked) == ([], [])
    place.mute(cluster=None, computation=None, job=job)
    assert muted() == [RULE]
    [(sql, values)] = asked
    with place.service.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all()
    assert [step[3] for step in plan if "computation" in step[3]] == [
        "SEARCH computation USING INDEX sqlite_autoindex_computation_1 "
        "(workspace=? AND cluster=? AND id=?)"
    ]


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
    place.session.post(
        url, data={"reason": "another", "days": "1", "covers": "cluster"}, timeout=30
    )
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
        ({"job": "another"}, 400),  # with a cluster
        ({"cluster": None, "computation": None}, 400),
        ({"cluster": None, "computation": None, "job": "another"}, 404),
    ):
        answer = place.answer("POST", "mutes", **place.wish(**fields))
        assert answer.status_code == status, (fields, answer.text)
    # Nor what is another workspace's.
    other = Place(place.service)
    assert other.answer("POST", "mutes", **place.wish()).status_code == 404
    made = place.mute()
    assert other.answer("DELETE", f"mutes/{made['id']}").status_code == 404
