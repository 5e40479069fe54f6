"""A cluster that falls silent is lost after the stated time, and back when it speaks again."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

import requests

from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_computation, make_status, post
from tests.service.conftest import NewDatabase
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess


def test_a_silent_cluster_is_lost_with_what_ran_on_it_until_it_speaks_again(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with ServiceProcess(tmp_path, database_url=new_database(), silent_after=1) as service:
        token = service.token()
        quick, slow = make_cluster(interval=0.1), make_cluster(interval=600.0)
        ended = make_cluster(interval=0.1)
        runs = make_computation(status="running", stopped_at=None)
        for cluster in (quick, slow):
            assert post(service.url, token, make_beat(cluster, computations=(runs,))).ok
        # In the process of a client, with and without work; and as older plugins say it.
        notebook: dict[str, Any] = {"interval": 0.1, "kind": "SLURMCluster"}
        working = make_cluster(**notebook, in_client=True)
        resting = make_cluster(**notebook, in_client=True)
        elsewhere = make_cluster(**notebook, in_client=False)
        older = make_cluster(interval=0.1, kind="LocalCluster")
        finished = make_computation(
            status="finished", stopped_at=time.time(), completed=100, states={"no-worker": 100}
        )
        for cluster, status in (
            (working, make_status(at_work=True, idle_seconds=None)),
            (resting, make_status(at_work=False, idle_seconds=None)),
            (elsewhere, make_status(at_work=False, idle_seconds=7.0)),
            (older, make_status(idle_seconds=7.0)),
        ):
            beat = make_beat(cluster, status=status, computations=(finished,))
            assert post(service.url, token, beat).ok
        stopped = make_status(stopped_at=time.time())
        assert post(service.url, token, make_beat(ended, phase="stop", status=stopped)).ok

        def ask(path: str) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            answer = requests.get(f"{service.url}/api/v1/{path}", headers=headers, timeout=30)
            return answer.json()

        def statuses(*clusters: Any) -> list[str]:
            return [ask(f"clusters/{cluster.id}")["status"] for cluster in clusters]

        def computation() -> str:
            status: str = ask(f"clusters/{quick.id}/computations/{runs.id}")["status"]
            return status

        wait_until(lambda: statuses(quick) == ["lost"])
        assert computation() == "lost"
        others = (working, resting, elsewhere, older)
        wait_until(lambda: statuses(*others) == ["lost", "ended", "lost", "ended"])
        assert "It ended without a word" in ask(f"clusters/{resting.id}")["sentence"]
        browser = browser_of(service, make_user(service, {"default": "owner"}).name)
        for cluster, offered in ((resting, False), (ended, False), (working, True)):
            address = f"/clusters/{cluster.id}"
            page = browser.get(service.url + address, timeout=30).text
            # One that is lost may only be cut off: it gets what it is asked once it is back.
            assert (f'href="{address}/shutdown"' in page) == offered
        row = ask(f"clusters/{resting.id}/computations/{finished.id}")
        assert (row["status"], row["done"]) == ("finished", 100)
        assert row["sentence"].endswith("Its results went with the workers.")
        # One that speaks every ten minutes has missed nothing yet; one that stopped is not lost.
        assert statuses(slow, ended) == ["running", "stopped"]
        assert "It fell silent" in ask(f"clusters/{quick.id}")["sentence"]

        seqs = count(2)

        def runs_again() -> bool:  # a slow machine may be late to ask
            assert post(service.url, token, make_beat(quick, next(seqs), computations=(runs,))).ok
            return statuses(quick) == ["running"] and computation() == "running"

        wait_until(runs_again)


def test_what_a_cluster_used_until_it_fell_silent_is_in_its_usage(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    settings: dict[str, Any] = {"silent_after": 1, "quick": True}
    with ServiceProcess(tmp_path, database_url=new_database(), **settings) as service:
        token = service.token()
        cluster = make_cluster(interval=0.1)
        for seq, busy in enumerate((100.0, 101.0)):
            status = make_status(worker_seconds={"busy": busy, "idle": 0.0})
            assert post(service.url, token, make_beat(cluster, seq, status=status)).ok

        def used() -> float:
            headers = {"Authorization": f"Bearer {token}"}
            answer = requests.get(f"{service.url}/api/v1/usage", headers=headers, timeout=30)
            seconds: float = answer.json()["items"][0]["thread_seconds"]
            return seconds

        wait_until(lambda: used() == 101.0)
