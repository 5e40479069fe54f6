"""Log events of findings that the service sends by OTLP, to a real HTTP server."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

from daskscope_service.accounts import audit
from daskscope_service.accounts.change import Change
from daskscope_service.db.engine import writing
from daskscope_service.findings.evaluator import mark_all
from daskscope_service.findings.mutes import NewMute, mute
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, make_computation, make_tiny_tasks, post
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

CLUSTER = "Scheduler-events"


class Receiver:
    """An OTLP receiver that answers with ``status``, and keeps what it accepted."""

    def __init__(self) -> None:
        self.status = HTTPStatus.OK
        self.refused = 0
        self.tokens = set[str | None]()
        self.records = list[tuple[dict[str, Any], Any]]()

    def take(self, body: bytes, token: str | None) -> HTTPStatus:
        self.tokens.add(token)
        if self.status != HTTPStatus.OK:
            self.refused += 1
            return self.status
        for group in ExportLogsServiceRequest.FromString(body).resource_logs:
            resource = values(group.resource.attributes)
            for logs in group.scope_logs:
                self.records += [(resource, record) for record in logs.log_records]
        return self.status

    def of(self, rule: str) -> list[tuple[dict[str, Any], Any]]:
        return [
            (resource, record)
            for resource, record in self.records
            if values(record.attributes)["dask.finding.rule"] == rule
        ]


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def serving(receiver: Receiver) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/logs"
            self.send_response(receiver.take(body, self.headers.get("Authorization")))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def service(receiver: Receiver, tmp_path: Path) -> Iterator[ServiceProcess]:
    with (
        serving(receiver) as url,
        ServiceProcess(
            tmp_path / "data", quick=True, otlp_endpoint=url, otlp_token="of the collector"
        ) as service,
    ):
        yield service


def send_sick_and_healthy(service: ServiceProcess, token: str, cluster: str = CLUSTER) -> None:
    """Report a computation of too many tasks, and one of as many seconds in which all is well."""
    now = time.time()
    tiny = make_tiny_tasks("tiny", now - 500, now - 483.6)
    healthy = make_computation(
        "healthy", started_at=now - 300, stopped_at=now - 240, ended_at=now - 240, tasks=60,
        completed=60, erred=0, states={"released": 60}, seconds={"compute": 200.0},
    )  # fmt: skip
    beat = make_beat(
        make_cluster(cluster, name="mine", user="ada", started_at=now - 600, interval=60.0),
        computations=(*tiny["computations"], healthy),
        task_groups=tiny["task_groups"],
    )
    assert post(service.url, token, beat).ok


def test_a_new_finding_is_sent_once_with_its_cluster_and_its_page(
    service: ServiceProcess, receiver: Receiver
) -> None:
    token = service.token(["ingest"])
    send_sick_and_healthy(service, token)
    wait_until(lambda: receiver.of("tiny-tasks"), seconds=60)
    [(resource, record)] = receiver.of("tiny-tasks")
    said = values(record.attributes)
    assert receiver.tokens == {"Bearer of the collector"}
    assert (record.event_name, said["event.name"]) == ("dask.finding", "dask.finding")
    assert record.severity_number == SeverityNumber.SEVERITY_NUMBER_WARN
    assert record.body.string_value.startswith("Its 15,000 tasks took 40 µs each")
    assert resource["service.namespace"] == "default"
    assert resource["dask.cluster.id"] == resource["service.instance.id"] == CLUSTER
    assert resource["dask.cluster.name"] == "mine"
    assert (said["dask.computation.id"], said["user.name"]) == ("tiny", "ada")
    assert said["dask.finding.seconds"] > 30
    assert said["dask.finding.url"].endswith(
        f"/clusters/{CLUSTER}/computations/tiny#finding-tiny-tasks"
    )
    # Made anew, it is the same finding; and the healthy computation has none.
    assert mark_all(service.engine, "default") == 2
    send_sick_and_healthy(service, token, "Scheduler-later")
    wait_until(lambda: len(receiver.of("tiny-tasks")) > 1, seconds=60)
    assert [one["dask.cluster.id"] for one, _ in receiver.of("tiny-tasks")] == [
        CLUSTER,
        "Scheduler-later",
    ]
    assert {values(one.attributes).get("dask.computation.id") for _, one in receiver.records} == {
        "tiny"
    }


def test_what_a_receiver_refuses_is_sent_again(service: ServiceProcess, receiver: Receiver) -> None:
    receiver.status = HTTPStatus.SERVICE_UNAVAILABLE
    send_sick_and_healthy(service, service.token(["ingest"]))
    wait_until(lambda: receiver.refused > 1, seconds=60)
    assert not receiver.records
    receiver.status = HTTPStatus.OK
    wait_until(lambda: receiver.of("tiny-tasks"), seconds=60)
    service.stop()
    assert len(receiver.of("tiny-tasks")) == 1
    assert service.output.count("findings cannot be sent to") == 1


def test_a_muted_finding_is_not_sent(service: ServiceProcess, receiver: Receiver) -> None:
    beat = make_beat(make_cluster(CLUSTER, started_at=time.time() - 600, interval=60.0))
    token = service.token(["ingest"])
    assert post(service.url, token, beat).ok
    wish = NewMute("tiny-tasks", CLUSTER, "", "known", time.time() + 3600)
    with writing(service.engine) as connection:
        mute(Change(connection, "default", audit.OPERATOR), wish)
    send_sick_and_healthy(service, token)
    send_sick_and_healthy(service, token, "Scheduler-unmuted")
    wait_until(lambda: receiver.of("tiny-tasks"), seconds=60)
    assert {one["dask.cluster.id"] for one, _ in receiver.of("tiny-tasks")} == {"Scheduler-unmuted"}
