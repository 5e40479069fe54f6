"""Real clusters are closed through a real service, and everyone sees what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
import requests
from distributed import Client, LocalCluster
from distributed.core import Status

import daskscope
import daskscope.config  # its defaults must be there before one test's settings come and go
from daskscope_service.accounts import audit
from tests.exporter.everywhere import counted_everywhere
from tests.patience import wait_for_file, wait_until
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

PATIENCE = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def configured(service: ServiceProcess) -> Iterator[dict[str, Any]]:
    settings = {
        "daskscope.endpoint": service.url,
        "daskscope.token": service.token(["ingest", "read", "admin"]),
        "daskscope.interval": "100ms",
        "daskscope.idle.grace": "200ms",
    }
    with dask.config.set(settings):
        yield settings


@pytest.fixture
def cluster(configured: dict[str, Any]) -> Iterator[LocalCluster]:
    with (
        counted_everywhere(),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=False
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster_id(cluster: LocalCluster) -> Iterator[str]:
    """The id of a cluster that has reported."""
    with Client(cluster) as client:
        registration = daskscope.register(client)
        wait_until(
            lambda: registration.cluster_id in [row["id"] for row in daskscope.list_clusters()]
        )
        yield str(registration.cluster_id)


def of(service: ServiceProcess, command: str) -> dict[str, Any]:
    """Return what the API tells of a shutdown."""
    headers = {"Authorization": f"Bearer {service.token(['read'])}"}
    answer = requests.get(f"{service.url}/api/v1/commands/{command}", headers=headers, timeout=30)
    assert answer.ok, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_function_closes_a_cluster_and_what_became_of_it_is_told(
    service: ServiceProcess, cluster: LocalCluster, cluster_id: str
) -> None:
    asked = daskscope.close(cluster_id, reason="It is Friday.")
    assert (asked["status"], asked["cluster"]) == ("requested", cluster_id)
    assert asked["requested_by"].startswith("token ")
    assert asked["requested_at"].tzinfo is not None
    wait_until(lambda: cluster.status == Status.closed)
    done = wait_until(lambda: (found := of(service, asked["id"]))["status"] == "done" and found)
    assert done["delivered_at"] is not None
    assert "It is Friday. Its LocalCluster is closed. It has closed." in done["sentence"]
    with pytest.raises(daskscope.ServiceError, match="already stopped") as refused:
        daskscope.close(cluster_id)
    assert refused.value.status == 409
    with pytest.raises(daskscope.NotFound):
        daskscope.close("Scheduler-of-no-one")


def test_the_page_closes_a_cluster_without_a_script(
    service: ServiceProcess, cluster: LocalCluster, cluster_id: str
) -> None:
    user = make_user(service, {"default": "member"})
    browser = browser_of(service, user.name)
    page = f"{service.url}/clusters/{cluster_id}"
    assert f'href="/clusters/{cluster_id}/shutdown"' in browser.get(page, timeout=30).text
    question = browser.get(f"{page}/shutdown", timeout=30)
    assert "Shut it down" in question.text
    assert cluster.status == Status.running
    answer = browser.post(f"{page}/shutdown", data={"reason": "Not needed."}, timeout=30)
    assert answer.url == f"{page}#h-shutdowns"
    assert user.name in answer.text
    wait_until(lambda: cluster.status == Status.closed)
    text = wait_until(lambda: "<td>done</td>" in (t := browser.get(page, timeout=30).text) and t)
    assert "Not needed." in text
    assert f'href="/clusters/{cluster_id}/shutdown"' not in text
    told = [e for e in audit.newest(service.engine, 20) if e.action == "shutdown asked for"]
    assert (told[0].actor, told[0].address) == (user.name, "127.0.0.1")
    assert cluster_id in told[0].detail


def test_a_cluster_at_work_stays_and_says_why(
    service: ServiceProcess, cluster: LocalCluster, cluster_id: str, tmp_path: Path
) -> None:
    with Client(cluster) as client:
        waits = client.submit(wait_for_file, str(tmp_path / "go"))
        wait_until(lambda: client.processing() and any(client.processing().values()))
        asked = daskscope.close(cluster_id)
        off = wait_until(lambda: (f := of(service, asked["id"]))["status"] == "called off" and f)
        assert "tasks are running" in off["sentence"]
        (tmp_path / "go").touch()
        waits.result()
    assert cluster.status == Status.running


def test_what_was_announced_can_be_called_off(
    service: ServiceProcess, cluster: LocalCluster, cluster_id: str
) -> None:
    user = make_user(service, {"default": "owner"})
    browser = browser_of(service, user.name)
    body = {"cluster": cluster_id, "grace": 3600}
    asked = browser.post(f"{service.url}/api/v1/commands", json=body, timeout=30)
    assert asked.status_code == 201, asked.text
    command = asked.json()["id"]
    announced = wait_until(lambda: (f := of(service, command))["status"] == "announced" and f)
    assert announced["closes_at"] is not None
    page = f"{service.url}/clusters/{cluster_id}"
    assert "Call it off" in browser.get(page, timeout=30).text
    assert browser.post(f"{page}/commands/{command}/call-off", timeout=30).ok
    off = wait_until(lambda: (f := of(service, command))["status"] == "called off" and f)
    assert f"{user.name} called it off." in off["sentence"]
    assert off["called_off_by"] == user.name
    assert cluster.status == Status.running
