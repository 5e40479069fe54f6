"""Notifications: what is told, to whom, how often, and what of it no one gets to see."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import delete, insert, literal, or_, select, update

from daskscope.protocol import Prices
from daskscope_service.accounts import audit
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.notifications import addresses, due_notices
from daskscope_service.notifications.due_notices import COMES_BACK_AFTER, store_new_notices
from daskscope_service.notifications.notifier import PAUSE, Notifier, delete_old_notices
from daskscope_service.notifications.sending import Sender
from daskscope_service.notifications.wording import KINDS, MOST_LINES, cluster_silent, message
from tests.patience import wait_until
from tests.service.beats import (
    make_cluster,
    make_computation,
    make_status,
    make_tiny_tasks,
    make_worker_loss,
)
from tests.service.people import browser_of, make_user
from tests.service.test_commands import Workspace, workspace
from tests.service.test_policies import idle_beat, owner, send
from tests.service.webhook import Webhook
from tests.service_process import ServiceProcess

__all__ = ["owner", "workspace"]  # fixtures


@pytest.fixture(scope="module")
def shared_service(quick_service: ServiceProcess) -> ServiceProcess:
    return quick_service


@pytest.fixture
def webhook(workspace: Workspace) -> Iterator[Webhook]:
    with Webhook() as webhook:
        yield webhook
        with writing(workspace.service.engine) as connection:  # no one listens any more
            target = schema.notification_target
            connection.execute(delete(target).where(target.c.workspace == workspace.name))


def add(
    workspace: Workspace, owner: requests.Session, address: str, expected: int = 201, **fields: Any
) -> dict[str, Any]:
    answer = owner.post(
        f"{workspace.service.url}/api/v1/targets",
        json={"name": "the team", "address": address} | fields,
        timeout=30,
    )
    assert answer.status_code == expected, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(workspace: Workspace) -> dict[str, Any]:
    """Return what is told of the only target."""
    (found,) = workspace.get("targets")["items"]
    return dict(found)


def let_time_pass(workspace: Workspace, *, for_the_killed: bool = False) -> None:
    """Let the pause be over, and what was found be old enough to be told.

    Do nothing while a message is on its way: it would be sent twice, as it is where a process was
    killed that had claimed it.
    """
    target, notice = schema.notification_target, schema.notice
    with writing(workspace.service.engine) as connection:
        ours = target.c.workspace == workspace.name
        rests = or_(
            target.c.next_at <= time.time(),
            target.c.next_at == target.c.sent_at + PAUSE,
            target.c.failure.is_not(None),
            literal(for_the_killed),
        )
        if not connection.execute(update(target).where(ours, rests).values(next_at=0.0)).rowcount:
            return
        before = connection.execute(select(target.c.told_until).where(ours)).scalar_one()
        connection.execute(
            update(notice)
            .where(notice.c.workspace == workspace.name, notice.c.found_at > before)
            .values(found_at=before + 0.001)
        )
        past = time.time() - 60
        connection.execute(
            update(notice).where(notice.c.workspace == workspace.name)
            .values(found_at=notice.c.found_at - (before - past))
        )  # fmt: skip
        connection.execute(update(target).where(ours).values(told_until=past))


def erred(id: str = "c1", **fields: Any) -> Any:
    return make_computation(id, status="erred", stopped_at=time.time(), erred=3, **fields)


def rounds(workspace: Workspace) -> int:
    """Do rounds as four processes would, at once; return how many messages they sent."""

    def one(_: int) -> int:
        notifier = Notifier(
            workspace.service.engine,
            Sender(["127.0.0.0/8"]),
            url="https://x",
            silent_after=60.0,
            up_since=0.0,
        )
        try:
            return sum(turn.result(timeout=120) for turn in notifier.round())
        finally:
            notifier.close()

    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(one, range(4)))


def test_what_happens_together_is_told_together_with_links_and_once(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    workspace.beat(computations=(erred("before"),))
    add(workspace, owner, webhook.address)
    lost = make_worker_loss(
        expected=False,
        reason="out of memory",
        name="worker-3",
        processing=2,
        deployment={"slurm.job.id": "4711", "slurm.partition.name": "gpu", "k8s.pod.name": "p-0"},
    )
    waited = make_computation(
        "c3", status="erred", stopped_at=time.time(), erred=0, blamed=2, blames={"c2": "divide"}
    )
    news: dict[str, Any] = {
        "computations": (erred("c+1"), erred("c2"), waited),
        "worker_losses": (lost,),
    }
    for _ in range(2):  # a beat may come twice
        workspace.beat(**news)
    said = webhook.wait(1)
    assert said["title"] == f"daskscope, {workspace.name}: 3 × computation failed, worker lost"
    url = f"{workspace.service.url}/clusters/{workspace.cluster.id}"
    for line in (
        "A computation of ada on nightly failed after",
        f"{url}/computations/c%2B1",
        f"{url}/computations/c2",
        "s: 2 of 100 tasks need one that failed, divide; 40 done.",
        f"nightly lost the worker worker-3 (job 4711, pod p-0): out of memory, "
        f"with 2 tasks on it.\n{url}",
    ):
        assert line in said["message"]
    assert "before" not in said["message"]
    assert "0 task runs" not in said["message"]
    wait_until(lambda: shown(workspace)["sent_at"])  # it is noted once the answer has come
    # What is told already is not told again, by no one.
    workspace.beat(**news)
    let_time_pass(workspace)
    assert rounds(workspace) == 0
    assert len(webhook.told) == 1


def test_a_cause_that_costs_is_reported_once(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    add(workspace, owner, webhook.address)
    status = make_status(threads=4, peak_threads=4)
    now = time.time()
    # The same cause, but it cost less than half a minute of threads: a notice, and no notification.
    workspace.beat(status=status, **make_tiny_tasks("c0", now - 600, now - 594))
    workspace.beat(status=status, **make_tiny_tasks("c1", now - 500, now - 483.6))
    workspace.beat(status=status, **make_tiny_tasks("c2", now - 400, now - 383.6))
    said = webhook.wait(1)
    assert said["title"] == f"daskscope, {workspace.name}: finding"
    assert said["message"].startswith(
        "A computation of ada on nightly: its 15,000 tasks took 40 µs each, and Dask needs"
    )
    url = f"{workspace.service.url}/clusters/{workspace.cluster.id}"
    assert said["message"].endswith(f"{url}/computations/c1#finding-tiny-tasks")
    wait_until(lambda: shown(workspace)["sent_at"])
    let_time_pass(workspace)
    assert rounds(workspace) == 0


def _store_notices(workspace: Workspace) -> list[tuple[str, str | None]]:
    """Store what is new now; return the notices of findings: the id, and the severity."""
    store_new_notices(workspace.service.engine, workspace.name, 60.0, listens=False)
    table = schema.notice
    query = select(table.c.id, table.c.severity, table.c.found_at).where(
        table.c.workspace == workspace.name, table.c.kind == "finding"
    )
    with workspace.service.engine.connect() as connection:
        return [(row.id, row.severity) for row in connection.execute(query)]


def _wait_until_judged(workspace: Workspace) -> None:
    """Wait until a computation has its job, and is not about to be judged by it."""
    table = schema.computation
    waits = or_(table.c.judge_at.is_not(None), table.c.job.is_(None))
    query = select(table.c.id).where(table.c.workspace == workspace.name, waits)

    def is_judged() -> bool:
        with workspace.service.engine.connect() as connection:
            return connection.execute(query).first() is None

    wait_until(is_judged)


def _set(workspace: Workspace, table: Any, **values: Any) -> None:
    with writing(workspace.service.engine) as connection:
        connection.execute(update(table).where(table.c.workspace == workspace.name).values(values))


def _found_at(workspace: Workspace) -> float:
    table = schema.notice
    query = select(table.c.found_at).where(table.c.workspace == workspace.name)
    with workspace.service.engine.connect() as connection:
        return float(connection.execute(query).scalar_one())


def test_a_finding_is_news_again_only_once_it_has_changed(workspace: Workspace) -> None:
    status = make_status(threads=4, peak_threads=4)
    now = time.time()
    workspace.beat(status=status, **make_tiny_tasks("c1", now - 500, now - 483.6))
    wait_until(lambda: workspace.get("computations")["items"][0]["cause"])
    # It is of its job, for which it waits.
    wait_until(lambda: _store_notices(workspace))
    _wait_until_judged(workspace)
    [job] = workspace.get("jobs")["items"]
    whose = f"job:{job['id']}"
    assert _store_notices(workspace) == [(f"finding:tiny-tasks:{whose}", "warning")]
    day = 86400.0
    # On the next day, in another run: no news, but it is noted that it still occurs.
    long_ago = time.time() - 13 * day
    _set(workspace, schema.notice, found_at=long_ago, seen_at=long_ago)
    _store_notices(workspace)
    assert _found_at(workspace) == long_ago
    _set(workspace, schema.notice, seen_at=schema.notice.c.seen_at - 13 * day)
    _store_notices(workspace)
    assert _found_at(workspace) == long_ago
    # It gets more severe, which is news once.
    _set(workspace, schema.finding, severity="critical")
    assert _store_notices(workspace) == [(f"finding:tiny-tasks:{whose}", "critical")]
    assert _found_at(workspace) > now
    # It gets less severe: no news, and none when it is as severe as before.
    _set(workspace, schema.notice, found_at=long_ago)
    for severity in ("warning", "critical"):
        _set(workspace, schema.finding, severity=severity)
        _store_notices(workspace)
        assert _found_at(workspace) == long_ago
    # It comes back after two weeks in which it did not occur.
    _set(workspace, schema.notice, seen_at=time.time() - COMES_BACK_AFTER - day)
    _store_notices(workspace)
    assert _found_at(workspace) > now


def test_a_run_that_gets_its_job_anew_makes_no_news_of_its_user(workspace: Workspace) -> None:
    now = time.time()
    tiny = make_tiny_tasks("c1", now - 500, now - 483.6)
    workspace.beat(status=make_status(threads=4, peak_threads=4), **tiny)
    wait_until(lambda: _store_notices(workspace))
    [before] = _store_notices(workspace)
    assert before[0].startswith("finding:tiny-tasks:job:")
    _set(workspace, schema.computation, job=None, job_due_at=0.0)  # as a correction does
    assert _store_notices(workspace) == [before]


def test_what_a_computation_and_its_cluster_have_is_one_notice(workspace: Workspace) -> None:
    now = time.time()
    tiny = make_tiny_tasks("c1", now - 500, now - 483.6)
    workspace.beat(status=make_status(threads=4, peak_threads=4), **tiny)
    wait_until(lambda: _store_notices(workspace))
    _wait_until_judged(workspace)
    _set(workspace, schema.finding, rule="killed-for-memory")
    of_cluster = {"computation": "", "id": "of the cluster"}
    with writing(workspace.service.engine) as connection:
        mine = select(schema.finding).where(schema.finding.c.workspace == workspace.name)
        [row] = connection.execute(mine).mappings()
        connection.execute(insert(schema.finding).values({**row} | of_cluster))
        connection.execute(delete(schema.notice).where(schema.notice.c.workspace == workspace.name))
    [one] = _store_notices(workspace)
    assert one[0].startswith("finding:killed-for-memory:job:")
    # Without the computation's, it is the cluster's.
    with writing(workspace.service.engine) as connection:
        theirs = schema.finding.c.computation != ""
        connection.execute(
            delete(schema.finding).where(schema.finding.c.workspace == workspace.name, theirs)
        )
    assert sorted(id for id, _ in _store_notices(workspace)) == [
        one[0],
        "finding:killed-for-memory:user:ada",
    ]


def test_a_corrected_job_makes_no_news_of_what_was_reported(workspace: Workspace) -> None:
    now = time.time()
    tiny = make_tiny_tasks("c1", now - 500, now - 483.6)
    workspace.beat(status=make_status(threads=4, peak_threads=4), **tiny)
    wait_until(lambda: _store_notices(workspace))
    [job] = workspace.get("jobs")["items"]
    reported = _found_at(workspace)
    # The run is of a part of its job now, as a correction that splits it would have it.
    split = {"id": "c", "job": job["id"], "kind": "split", "value": "code"}
    row = {"workspace": workspace.name, "changed_at": now, "changed_by": "ada"}
    with writing(workspace.service.engine) as connection:
        connection.execute(insert(schema.job_correction).values(row | split))
    _set(workspace, schema.computation, job=f"{job['id']}-0a1b")
    part = (f"finding:tiny-tasks:job:{job['id']}-0a1b", "warning")
    assert part in _store_notices(workspace)
    table = schema.notice
    found_at = select(table.c.found_at).where(table.c.workspace == workspace.name)
    with workspace.service.engine.connect() as connection:
        assert list(connection.execute(found_at).scalars()) == [reported, reported]


def test_what_is_known_of_a_computation_is_no_news_when_it_gets_its_job(
    workspace: Workspace,
) -> None:
    now = time.time()
    tiny = make_tiny_tasks("c1", now - 500, now - 483.6)
    workspace.beat(status=make_status(threads=4, peak_threads=4), **tiny)
    wait_until(lambda: workspace.get("computations")["items"][0]["cause"])
    _wait_until_judged(workspace)
    [job] = workspace.get("jobs")["items"]
    # As that of one that runs, which gets its job at its end.
    _set(workspace, schema.computation, job=None, job_due_at=None)
    _remove_notices(workspace)
    assert _store_notices(workspace) == [("finding:tiny-tasks:user:ada", "warning")]
    _set(workspace, schema.notice, found_at=now - 60)
    _set(workspace, schema.computation, job=job["id"])
    assert len(_store_notices(workspace)) == 2
    assert _times(workspace) == {now - 60}
    # A graver one is news.
    _set(workspace, schema.finding, severity="critical")
    _store_notices(workspace)
    assert max(_times(workspace)) > now


def _remove_notices(workspace: Workspace) -> None:
    with writing(workspace.service.engine) as connection:
        ours = schema.notice.c.workspace == workspace.name
        connection.execute(delete(schema.notice).where(ours))


def _times(workspace: Workspace) -> set[float]:
    """Return when notices were found."""
    query = select(schema.notice.c.found_at).where(schema.notice.c.workspace == workspace.name)
    with workspace.service.engine.connect() as connection:
        return set(connection.execute(query).scalars())


def test_notices_of_findings_that_still_occur_are_kept(workspace: Workspace) -> None:
    old = time.time() - 50 * 86400.0
    notice = schema.notice
    common = {"workspace": workspace.name, "kind": "finding", "cluster": "", "found_at": old}
    common |= {"sentence": "", "path": "/", "severity": "warning"}
    with writing(workspace.service.engine) as connection:
        connection.execute(
            insert(notice), [common | {"id": id, "seen_at": seen} for id, seen in
                             (("gone", old), ("occurs", time.time()))],
        )  # fmt: skip
    delete_old_notices(workspace.service.engine)
    query = select(notice.c.id).where(notice.c.workspace == workspace.name)
    with workspace.service.engine.connect() as connection:
        assert list(connection.execute(query).scalars()) == ["occurs"]


def test_between_two_messages_is_a_pause_and_one_process_sends_what_has_come(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    add(workspace, owner, webhook.address)
    workspace.beat(computations=(erred("c1"),))
    webhook.wait(1)
    wait_until(lambda: shown(workspace)["sent_at"])  # it is noted once the answer has come
    workspace.beat(computations=(erred("c2"),))
    workspace.beat(computations=(erred("c3"),))
    target = schema.notification_target
    with workspace.service.engine.connect() as connection:
        next_at = connection.execute(
            select(target.c.next_at).where(target.c.workspace == workspace.name)
        ).scalar_one()
    assert next_at > time.time() + 60
    assert rounds(workspace) == 0
    let_time_pass(workspace)
    rounds(workspace)
    said = webhook.wait(2)
    assert said["title"].endswith(": 2 × computation failed")


def test_a_message_that_is_not_taken_is_told_of_and_tried_again(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    webhook.status = 500
    add(workspace, owner, webhook.address)
    workspace.beat(computations=(erred(),))
    wait_until(lambda: shown(workspace)["failure"])
    assert "was not accepted" in shown(workspace)["failure"]
    assert "s3cr3t" not in shown(workspace)["failure"]
    assert webhook.refused == 1
    page = owner.get(f"{workspace.service.url}/settings/notifications", timeout=30).text
    assert f": {shown(workspace)['failure']}." in page
    webhook.status = 200
    workspace.beat(computations=(erred("c2"),))
    let_time_pass(workspace)
    rounds(workspace)
    assert webhook.wait(1)["title"].endswith(": 2 × computation failed")
    assert shown(workspace)["failure"] is None


def test_what_a_killed_process_was_about_to_send_is_sent_by_another(
    tmp_path: Path,
) -> None:
    with (
        ServiceProcess(tmp_path, quick=True, notify_networks=("127.0.0.1",)) as service,
        Webhook() as webhook,
    ):
        ours = Workspace(service, "default")
        name = make_user(service, {ours.name: "owner"}).name
        webhook.go_on.clear()
        add(ours, browser_of(service, name), webhook.address)
        ours.beat(computations=(erred("c1"),))
        assert webhook.reached.wait(60)
        service.stop("KILL")
        webhook.go_on.set()
        assert rounds(ours) == 0  # it may still be on its way
        let_time_pass(ours, for_the_killed=True)
        assert rounds(ours) == 1
        assert "computations/c1" in webhook.told[-1]["message"]
        let_time_pass(ours)
        assert rounds(ours) == 0


def test_silence_idleness_and_a_budget_that_is_passed_are_told(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    priced = make_cluster(prices=Prices("EUR", {"thread": 1.0}), started_at=time.time())
    workspace.beat(priced, status=make_status(cost=60.5))
    api = f"{workspace.service.url}/api/v1"
    budget = {"amount": 60, "currency": "EUR"}
    assert budget.items() <= owner.put(f"{api}/budget", json=budget, timeout=30).json().items()
    assert budget.items() <= workspace.get("budget").items()
    for part in ({"user": "ada"}, {"user": "li"}, {"tag": "team=imaging"}):
        of_part = {"amount": 50, "currency": "EUR"} | part
        assert owner.put(f"{api}/budget", json=of_part, timeout=30).ok
    add(workspace, owner, webhook.address)
    # A kernel that was restarted is no news; one that was at work is, or of a cluster of its own.
    silent = make_cluster(name="adhoc", in_client=True)
    resting = make_cluster(name="notebook", in_client=True)
    workspace.beat(silent, status=make_status(at_work=True))
    workspace.beat(resting, status=make_status(at_work=False))
    with writing(workspace.service.engine) as connection:
        connection.execute(
            update(schema.cluster)
            .where(schema.cluster.c.id.in_((silent.id, resting.id)))
            .values(last_seen_at=time.time() - 600)
        )
    send(workspace, owner, action="notice")
    idle_beat(workspace)
    expected = (
        "adhoc of ada fell silent 10 min",
        "have cost 60.50 EUR, an estimate: more than the budget of 60.00 EUR.",
        "have cost 60.50 EUR, an estimate: more than the budget of 50.00 EUR.",
        "Idle for 42 min; policy 'nights' gives notice after 30 min",
    )
    text = ""

    def all_are_sent() -> bool:
        nonlocal text
        let_time_pass(workspace)
        rounds(workspace)
        text = "\n".join(told["message"] for told in webhook.told)
        return all(sentence in text for sentence in expected)

    wait_until(all_are_sent, what=lambda: webhook.told)
    assert text.count("adhoc of ada fell silent") == 1
    # All clusters', and ada's: li and the team have spent nothing.
    assert text.count("have cost") == 2
    assert text.count("Clusters of ada that started in") == 1
    assert "notebook" not in text


def test_of_very_many_silent_clusters_the_newest_are_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_notices, "_MOST_SILENT", 2)
    engine, notice = workspace.service.engine, schema.notice
    silent = [make_cluster() for _ in range(3)]
    for ago, one in enumerate(silent):
        workspace.beat(one)
        with writing(engine) as connection:
            connection.execute(
                update(schema.cluster)
                .where(schema.cluster.c.id == one.id)
                .values(last_seen_at=time.time() - 600 - ago)
            )
    store_new_notices(engine, workspace.name, 60.0, listens=True)
    told = select(notice.c.cluster).where(notice.c.workspace == workspace.name)
    with engine.connect() as connection:
        found = set(connection.execute(told.where(notice.c.kind == "cluster silent")).scalars())
    assert found == {one.id for one in silent[:2]}


def test_a_target_hears_of_what_it_wants_to_hear(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    add(workspace, owner, webhook.address, kinds=["worker lost"])
    lost = make_worker_loss(id="w1", expected=False)
    closed = make_worker_loss(id="w2", expected=True, name="closed")
    workspace.beat(computations=(erred(),), worker_losses=(lost, closed))
    assert webhook.wait(1)["title"].endswith(": worker lost")
    assert "closed" not in webhook.told[0]["message"]


def test_no_one_gets_to_see_an_address(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    target = add(workspace, owner, webhook.address)
    assert target["service"] == "json"
    text = owner.get(f"{workspace.service.url}/settings/notifications", timeout=30).text
    assert "the team" in text
    kept = [str(entry) for entry in audit.newest(workspace.service.engine, 50)]
    for told in (str(target), str(workspace.get("targets")), text, *kept):
        assert "s3cr3t" not in told
    assert "s3cr3t" not in workspace.service.output
    assert any("the team" in entry for entry in kept)


def test_a_test_says_whether_it_was_sent(
    workspace: Workspace, owner: requests.Session, webhook: Webhook
) -> None:
    target = add(workspace, owner, webhook.address)
    by_api = f"{workspace.service.url}/api/v1/targets/{target['id']}"
    by_page = f"{workspace.service.url}/settings/notifications/{target['id']}"
    assert owner.post(f"{by_api}/test", timeout=30).json() == {"sent": True, "failure": None}
    assert "a test" in webhook.wait(1)["title"]
    assert "The test was sent." in owner.post(f"{by_page}/test", timeout=30).text
    webhook.wait(2)
    webhook.status = 403
    answer = owner.post(f"{by_api}/test", timeout=30).json()
    assert answer["sent"] is False
    assert "was not accepted" in answer["failure"]
    assert "was not accepted" in owner.post(f"{by_page}/test", timeout=30).text
    assert owner.delete(by_api, timeout=30).status_code == 204
    assert owner.post(f"{by_api}/test", timeout=30).status_code == 404


def test_what_is_no_address_of_a_service_is_refused(
    workspace: Workspace, owner: requests.Session
) -> None:
    for address, said in (
        ("https://example.org/hook", "is not supported for notifications"),
        ("syslog://localhost", "is not supported for notifications"),
        ("dbus://x", "is not supported for notifications"),
        ("slack://", "begins with"),
        ("slack://short", "is not a valid address"),
        ("maria@example.org", "begins with"),
    ):
        problem = add(workspace, owner, address, 400)
        assert said in problem["detail"]
        assert problem["field"] == "$.address"
    url = f"{workspace.service.url}/settings/notifications"
    form = {"name": "x", "address": "slack://short", "kinds": list(KINDS)}
    assert "is not a valid address" in owner.post(url, data=form, timeout=30).text
    assert workspace.get("targets")["items"] == []


@pytest.mark.parametrize("scheme", sorted(addresses.PARAMETERS))
def test_apprise_has_what_sends_to_each_service_where_it_is_looked_for(scheme: str) -> None:
    assert scheme in addresses._schemes(addresses._plugin(scheme))


def test_names_add_no_lines_to_a_message() -> None:
    name = "train\r\n\nSign in: https://evil.example\x85\u2028\u202egpj"
    sentence = cluster_silent({"name": name, "user": "ada\nBcc: eve"}, 60)
    one = {"kind": "cluster silent", "sentence": sentence, "path": "/clusters/x"}
    _, text = message([one], {"cluster silent": 1}, "team", "https://d.example")
    first, link = text.splitlines()
    assert first.startswith("train Sign in: https://evil.example gpj of ada Bcc: eve fell silent")
    assert link == "https://d.example/clusters/x"
    assert first.isprintable()


def test_names_call_nobody_and_hide_no_link_in_a_chat() -> None:
    name = "@everyone <@&7> <!channel> [sign in](https://evil.example)"
    sentence = cluster_silent({"name": name, "user": "ada@example.org"}, 60)
    one = {"kind": "cluster silent", "sentence": sentence, "path": "/clusters/x"}
    _, text = message([one], {"cluster silent": 1}, "team", "https://d.example")
    for markup in ("@everyone", "<@", "@&", "<!", "]("):
        assert markup not in text
    # It reads the same, and an address of e-mail is one still.
    assert text.replace("\u200b", "").startswith(f"{name} of ada@example.org fell silent")
    assert "ada@example.org" in text


def test_a_message_of_very_many_counts_those_that_it_leaves_out() -> None:
    one = {"kind": "worker lost", "sentence": "It is gone.", "path": "/clusters/x"}
    title, text = message([one] * MOST_LINES, {"worker lost": 1000}, "team", "https://d.example")
    assert title == "daskscope, team: 1,000 × worker lost"
    assert text.count("It is gone.\nhttps://d.example/clusters/x") == MOST_LINES
    assert text.endswith("And 980 more: https://d.example/")
    long = one | {"sentence": "It ran in the job " + "x" * 5000}
    _, text = message([long], {"worker lost": 1}, "team", "https://d.example")
    assert text.endswith("x…\nhttps://d.example/clusters/x")
    assert len(text) < 600
