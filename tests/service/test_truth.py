"""A real cluster on a real service: what each answer says of it is what a second plugin counted."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest
import requests
from dask.delayed import delayed
from distributed import Client, Event, LocalCluster, wait

import daskscope
from daskscope.plugin import NAME
from tests.exporter.everywhere import counted_everywhere
from tests.exporter.truth import Truth, off
from tests.patience import PATIENCE, wait_until
from tests.service.counted_rows import assert_service_equals
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

#: Of a thread, an hour.
PRICE = 36.0


def nap(number: int, seconds: float = 0.2) -> int:
    time.sleep(seconds)
    return number


def fail(x: int) -> int:
    raise ZeroDivisionError


def hold(name: str) -> None:
    Event(f"{name} runs").set()
    Event(name).wait()


def work(client: Client) -> None:
    """Run the same graph twice, fail with dependents, cancel, and do nothing for a while."""
    total = delayed(sum)([delayed(nap)(i) for i in range(6)])
    for _ in range(2):
        assert total.compute() == 15
    failed = client.submit(fail, 1, pure=False)
    wait(client.map(nap, [failed, failed], pure=False))
    held = client.map(hold, ["cancel 1", "cancel 2"])
    for number in (1, 2):
        Event(f"cancel {number} runs", client=client).wait(timeout=PATIENCE)
    client.cancel(held)
    for number in (1, 2):
        Event(f"cancel {number}", client=client).set()


def test_a_task_for_a_worker_that_has_left_says_so_at_once_and_afterwards(
    shared_service: ServiceProcess,
) -> None:
    token = shared_service.token(scopes=["ingest", "read"], workspace="left")
    owner = browser_of(shared_service, make_user(shared_service, {"left": "owner"}).name)
    own = {"own": {"unrunnable.seconds": 1.0}}
    assert owner.put(f"{shared_service.url}/api/v1/thresholds", json=own, timeout=30).ok

    def get(path: str) -> Any:
        answer = requests.get(
            f"{shared_service.url}/api/v1/{path}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        )
        answer.raise_for_status()
        return answer.json()

    def computations() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get("computations")["items"]
        return found

    options: dict[str, Any] = {"endpoint": shared_service.url, "token": token, "interval": "500ms"}
    with (
        counted_everywhere(),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        daskscope.register(client, **options)
        gone, _ = client.scheduler_info()["workers"]
        client.retire_workers([gone])
        pinned = client.submit(nap, 1, workers=[gone], pure=False)
        said = "0 of 1 task done after "
        (row,) = wait_until(
            lambda: [
                row for row in computations() if row["sentence"].startswith(said) and row["asks"]
            ],
            what="the computation to say what it waits for",
        )
        asks = f"s: 1 task waits for a worker that may run it (worker {gone})."
        assert row["sentence"].endswith(asks)
        assert row["status"] == "running"
        wait_until(
            lambda: computations()[0]["unrunnable_seconds"] >= 2,
            what="two seconds in which no worker could run it",
        )
        pinned.cancel()
        wait_until(lambda: computations()[0]["status"] == "cancelled", what="it to be cancelled")
    (row,) = computations()
    waited = f"1 task waited for a worker that may run it (worker {gone})."
    assert row["sentence"].startswith("Cancelled after "), row
    assert row["sentence"].endswith(f"s: 0 of 1 task done; {waited}"), row

    def stopped() -> Any:
        found = get(f"clusters/{row['cluster']}")
        return found if found["stopped_at"] is not None else None

    why = (
        r": 1 task waited for a worker that can run it: none of \d workers? was or had what it "
        rf"asked for \(worker {re.escape(gone)}\)\."
    )
    cluster_says = wait_until(stopped, what="the cluster to stop")["headline"]
    assert re.fullmatch(rf"It stopped after .*, in which it ran 1 .*{why}", cluster_says)
    says = get(f"clusters/{row['cluster']}/computations/{row['id']}")["headline"]
    assert re.fullmatch(rf"Cancelled after [\d.]+ s{why}", says), says


def test_all_answers_say_what_the_cluster_did(shared_service: ServiceProcess) -> None:
    token = shared_service.token(workspace="truth")
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster:
        assert cluster.scheduler is not None
        truth = Truth(cluster.scheduler, NAME)
        with Client(cluster) as client:
            client.sync(truth.begin)
            daskscope.register(
                client,
                endpoint=shared_service.url,
                token=token,
                interval="500ms",
                prices={"currency": "EUR", "thread": PRICE},
            )
            work(client)
            wait_until(lambda: truth.idle_seconds() > 3, what="three seconds of idle threads")
            plugin = cluster.scheduler.plugins.pop(NAME)
            client.sync(plugin.close)
            client.sync(truth.end)

    def get(path: str, **parameters: Any) -> Any:
        answer = requests.get(
            f"{shared_service.url}/api/v1/{path}",
            headers={"Authorization": f"Bearer {token}"},
            params=parameters,
            timeout=30,
        )
        answer.raise_for_status()
        return answer.json()

    (listed,) = get("clusters")["items"]
    found = get(f"clusters/{listed['id']}")
    assert found["stopped_at"] is not None
    computations = assert_service_equals(truth, shared_service.url, token, found["id"], row=True)
    # What needed the task that failed says whose it was.
    (blamed,) = (row for row in computations if row["blamed"])
    (failed,) = (row for row in computations if row["failures"])
    assert blamed["blames"] == {failed["id"]: "fail"}
    assert blamed["sentence"].startswith("Not finished after ")

    # As many as there were until it was closed.
    assert (found["workers"], found["threads"]) == (truth.peak_workers, truth.peak_threads)
    assert found["memory_limit"] > 0
    assert found["peak_worker_memory"] > 0

    # One meaning of idle, and the money that it comes to.
    idle, threads = found["worker_seconds"]["idle"], sum(found["worker_seconds"].values())
    until = datetime.fromisoformat(found["status_at"]).timestamp()
    spent = truth.spent(truth.began_at, until)
    assert abs(threads - spent.threads) <= off(spent)
    assert abs(found["cost"] - spent.threads * PRICE / 3600) <= off(spent) * PRICE / 3600
    assert abs(found["idle_cost"] - spent.idle * PRICE / 3600) <= off(spent) * PRICE / 3600
    assert found["idle_cost"] / found["cost"] == pytest.approx(idle / threads, rel=0.02)
    nobody = next(row for row in found["activities"] if row["prefix"] == "")
    assert nobody["seconds"]["idle"] == pytest.approx(idle)
    whole = sum(sum(row["seconds"].values()) for row in found["activities"])
    assert whole == pytest.approx(threads, rel=0.02)
    (week,) = get("usage")["items"]
    assert week["idle_seconds"] == pytest.approx(idle)
    assert week["idle_cost"] == pytest.approx(found["idle_cost"])
