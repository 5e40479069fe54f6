"""Whatever is sent as a heartbeat or as OTLP is kept, or refused whole, and is no error of ours."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from daskscope.codec import encode
from tests.service.beats import full_beat, make_cluster
from tests.service.rows import count_rows
from tests.service.test_otlp import Sender
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

REQUESTS: dict[str, Any] = {
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
}

examples = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

texts = st.text(max_size=8) | st.sampled_from(["", "\0", "\ud800", "dask.cluster.id", "NaN"])
numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64]),
    st.floats(),
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def sender(shared_service: ServiceProcess) -> Sender:
    return Sender(shared_service)


def stored(sender: Sender) -> int:
    """Return how many rows the sender's workspace has."""
    return count_rows(sender.service.engine, sender.workspace)


def check(sender: Sender, before: int, answer: requests.Response) -> None:
    assert answer.status_code in (200, 400, 413), answer.text
    if answer.status_code != 200:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"]
        assert stored(sender) == before


def as_json(document: Any) -> bytes:
    # As a sender in another language would: what JSON lacks, and broken text, all the same.
    return json.dumps(document).encode("utf-8", "surrogatepass")


def replaced(document: Any, place: list[int], value: Any) -> Any:
    """Return ``document`` with ``value`` at the place that the numbers lead to."""
    if not place or not isinstance(document, dict | list) or not document:
        return value
    if isinstance(document, dict):
        key = sorted(document)[place[0] % len(document)]
        return document | {key: replaced(document[key], place[1:], value)}
    index = place[0] % len(document)
    return [
        replaced(item, place[1:], value) if i == index else item for i, item in enumerate(document)
    ]


@examples
@given(body=st.binary(max_size=64) | values.map(as_json))
def test_anything_as_a_heartbeat(sender: Sender, body: bytes) -> None:
    before = stored(sender)
    check(sender, before, beat(sender, body))


@examples
@given(place=st.lists(st.integers(0, 60), min_size=1, max_size=5), value=values)
def test_a_heartbeat_with_anything_in_one_place(
    sender: Sender, place: list[int], value: Any
) -> None:
    document = msgspec.json.decode(encode(full_beat(make_cluster("Scheduler-p"))))
    before = stored(sender)
    check(sender, before, beat(sender, as_json(replaced(document, place, value))))


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
@pytest.mark.parametrize("signal", ["metrics", "traces", "logs"])
@settings(examples, max_examples=30)
@given(body=st.binary(max_size=64) | values.map(as_json))
def test_anything_as_otlp(sender: Sender, signal: str, kind: str, body: bytes) -> None:
    before = stored(sender)
    check(sender, before, sender.post(signal, body, **{"Content-Type": kind}))


scalars: dict[str, st.SearchStrategy[Any]] = {
    "stringValue": st.sampled_from(["", "a", "ü", "dask.cluster.id", "event.name", "\0"]),
    "intValue": st.integers(-(2**63), 2**63 - 1),
    "doubleValue": st.floats() | st.sampled_from(["NaN", "-Infinity"]),
    "boolValue": st.booleans(),
    "bytesValue": st.binary(max_size=4).map(lambda some: base64.b64encode(some).decode()),
}
any_scalar = st.one_of(*(st.fixed_dictionaries({name: one}) for name, one in scalars.items()))
any_value = any_scalar | st.fixed_dictionaries(
    {"arrayValue": st.fixed_dictionaries({"values": st.lists(any_scalar, max_size=2)})}
)


def a_message(descriptor: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return documents of a protobuf message, with any values that its fields allow."""
    fields: dict[str, Any] = {}
    choices: dict[str, list[st.SearchStrategy[dict[str, Any]]]] = {}
    for field in descriptor.fields:
        one = a_field(field)
        if field.is_repeated:
            one = st.lists(one, min_size=1, max_size=2 if field.message_type is None else 1)
        if field.containing_oneof is not None:
            of_one = choices.setdefault(field.containing_oneof.name, [])
            of_one.append(st.fixed_dictionaries({field.json_name: one}))
        else:
            fields[field.json_name] = one
    if descriptor.name == "HistogramDataPoint":  # else hardly one would have buckets that fit
        fields["explicitBounds"] = st.just([1.0])
        fields["bucketCounts"] = st.lists(fields["count"], min_size=1, max_size=2)
    parts = [st.fixed_dictionaries(fields), *map(st.one_of, choices.values())]
    return st.tuples(*parts).map(lambda some: {k: v for part in some for k, v in part.items()})


def a_field(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if field.message_type.name == "AnyValue":
            return any_value
        return a_message(field.message_type)
    if field.name.endswith(("trace_id", "span_id")):
        return st.binary(min_size=16, max_size=16).map(bytes.hex) | st.just("eee19b7ec3c1b174")
    if field.cpp_type == field.CPPTYPE_STRING:
        return scalars["stringValue"]
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return scalars["doubleValue"]
    if field.cpp_type == field.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == field.CPPTYPE_ENUM:
        return st.integers(0, 5)
    bits = 64 if field.cpp_type in (field.CPPTYPE_UINT64, field.CPPTYPE_INT64) else 32
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if field.cpp_type in (field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        least, most = 0, 2**bits - 1
    return st.integers(least, most) | st.sampled_from([0, most])


DOCUMENTS = {signal: a_message(request.DESCRIPTOR) for signal, request in REQUESTS.items()}


@pytest.mark.parametrize("signal", ["metrics", "traces", "logs"])
@settings(examples, max_examples=100)
@given(data=st.data())
def test_well_formed_otlp_with_any_numbers(sender: Sender, signal: str, data: Any) -> None:
    document = data.draw(DOCUMENTS[signal])
    before = stored(sender)
    body = as_json(document)
    check(sender, before, sender.post(signal, body, **{"Content-Type": "application/json"}))


def beat(sender: Sender, body: bytes) -> requests.Response:
    return requests.post(
        f"{sender.service.url}/api/v1/heartbeats", data=body, headers=sender.headers, timeout=30
    )
