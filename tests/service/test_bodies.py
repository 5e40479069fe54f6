"""Bodies that are compressed, cut off, too large, or made to cost; the same wherever they go."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from daskscope_service.db import schema
from tests.patience import wait_until
from tests.service.conftest import NewDatabase, standstill
from tests.service.test_otlp import AT, Sender
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

MIB = 1024 * 1024
PATHS = ("/v1/metrics", "/v1/traces", "/v1/logs", "/api/v1/heartbeats")
KINDS = ("application/x-protobuf", "application/json")


@pytest.fixture
def sender(shared_service: ServiceProcess) -> Sender:
    return Sender(shared_service)


def post(sender: Sender, path: str, body: bytes | Iterator[bytes], **headers: str) -> int:
    answer = requests.post(
        sender.service.url + path,
        data=body,
        headers={"Content-Type": KINDS[0], **sender.headers, **headers},
        timeout=60,
    )
    if answer.status_code != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"]
    return answer.status_code


GZIP = {"Content-Encoding": "gzip"}


@pytest.mark.parametrize("path", PATHS)
def test_gzip_that_is_broken_or_cut_off_is_refused(sender: Sender, path: str) -> None:
    packed = gzip.compress(b"{}" * 1000)
    for body in (b"", b"not gzip", packed[:-1], packed[:20], packed + b"more", packed * 2):
        assert post(sender, path, body, **GZIP) == 400
    assert post(sender, path, packed, **{"Content-Encoding": "deflate"}) == 415


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_does_not_say_how_long_it_is_is_refused_beyond_the_limit(
    sender: Sender, path: str
) -> None:
    pieces = (b" " * MIB for _ in range(20))
    assert post(sender, path, pieces) == 413


def most_memory(service: ServiceProcess) -> float:
    """Return the most memory that the service's processes ever had, in MiB."""
    found = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:  # it has ended
            continue
        ids = dict(re.findall(r"(?m)^(Pid|PPid):\s+(\d+)", text))
        peak = re.search(r"(?m)^VmHWM:\s+(\d+) kB", text)
        if peak and str(service.pid) in ids.values():
            found = max(found, int(peak[1]) / 1024)
    return found


def test_bombs_are_refused_before_they_cost_memory(local_service: ServiceProcess) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux tells how much memory a process had")
    sender = Sender(local_service)
    assert post(sender, "/v1/traces", b"") == 200
    before = most_memory(local_service)
    bomb = gzip.compress(b"\0" * (256 * MIB), 9)
    assert len(bomb) < MIB
    for path in PATHS:
        for kind in KINDS:
            with ThreadPoolExecutor() as pool:  # all at once
                headers = {"Content-Type": kind, **GZIP}
                answers = [pool.submit(post, sender, path, bomb, **headers) for _ in range(4)]
                assert {answer.result() for answer in answers} == {413}
    # Four at a time, of 16 MiB each, and what it takes to put one together.
    assert most_memory(local_service) < before + 200


def test_otlp_is_answered_429_while_the_queue_is_full(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with ServiceProcess(tmp_path, database_url=new_database(), queue_size=1, threads=4) as service:
        sender = Sender(service)
        request = ExportLogsServiceRequest()
        request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=AT)
        body = request.SerializeToString()
        assert sender.post("logs", b"").ok  # which notes that the token is used: a write, too
        with ThreadPoolExecutor() as pool:
            with standstill(service.engine):
                waiting = [pool.submit(sender.post, "logs", body) for _ in range(2)]
                wait_until(lambda: any(answer.done() for answer in waiting))
            kept, refused = sorted((a.result(30) for a in waiting), key=lambda a: a.status_code)
        assert (kept.status_code, refused.status_code) == (200, 429)
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert len(sender.rows(schema.log_record)) == 1


def test_log_records_without_a_time_are_counted_and_the_others_kept(sender: Sender) -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=AT).body.string_value = "kept"
    records.add().body.string_value = "refused"
    answer = sender.post("logs", gzip.compress(request.SerializeToString()), **GZIP)
    assert answer.status_code == 200
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 1
    assert "time" in partial.error_message
    assert [row["body"] for row in sender.rows(schema.log_record)] == ["kept"]


def test_an_unknown_field_is_refused_with_the_fields_that_there_are(
    shared_service: ServiceProcess,
) -> None:
    answer = requests.post(
        f"{shared_service.url}/api/v1/targets",
        json={"name": "team", "url": "json://example.org"},
        headers={"Authorization": f"Bearer {shared_service.token(scopes=['admin'])}"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert answer.json()["detail"] == (
        "At $: Object contains unknown field `url`; there are name, address, kinds."
    )
