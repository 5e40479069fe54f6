"""Bodies of protobuf that would make too many messages are told before any is made."""

from __future__ import annotations

import gzip

import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from daskscope_service.ingest.otlp_size import MOST_MESSAGES, check, count
from daskscope_service.web.problems import Problem
from tests.service.test_bodies import MIB, most_memory, post
from tests.service.test_otlp import Sender
from tests.service_process import ServiceProcess


def below(message: Message) -> int:
    """Count as the walk does, on what the parser made."""
    found = 0
    for field, value in message.ListFields():
        if field.message_type:
            some = list(value) if field.is_repeated else [value]
            found += len(some) + sum(map(below, some))
    return found


def filled(kind: type[Message], depth: int = 0) -> Message:
    """Return a message with every field set, two of each that repeats; values nested in values."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if field.message_type:
            if depth < 9:
                part = filled(field.message_type._concrete_class, depth + 1)
                target = getattr(message, field.name)
                if field.is_repeated:
                    target.extend([part, part])
                else:
                    target.CopyFrom(part)
            continue
        value: object = 1
        if field.cpp_type == field.CPPTYPE_STRING:
            value = b"\x12\0" * 70 if field.type == field.TYPE_BYTES else "\x12\0" * 70
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
    return message


@pytest.mark.parametrize(
    "kind", [ExportMetricsServiceRequest, ExportTraceServiceRequest, ExportLogsServiceRequest]
)
def test_all_messages_are_counted_and_nothing_else(kind: type[Message]) -> None:
    message = filled(kind)
    body = message.SerializeToString()
    assert count(body, kind(), 10**9) == below(message) > 50
    check(body, kind(), below(message))
    with pytest.raises(Problem, match="more than"):
        check(body, kind(), below(message) - 1)


def test_what_is_no_message_is_left_to_the_parser() -> None:
    kind = ExportTraceServiceRequest
    for body in (b"\x0a", b"\x0a\xff", b"\x0a\x7f\x12\0", b"\xff" * 40, b"\x0b\x12", b"\x0d\0"):
        assert count(body, kind(), 100) <= 1
    nested = b""
    for _ in range(300):
        nested = b"\x0a" + bytes([len(nested)]) + nested if len(nested) < 126 else nested
    assert count(b"\x12\x02\x12\x00" * 50, kind(), 100) == 0  # of a field that is not there
    assert count(nested, kind(), 1000) <= 101


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_a_body_of_empty_messages_is_refused_before_it_costs_memory(
    local_service: ServiceProcess, signal: str
) -> None:
    sender = Sender(local_service)
    path = f"/v1/{signal}"
    assert post(sender, path, b"") == 200
    before = most_memory(local_service)
    # A resource's scope's spans, points or records: seven million of two bytes.
    inner = b"\x12\0" * (7 * MIB)
    for _ in range(2):
        tag = b"\x12" if inner[:2] == b"\x12\0" else b"\x0a"
        inner = tag + varint(len(inner)) + inner
    packed = gzip.compress(inner)
    assert len(packed) < 100_000
    assert post(sender, path, packed, **{"Content-Encoding": "gzip"}) == 413
    assert most_memory(local_service) < before + 120


def varint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def test_a_large_batch_is_taken() -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(8192):
        span = spans.add(name="dask.task", trace_id=b"\x12" * 16, span_id=b"\x12" * 8)
        for name in range(20):
            span.attributes.add(key=f"attribute.{name}").value.string_value = f"value {number}"
    body = request.SerializeToString()
    assert count(body, ExportTraceServiceRequest(), MOST_MESSAGES) == 8192 * 41 + 2
    check(body, ExportTraceServiceRequest())
