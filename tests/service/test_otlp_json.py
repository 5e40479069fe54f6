"""OTLP as JSON lands in the same tables as OTLP as protobuf."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import requests

from daskscope_service.db import schema
from tests.service.test_otlp import CLUSTER, Sender
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

RESOURCE = {
    "attributes": [{"key": "dask.cluster.id", "value": {"stringValue": CLUSTER}}],
}
TRACE_ID = "5b8efff798038103d269b633813fc60c"
SPAN_ID = "eee19b7ec3c1b174"


@pytest.fixture
def sender(shared_service: ServiceProcess) -> Sender:
    return Sender(shared_service)


def post(sender: Sender, signal: str, document: Any, **headers: str) -> requests.Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return sender.post(signal, body, **{"Content-Type": "application/json", **headers})


def spans(*some: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": list(some)}]}]}


def points(*some: dict[str, Any]) -> dict[str, Any]:
    metric = {"name": "g", "unit": "s", "gauge": {"dataPoints": list(some)}}
    return {"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": [{"metrics": [metric]}]}]}


def test_a_span_is_stored_with_its_hexadecimal_ids(sender: Sender) -> None:
    span = {
        "traceId": TRACE_ID.upper(),
        "spanId": SPAN_ID,
        "parentSpanId": "",
        "name": "dask.computation",
        "startTimeUnixNano": "1700000000500000000",
        "endTimeUnixNano": 1700000001500000000,
        "kind": 1,
        "status": {"code": 2},
        "attributes": [{"key": "traceId", "value": {"stringValue": "not an id"}}],
        "aFieldOfTomorrow": 1,
    }
    answer = post(sender, "traces", spans(span))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {}
    (row,) = sender.rows(schema.span)
    assert (row["trace_id"], row["span_id"], row["parent_span_id"]) == (TRACE_ID, SPAN_ID, None)
    assert (row["started_at"], row["stopped_at"]) == (1_700_000_000.5, 1_700_000_001.5)
    assert row["cluster"] == CLUSTER
    assert row["status"] == "error"
    assert row["attributes"] == {"traceId": "not an id"}


def test_a_log_record_is_stored_gzip_or_not(sender: Sender) -> None:
    record = {
        "timeUnixNano": "1700000000500000000",
        "severityNumber": 17,
        "body": {"stringValue": "division by zero"},
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
    }
    scope = [{"logRecords": [record]}]
    document = {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": scope}]}
    assert post(sender, "logs", document).ok
    packed = gzip.compress(json.dumps(document).encode())
    assert post(sender, "logs", packed, **{"Content-Encoding": "gzip"}).ok
    (row,) = sender.rows(schema.log_record)
    assert row["body"] == "division by zero"
    assert (row["trace_id"], row["span_id"]) == (TRACE_ID, SPAN_ID)


def test_what_cannot_be_kept_is_counted_in_the_answer_and_the_rest_is_kept(sender: Sender) -> None:
    answer = post(
        sender,
        "metrics",
        points(
            {"timeUnixNano": "1700000001000000000", "asDouble": 1.5},
            {"timeUnixNano": "1700000002000000000", "asInt": "3"},
            {"timeUnixNano": "1700000003000000000", "asDouble": "NaN"},
            {"asDouble": 1.0},
            {"timeUnixNano": str(2**64 - 1), "asDouble": 1.0},  # centuries ahead
            {"timeUnixNano": "1700000004000000000", "asDouble": 1e300},
        ),
    )
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedDataPoints"] == "4"
    assert partial["errorMessage"]
    assert sender.points() == {("g", "value", "{}"): [("gauge", 1.5), ("gauge", 3.0)]}


def test_the_greatest_numbers_are_kept(sender: Sender) -> None:
    most, now = str(2**64 - 1), "1700000000000000000"
    document = points({"timeUnixNano": now, "asInt": str(2**63 - 1)})
    metrics = document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    point = {"timeUnixNano": now, "count": most, "bucketCounts": [most] * 2, "explicitBounds": [1]}
    metrics.append({"name": "h", "histogram": {"dataPoints": [point], "aggregationTemporality": 2}})
    answer = post(sender, "metrics", document)
    assert (answer.status_code, answer.json()) == (200, {})
    assert sender.points() == {
        ("g", "value", "{}"): [("gauge", float(2**63))],
        ("h", "count", "{}"): [("counter", float(2**64))],
        ("h", "1", "{}"): [("counter", float(2**64))],
        ("h", "+Inf", "{}"): [("counter", float(2**65))],
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 5}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "x"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\\ud800"}]}]}]}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b'{"x":' * 201 + b"1" + b"}" * 201,
    ],
)
def test_what_is_not_otlp_is_a_400_that_says_why(sender: Sender, body: bytes) -> None:
    answer = post(sender, "traces", body)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "The body is not " in answer.json()["detail"]
    assert sender.rows(schema.span) == []


@pytest.mark.parametrize(
    "unknown",
    [b'"' + b'\\"[{\\\\' * 1_000 + b'"', b'{"x": [' * 90 + b"]}" * 90],
    ids=["brackets in a text", "deep, and not too deep"],
)
def test_what_is_not_too_deep_is_taken(sender: Sender, unknown: bytes) -> None:
    answer = post(sender, "traces", b'{"resourceSpans": [], "unknown": ' + unknown + b"}")
    assert answer.status_code == 200


@pytest.mark.parametrize("item", [b"{},", b"[],", b"0,"])
def test_json_that_would_cost_much_memory_is_refused_unread(sender: Sender, item: bytes) -> None:
    body = b'{"resourceSpans":[' + item * 1_500_000 + b"{}]}"
    packed = gzip.compress(body, 1)
    assert len(packed) < 100_000
    answer = post(sender, "traces", packed, **{"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    assert "application/x-protobuf" in answer.json()["detail"]
