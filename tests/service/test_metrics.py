"""What the service tells of itself: whether it is well, and how much it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from daskscope_service.db.engine import writing
from tests.service.beats import full_beat, make_beat, make_cluster, post
from tests.service.conftest import NewDatabase, standstill
from tests.service.test_otlp import AT, metrics_request
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

SECRET = "the secret of who runs the service"

#: All that it tells of its own; a name that is gone breaks dashboards.
NAMES = {
    "daskscope_service_beats",
    "daskscope_service_beat_rows_left_out",
    "daskscope_service_workspace_use",
    "daskscope_service_cluster_drops",
    "daskscope_service_commit_seconds",
    "daskscope_service_database_read_seconds",
    "daskscope_service_database_size_bytes",
    "daskscope_service_database_up",
    "daskscope_service_finding_events",
    "daskscope_service_log_lines_dropped",
    "daskscope_service_last_beat_age_seconds",
    "daskscope_service_otlp_rejected",
    "daskscope_service_queue_capacity",
    "daskscope_service_queue_length",
    "daskscope_service_refused",
    "daskscope_service_removal_rounds",
    "daskscope_service_removed_rows",
    "daskscope_service_request_seconds",
    "daskscope_service_requests",
    "daskscope_service_rows",
    "daskscope_service_write_failures",
}

Samples = dict[tuple[str, ...], float]


@pytest.fixture
def service(tmp_path: Path, new_database: NewDatabase) -> Iterator[ServiceProcess]:
    settings: dict[str, Any] = {"metrics_token": SECRET, "queue_size": 1, "threads": 4}
    with ServiceProcess(tmp_path, database_url=new_database(), **settings) as service:
        yield service


def ask(service: ServiceProcess, secret: str | None = SECRET) -> requests.Response:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return requests.get(f"{service.url}/metrics", headers=headers, timeout=30)


def samples(service: ServiceProcess) -> Samples:
    """Return the value of each sample, by its name and the values of its labels, by their names."""
    answer = ask(service)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name.removeprefix("daskscope_service_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_are_told_to_who_has_the_secret_alone(service: ServiceProcess) -> None:
    for secret in (None, "", "wrong", service.token()):
        answer = ask(service, secret)
        assert answer.status_code == 401
        assert "DASKSCOPE_METRICS_TOKEN" in answer.json()["detail"]
    assert ask(service).ok


def test_without_a_secret_metrics_are_told_to_no_one(shared_service: ServiceProcess) -> None:
    for secret in (None, "", shared_service.token()):
        answer = ask(shared_service, secret)
        assert answer.status_code == 403
        assert "DASKSCOPE_METRICS_TOKEN" in answer.json()["detail"]


def test_all_that_is_told_has_its_name(service: ServiceProcess) -> None:
    families = {one.name: one for one in text_string_to_metric_families(ask(service).text)}
    assert {name for name in families if name.startswith("daskscope")} == NAMES
    assert all(family.documentation for family in families.values())
    assert "process_resident_memory_bytes" in families


def test_what_comes_in_is_counted(service: ServiceProcess) -> None:
    headers = {"Authorization": f"Bearer {service.token()}"}
    cluster = make_cluster()
    assert post(service.url, service.token(), full_beat(cluster)).ok
    assert post(service.url, service.token(workspace="finance"), make_beat()).ok
    assert post(service.url, service.token(), b"{}").status_code == 400
    gauge = Metric(name="g")
    gauge.gauge.data_points.add(as_double=1.0)  # without a time
    gauge.gauge.data_points.add(time_unix_nano=AT + 10**9, as_double=1.0)
    assert requests.post(
        f"{service.url}/v1/metrics",
        data=metrics_request(gauge).SerializeToString(),
        headers={"Content-Type": "application/x-protobuf", **headers},
        timeout=30,
    ).ok

    found = samples(service)
    assert found["beats_total",] == 2
    assert found["rows_total", "cluster"] == 2
    assert found["rows_total", "task_group"] == 2
    assert found["rows_total", "point"] == 1
    assert found["otlp_rejected_total", "metrics"] == 1
    assert found["requests_total", "POST", "/api/v1/heartbeats", "200"] == 2
    assert found["requests_total", "POST", "/api/v1/heartbeats", "400"] == 1
    assert found["request_seconds_count", "POST", "/api/v1/heartbeats"] == 3
    assert found["commit_seconds_count",] >= 3
    assert found["write_failures_total",] == 0
    assert found["database_up",] == 1
    assert found["database_size_bytes",] > 0
    assert 0 <= found["last_beat_age_seconds", "default"] < 120
    assert 0 <= found["last_beat_age_seconds", "finance"] < 120
    assert found["cluster_drops", "events"] == 2


def test_labels_stay_few_whatever_is_asked(service: ServiceProcess) -> None:
    headers = {"Authorization": f"Bearer {service.token()}"}
    for path in ("/api/v1/clusters/a", "/api/v1/clusters/b", "/nothing/a", "/nothing/b"):
        assert requests.get(service.url + path, headers=headers, timeout=30).status_code == 404
    assert requests.request("BREW", f"{service.url}/healthz", timeout=30).status_code == 405
    drops = {f"kind {chr(97 + i // 26)}{chr(97 + i % 26)}": 1 for i in range(100)}
    beat = make_beat(drops={**drops, "Zeile\n": 5, "x" * 1000: 7})
    assert post(service.url, service.token(), beat).ok

    found = samples(service)
    routes = {key[2] for key in found if key[0] == "requests_total"}
    assert "/nothing/a" not in routes
    assert found["requests_total", "GET", "/api/v1/clusters/<cluster_id>", "404"] == 2
    assert found["requests_total", "GET", "none", "404"] == 2
    assert ("requests_total", "other", "none", "405") in found
    kinds = {key[1]: value for key, value in found.items() if key[0] == "cluster_drops"}
    assert len(kinds) == 51
    assert sum(kinds.values()) == 100  # beyond a hundred entries nothing is stored


def test_a_full_queue_is_told(service: ServiceProcess) -> None:
    token = service.token()
    assert post(service.url, token, make_beat()).ok
    refused = threading.Event()

    def send() -> int:
        answer = post(service.url, token, make_beat())
        if answer.status_code == 429:
            refused.set()
        return answer.status_code

    with ThreadPoolExecutor() as pool:
        with standstill(service.engine):
            answers = [pool.submit(send) for _ in range(2)]
            assert refused.wait(30)
            found = samples(service)
        assert sorted(answer.result(30) for answer in answers) == [200, 429]
    assert found["queue_length",] == found["queue_capacity",] == 1
    assert found["refused_total", "queue full"] == 1
    assert samples(service)["queue_length",] == 0


def test_a_database_that_does_not_answer_is_told(service: ServiceProcess) -> None:
    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE workspace RENAME TO hidden"))
    answer = requests.get(f"{service.url}/readyz", timeout=30)
    assert answer.status_code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Retry-After"]
    assert answer.json()["reason"] == "database"
    assert requests.get(f"{service.url}/healthz", timeout=30).ok
    found = samples(service)
    assert found["database_up",] == 0
    assert not any(name == "last_beat_age_seconds" for name, *_ in found)

    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE hidden RENAME TO workspace"))
    assert requests.get(f"{service.url}/readyz", timeout=30).ok
